#pragma once

#include <cstring>
#include <numeric>

#include "backend/cuda/device_memory.h"

namespace pf {

// The small arrays that one launch sequence reads, gathered in pinned memory and sent in one copy.
//
//   staging.begin();                       waits until the copy before has been read
//   auto tokens = staging.put<int32_t>(batch.tokens);
//   staging.send(stream);
//   kernel(staging.at(tokens), ...);       good until the next begin()
//
// Room grows to what the largest step needed, then nothing is allocated any more.
class Staging {
 public:
  template <class T>
  struct Part {
    size_t offset = 0;
    int64_t n = 0;
  };

  explicit Staging(size_t bytes) : host_(bytes), device_(bytes) {
    cuda_check(cudaEventCreateWithFlags(&sent_, cudaEventDisableTiming));
  }
  Staging(const Staging&) = delete;
  Staging& operator=(const Staging&) = delete;
  ~Staging() { cuda_check(cudaEventDestroy(sent_)); }

  void begin() {
    cuda_check(cudaEventSynchronize(sent_));
    used_ = 0;
  }

  template <class T>
  Part<T> put(std::span<const T> values) {
    Part<T> part = make<T>(static_cast<int64_t>(values.size()));
    if (!values.empty())
      std::memcpy(host_.data() + part.offset, values.data(), values.size_bytes());
    return part;
  }
  // Room to be filled through host() before send(). Parts of the same sizes, made in the same order
  // from begin() on, lie at the same places.
  template <class T>
  Part<T> make(int64_t n) {
    constexpr size_t kUnit = std::lcm(sizeof(T), size_t{16});
    Part<T> part{(used_ + kUnit - 1) / kUnit * kUnit, n};
    used_ = part.offset + static_cast<size_t>(n) * sizeof(T);
    if (used_ > host_.bytes()) grow();
    return part;
  }
  template <class T>
  std::span<T> host(Part<T> part) {
    return {reinterpret_cast<T*>(host_.data() + part.offset), static_cast<size_t>(part.n)};
  }

  // The host's side of another one, whose parts then name the same places here. Between begin()
  // and send().
  void copy(const Staging& other) {
    used_ = other.used_;
    if (used_ > host_.bytes()) host_ = PinnedMemory(other.host_.bytes());
    std::memcpy(host_.data(), other.host_.data(), used_);
  }

  void send(cudaStream_t stream) {
    // Kernels of earlier sends may still read the device's copy: the stream keeps the order.
    if (used_ > device_.bytes()) {
      cuda_check(cudaStreamSynchronize(stream));
      device_ = DeviceMemory(host_.bytes());
    }
    if (used_ > 0)
      cuda_check(
          cudaMemcpyAsync(device_.as(), host_.data(), used_, cudaMemcpyHostToDevice, stream));
    cuda_check(cudaEventRecord(sent_, stream));
  }

  template <class T>
  T* at(Part<T> part) const {
    return reinterpret_cast<T*>(device_.as() + part.offset);
  }
  // The part's place counted in T from the beginning: at(part) == base<T>() + index(part). So an
  // array of indices can stand for an address, where a captured launch keeps its arguments.
  template <class T>
  static int32_t index(Part<T> part) {
    return static_cast<int32_t>(part.offset / sizeof(T));
  }
  template <class T = std::byte>
  T* base() const {
    return device_.as<T>();
  }
  template <class T>
  View<const T, 1> view(Part<T> part) const {
    return {at(part), {part.n}};
  }
  size_t bytes() const { return device_.bytes(); }

 private:
  void grow() {
    PinnedMemory larger(2 * used_);
    std::memcpy(larger.data(), host_.data(), host_.bytes());
    host_ = std::move(larger);
  }

  PinnedMemory host_;
  DeviceMemory device_;
  size_t used_ = 0;
  cudaEvent_t sent_ = nullptr;
};

}  // namespace pf
