#pragma once

#include <sys/mman.h>

#include <cstddef>
#include <utility>

#include "base/check.h"

namespace pf {

// Zeroed memory from the system, on 2 MB pages where the machine has them: weights are read as
// long streams, and small pages cost the stream more than the arithmetic. Pages that nobody has
// touched take no memory; of a last page that is filled to less than half, its small pages do.
// Less than 2 MB lies on small pages. Aligned to at least 4 KB. Move-only.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(size_t bytes) : bytes_(bytes) {
    if (bytes == 0) return;
    constexpr size_t kHuge = size_t{2} << 20;
    const size_t rest = bytes % kHuge, advised = rest >= kHuge / 2 ? bytes - rest + kHuge : bytes;
    mapped_ = bytes >= kHuge ? advised + kHuge : bytes;
    void* p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    check(p != MAP_FAILED, "no memory: lower --kv-blocks, --max-num-seqs or --max-model-len");
    base_ = p;
    size_t at = reinterpret_cast<size_t>(p);
    if (bytes >= kHuge) {
      at = (at + kHuge - 1) / kHuge * kHuge;
      madvise(reinterpret_cast<void*>(at), advised, MADV_HUGEPAGE);  // a refusal costs only speed
    }
    data_ = reinterpret_cast<std::byte*>(at);
  }
  Buffer(Buffer&& o) noexcept { swap(o); }
  Buffer& operator=(Buffer&& o) noexcept {
    swap(o);
    return *this;
  }
  ~Buffer() {
    if (base_) munmap(base_, mapped_);
  }

  template <class T = std::byte>
  T* as() const {
    return reinterpret_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void swap(Buffer& o) {
    std::swap(base_, o.base_);
    std::swap(data_, o.data_);
    std::swap(bytes_, o.bytes_);
    std::swap(mapped_, o.mapped_);
  }

  void* base_ = nullptr;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0, mapped_ = 0;
};

}  // namespace pf
