#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <source_location>
#include <span>
#include <utility>
#include <vector>

#include "base/cuda.h"
#include "base/view.h"

namespace pf {

// There is no more memory. All of it is taken when a backend is made: make_cuda_backend, which
// catches this, says so in a Status. Thrown later it ends the process as any other fault.
struct OutOfMemory : std::bad_alloc {
  OutOfMemory(size_t n, bool host) : bytes(n), of_host(host) {}
  const char* what() const noexcept override { return "out of device or pinned host memory"; }
  size_t bytes;  // asked for
  bool of_host;
};

inline void check_taken(cudaError_t status, size_t bytes, bool of_host,
                        std::source_location at = std::source_location::current()) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // not for the next call to find
    throw OutOfMemory(bytes, of_host);
  }
  cuda_check(status, at);
}

// Bytes on the device, 256-byte aligned as cudaMalloc gives them. Move-only; contents undefined.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  explicit DeviceMemory(size_t bytes) : bytes_(bytes) {
    if (bytes > 0) check_taken(cudaMalloc(&p_, bytes), bytes, false);
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
    if (bytes > 0) check_taken(cudaMallocHost(&p_, bytes), bytes, true);
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
