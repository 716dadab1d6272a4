// Truth: the host. Philox, uniform and Gumbel noise, exp and log give the same bits on the device,
// over dense sweeps of their arguments.
#include "kernels/noise_bits.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "base/noise.h"
#include "kernels/device_array.h"
#include "ptxvm/ptxvm.h"

namespace pf::kernels {
namespace {

// Floats from `first` to `last` bits, every `step`-th.
std::vector<uint32_t> sweep(uint32_t first, uint32_t last, uint32_t step) {
  std::vector<uint32_t> bits;
  for (uint64_t b = first; b <= last; b += step) bits.push_back(static_cast<uint32_t>(b));
  return bits;
}

template <class T, class Run, class Want>
void expect_same_bits(size_t n, Run run, Want want) {
  DeviceArray<T> out(n);
  run(out.data(), static_cast<int>(n));
  cuda_check(cudaDeviceSynchronize());
  std::vector<T> got = out.host();
  for (size_t i = 0; i < n; ++i) {
    T w = want(static_cast<int>(i));
    ASSERT_EQ(std::memcmp(&got[i], &w, sizeof(T)), 0) << i << ": " << got[i] << " and " << w;
  }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(NoiseBits, ExpFromZeroToBeyondItsSmallest) {
  // -0 .. -90, then the special ones.
  std::vector<uint32_t> bits = sweep(0x80000000u, 0xc2b40000u, 509);
  for (float x : {0.0f, -87.0f, std::nextafter(-87.0f, -88.0f),
                  -std::numeric_limits<float>::infinity(), std::nanf("")})
    bits.push_back(std::bit_cast<uint32_t>(x));
  DeviceArray<uint32_t> d(bits);
  expect_same_bits<float>(
      bits.size(), [&](float* out, int n) { exp_of_bits(out, d.data(), n); },
      [&](int i) { return exp_nonpositive(std::bit_cast<float>(bits[static_cast<size_t>(i)])); });
}

TEST(NoiseBits, LogOfEveryNormalScale) {
  std::vector<uint32_t> bits = sweep(0x00800000u, 0x7f7fffffu, 1021);
  DeviceArray<uint32_t> d(bits);
  expect_same_bits<float>(
      bits.size(), [&](float* out, int n) { log_of_bits(out, d.data(), n); },
      [&](int i) { return log_positive(std::bit_cast<float>(bits[static_cast<size_t>(i)])); });
}

TEST(NoiseBits, GumbelAndUniform) {
  const uint64_t seed = 0xfedcba9876543210ull;
  auto key = [&](int i) {
    return NoiseKey{seed + static_cast<uint64_t>(i), static_cast<uint32_t>(i % 5)};
  };
  expect_same_bits<float>(
      200001, [&](float* out, int n) { gumbel_of(out, seed, n); },
      [&](int i) { return gumbel(key(i), 3 * i, 7 * i); });
  expect_same_bits<double>(
      200001, [&](double* out, int n) { uniform_of(out, seed, n); },
      [&](int i) {
        return noise_uniform(key(i), 3 * i, Purpose::kAccept, static_cast<uint32_t>(i % 64));
      });
}

}  // namespace
}  // namespace pf::kernels
