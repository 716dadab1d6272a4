#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/view.h"

namespace pf {

// Bytes on the device, 256-byte aligned as cudaMalloc gives them. Move-only; contents undefined.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    if (bytes > 0) cuda_check(cudaMalloc(&p_, bytes));
  }
  DeviceMemory(DeviceMemory&& other) noexcept
      : p_(std::exchange(other.p_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(p_, other.p_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~DeviceMemory() {
    if (p_ != nullptr) cuda_check(cudaFree(p_));
  }

  template <class T = std::byte>
  T* as() const {
    return static_cast<T*>(p_);
  }
  size_t bytes() const { return bytes_; }

 private:
  void* p_ = nullptr;
  size_t bytes_ = 0;
};

// n elements of one type on the device.
template <class T>
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t n) : memory_(static_cast<size_t>(n) * sizeof(T)), n_(n) {}
  T* data() const { return memory_.as<T>(); }
  int64_t size() const { return n_; }
  size_t bytes() const { return memory_.bytes(); }

 private:
  DeviceMemory memory_;
  int64_t n_ = 0;
};

// Host memory that the device copies from and to without a detour.
class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t bytes) : bytes_(bytes) {
    if (bytes > 0) cuda_check(cudaMallocHost(&p_, bytes));
  }
  PinnedMemory(PinnedMemory&& other) noexcept
      : p_(std::exchange(other.p_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(p_, other.p_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~PinnedMemory() {
    if (p_ != nullptr) cuda_check(cudaFreeHost(p_));
  }

  std::byte* data() const { return static_cast<std::byte*>(p_); }
  size_t bytes() const { return bytes_; }

 private:
  void* p_ = nullptr;
  size_t bytes_ = 0;
};

// Room for `bytes`, kept for the next time.
template <class Memory>
void make_room(size_t bytes, Memory* memory) {
  if (memory->bytes() < bytes) *memory = Memory(bytes);
}

}  // namespace pf
