#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "base/status.h"

namespace pf {

// A whole file mapped read-only. Move-only; spans into bytes() live as long as the object.
class MappedFile {
 public:
  MappedFile() = default;
  MappedFile(MappedFile&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  MappedFile& operator=(MappedFile&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~MappedFile();

  // Errors name the path: missing, unreadable, a folder, or empty.
  static Result<MappedFile> open(const std::string& path);

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  const std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pf
