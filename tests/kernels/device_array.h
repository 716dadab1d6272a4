#pragma once

#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/cuda.h"

namespace pf {

// n elements on the device with 512 guard elements behind them that no kernel may touch.
template <class T>
class DeviceArray {
 public:
  static constexpr size_t kGuard = 512;

  explicit DeviceArray(size_t n) : n_(n) {
    cuda_check(cudaMalloc(reinterpret_cast<void**>(&p_), (n + kGuard) * sizeof(T)));
    cuda_check(cudaMemset(p_ + n_, 0xA5, kGuard * sizeof(T)));
  }
  explicit DeviceArray(const std::vector<T>& host) : DeviceArray(host.size()) {
    if (n_ > 0) cuda_check(cudaMemcpy(p_, host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice));
  }
  DeviceArray(const DeviceArray&) = delete;
  ~DeviceArray() {
    std::vector<unsigned char> guard(kGuard * sizeof(T));
    EXPECT_EQ(cudaMemcpy(guard.data(), p_ + n_, guard.size(), cudaMemcpyDeviceToHost), cudaSuccess);
    for (unsigned char c : guard)
      if (c != 0xA5) {
        ADD_FAILURE() << "a kernel wrote behind its output";
        break;
      }
    EXPECT_EQ(cudaFree(p_), cudaSuccess);
  }

  T* data() const { return p_; }
  size_t size() const { return n_; }
  std::vector<T> host() const {
    std::vector<T> out(n_);
    if (n_ > 0) cuda_check(cudaMemcpy(out.data(), p_, n_ * sizeof(T), cudaMemcpyDeviceToHost));
    return out;
  }

 private:
  T* p_ = nullptr;
  size_t n_ = 0;
};

}  // namespace pf
