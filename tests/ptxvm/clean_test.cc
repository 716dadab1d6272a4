// Truth: the definitions as float64 loops, under 20 schedules; and silence, for these kernels are
// free of faults.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/dtype.h"
#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

template <class T>
struct OnDevice {
  T* p = nullptr;
  size_t n;
  explicit OnDevice(const std::vector<T>& host) : n(host.size()) {
    cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T));
    cudaMemcpy(p, host.data(), n * sizeof(T), cudaMemcpyHostToDevice);
  }
  explicit OnDevice(size_t count) : n(count) {
    cudaMalloc(reinterpret_cast<void**>(&p), n * sizeof(T));
  }
  OnDevice(const OnDevice&) = delete;
  ~OnDevice() { cudaFree(p); }
  std::vector<T> host() const {
    std::vector<T> out(n);
    EXPECT_EQ(cudaMemcpy(out.data(), p, n * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
    return out;
  }
};

std::vector<float> values(size_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (float& x : v)
    seed = seed * 1664525u + 1013904223u,
    x = static_cast<float>(static_cast<int>(seed >> 8) % 2000 - 1000) / 500.0f;
  return v;
}

class Clean : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { settings().seed = GetParam(); }
  void TearDown() override {
    settings().seed = 0;
    EXPECT_TRUE(take_findings().empty());
  }
};

TEST_P(Clean, BlockSum) {
  for (int n : {1, 255, 1000}) {
    std::vector<float> x = values(static_cast<size_t>(n), 7);
    OnDevice<float> dx(x), dy(static_cast<size_t>((n + 255) / 256));
    block_sum(dx.p, dy.p, n, 256);
    double want = 0, got = 0;
    for (float v : x) want += v;
    for (float v : dy.host()) got += v;
    EXPECT_NEAR(got, want, n * 2 * 0x1p-22);  // n additions of values below 2 * n^(1/2)
  }
}

TEST_P(Clean, Softmax) {
  std::vector<float> x = values(5 * 67, 3);
  OnDevice<float> dx(x), dy(x.size());
  softmax_rows(dx.p, dy.p, 5, 67);
  std::vector<float> y = dy.host();
  for (size_t r = 0; r < 5; ++r) {
    double sum = 0;
    for (size_t c = 0; c < 67; ++c) sum += std::exp(double(x[r * 67 + c]));
    for (size_t c = 0; c < 67; ++c)
      EXPECT_NEAR(y[r * 67 + c], std::exp(double(x[r * 67 + c])) / sum, 1e-6);
  }
}

TEST_P(Clean, Histogram) {
  std::vector<unsigned char> x(3000);
  std::vector<int> want(256);
  for (size_t i = 0; i < x.size(); ++i) ++want[x[i] = static_cast<unsigned char>(i * i * 31)];
  OnDevice<unsigned char> dx(x);
  OnDevice<int> bins(std::vector<int>(256, 0));
  histogram(dx.p, bins.p, static_cast<int>(x.size()));
  EXPECT_EQ(bins.host(), want);
}

std::vector<__half> halves(const std::vector<float>& v) {
  std::vector<__half> out(v.size());
  for (size_t i = 0; i < v.size(); ++i) reinterpret_cast<uint16_t&>(out[i]) = to_f16(v[i]).bits;
  return out;
}
float value(const __half& h) { return to_float(f16{reinterpret_cast<const uint16_t&>(h)}); }

TEST_P(Clean, FlashAttention) {
  const size_t n = 130;
  auto q = halves(values(n * 64, 1)), k = halves(values(n * 64, 2)), v = halves(values(n * 64, 3));
  OnDevice<__half> dq(q), dk(k), dv(v), dout(n * 64);
  flash_attention(dq.p, dk.p, dv.p, dout.p, static_cast<int>(n));
  auto o = dout.host();
  for (size_t i = 0; i < n; i += 13) {
    std::vector<double> p(n);
    double sum = 0;
    for (size_t j = 0; j < n; ++j) {
      for (size_t d = 0; d < 64; ++d) p[j] += double(value(q[i * 64 + d])) * value(k[j * 64 + d]);
      sum += p[j] = std::exp(p[j] / 8);
    }
    for (size_t d = 0; d < 64; ++d) {
      double want = 0;
      for (size_t j = 0; j < n; ++j) want += p[j] / sum * value(v[j * 64 + d]);
      ASSERT_NEAR(value(o[i * 64 + d]), want, 4e-3)
          << i << " " << d;  // f16 p and o, values up to 2
    }
  }
}

TEST_P(Clean, Int4Gemv) {
  const size_t rows = 7, k = 264;
  std::vector<unsigned> w(rows * k / 8);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<unsigned>(i * 2654435761u);
  auto x = halves(values(k, 9));
  OnDevice<unsigned> dw(w);
  OnDevice<__half> dx(x);
  OnDevice<float> dy(rows);
  int4_gemv(dw.p, dx.p, dy.p, static_cast<int>(rows), static_cast<int>(k));
  auto y = dy.host();
  for (size_t r = 0; r < rows; ++r) {
    double want = 0;
    for (size_t i = 0; i < k; ++i)
      want += (double(w[r * k / 8 + i / 8] >> (4 * (i % 8)) & 15) - 8) * value(x[i]);
    EXPECT_NEAR(y[r], want, 1e-3);
  }
}

TEST_P(Clean, CapturedChainReplays) {
  cudaStream_t s, other;
  cudaEvent_t fork, join;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&fork);
  cudaEventCreate(&join);
  OnDevice<float> x(std::vector<float>(100, 1.0f)), y(std::vector<float>(100, 0.0f)),
      z(std::vector<float>(100, 0.0f));
  ASSERT_EQ(cudaStreamBeginCapture(s, cudaStreamCaptureModeGlobal), cudaSuccess);
  axpy(1, x.p, y.p, 100, s);
  cudaEventRecord(fork, s);
  cudaStreamWaitEvent(other, fork, 0);
  axpy(2, y.p, z.p, 100, other);
  cudaEventRecord(join, other);
  cudaStreamWaitEvent(s, join, 0);
  axpy(1, z.p, y.p, 100, s);
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  ASSERT_EQ(cudaStreamEndCapture(s, &graph), cudaSuccess);
  size_t n = 0;
  cudaGraphGetNodes(graph, nullptr, &n);
  EXPECT_EQ(n, 3u);
  ASSERT_EQ(cudaGraphInstantiate(&exec, graph, 0), cudaSuccess);
  for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(exec, s), cudaSuccess);
  ASSERT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  // y: 0 -> 1, z 2, y 3; then y 4, z 10, y 14.
  EXPECT_EQ(y.host(), std::vector<float>(100, 14.0f));
  cudaGraphExecDestroy(exec);
  cudaGraphDestroy(graph);
  cudaEventDestroy(fork);
  cudaEventDestroy(join);
  cudaStreamDestroy(s);
  cudaStreamDestroy(other);
}

INSTANTIATE_TEST_SUITE_P(Schedules, Clean, testing::Range(0u, 20u));

TEST(DeviceFunctions, PrintfAndCalls) {
  testing::internal::CaptureStdout();
  hello(5);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "hello 30 0.5 there\n");
}

TEST(DeviceFunctions, AssertIsAFinding) {
  hello(100);
  EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess);
  auto f = take_findings();
  ASSERT_EQ(f.size(), 1u);
  EXPECT_EQ(f[0].kind, Kind::kAssert);
}

}  // namespace
}  // namespace pf::ptxvm
