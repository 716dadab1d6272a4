#include "base/address_range.h"

#include <sys/mman.h>

#include "base/check.h"

namespace pf {

AddressRange::AddressRange(size_t bytes) : size_(bytes) {
  if (bytes == 0) return;
  void* p = mmap(nullptr, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED, "no address space left");
  data_ = static_cast<std::byte*>(p);
}

AddressRange::~AddressRange() {
  if (data_ != nullptr) munmap(data_, size_);
}

}  // namespace pf
