#pragma once

#include <cstddef>
#include <span>
#include <utility>

namespace pf {

// Addresses without memory behind them, for things of which only the size is wanted: reading one
// ends the process. Move-only.
class AddressRange {
 public:
  explicit AddressRange(size_t bytes);
  AddressRange(AddressRange&& o) noexcept
      : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}
  AddressRange& operator=(AddressRange&& o) noexcept {
    std::swap(data_, o.data_);
    std::swap(size_, o.size_);
    return *this;
  }
  ~AddressRange();

  std::span<const std::byte> bytes() const { return {data_, size_}; }

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace pf
