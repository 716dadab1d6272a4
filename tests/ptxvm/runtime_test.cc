// Truth: the CUDA Runtime API reference, call by call, on virtual devices.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

class Runtime : public testing::Test {
 protected:
  void TearDown() override {
    EXPECT_TRUE(take_findings().empty());
    settings().print_findings = true;
    settings().n_devices = 1;
    settings().device = described_device("sm_80");
    cudaSetDevice(0);
  }
  Finding only_finding() {
    auto f = take_findings();
    EXPECT_EQ(f.size(), 1u);
    return f.empty() ? Finding{} : f[0];
  }
};
std::vector<float> host_of(const float* p, size_t n) {
  std::vector<float> v(n);
  EXPECT_EQ(cudaMemcpy(v.data(), p, n * sizeof(float), cudaMemcpyDeviceToHost), cudaSuccess);
  return v;
}
float* ones(size_t n) {
  void* p = nullptr;
  std::vector<float> v(n, 1.0f);
  EXPECT_EQ(cudaMalloc(&p, n * 4), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(p, v.data(), n * 4, cudaMemcpyHostToDevice), cudaSuccess);
  return static_cast<float*>(p);
}

TEST_F(Runtime, StreamOrderedMemory) {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  void *x = nullptr, *y = nullptr;
  ASSERT_EQ(cudaMallocAsync(&x, 400, s), cudaSuccess);
  ASSERT_EQ(cudaMallocAsync(&y, 400, s), cudaSuccess);
  size_t before = 0, after = 0, total = 0;
  cudaMemGetInfo(&before, &total);
  EXPECT_EQ(total, settings().device_memory_bytes);
  cudaMemsetAsync(x, 0, 400, s);
  cudaMemsetAsync(y, 0, 400, s);
  axpy(1, static_cast<float*>(x), static_cast<float*>(y), 100, s);
  EXPECT_EQ(cudaFreeAsync(x, s), cudaSuccess);  // after the kernel that reads it
  EXPECT_EQ(cudaFreeAsync(y, s), cudaSuccess);
  cudaMemGetInfo(&after, &total);
  EXPECT_EQ(after, before);  // nothing has run yet
  EXPECT_EQ(cudaStreamSynchronize(s), cudaSuccess);
  cudaMemGetInfo(&after, &total);
  EXPECT_EQ(after, before + 800);
  cudaStreamDestroy(s);
}
TEST_F(Runtime, UseAfterAStreamOrderedFree) {
  settings().print_findings = false;
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  void* x = nullptr;
  float* y = ones(100);
  cudaMallocAsync(&x, 400, s);
  cudaMemsetAsync(x, 0, 400, s);
  cudaFreeAsync(x, s);
  axpy(1, static_cast<float*>(x), y, 100, s);
  EXPECT_EQ(cudaStreamSynchronize(s), cudaErrorLaunchFailure);
  EXPECT_EQ(only_finding().kind, Kind::kUseAfterFree);
  cudaStreamDestroy(s);
  cudaFree(y);
}

TEST_F(Runtime, CopiesOfRectangles) {
  // Columns 1 and 2 of a 3 x 4 matrix into a 3 x 2 one and back.
  std::vector<float> m(12), out(6), back(12, -1.0f);
  std::iota(m.begin(), m.end(), 0.0f);
  void* d = nullptr;
  cudaMalloc(&d, 24);
  ASSERT_EQ(cudaMemcpy2D(d, 8, &m[1], 16, 8, 3, cudaMemcpyHostToDevice), cudaSuccess);
  ASSERT_EQ(cudaMemcpy(out.data(), d, 24, cudaMemcpyDeviceToHost), cudaSuccess);
  EXPECT_EQ(out, (std::vector<float>{1, 2, 5, 6, 9, 10}));
  ASSERT_EQ(cudaMemcpy2DAsync(back.data(), 16, d, 8, 8, 3, cudaMemcpyDeviceToHost, nullptr),
            cudaSuccess);
  EXPECT_EQ(back, (std::vector<float>{1, 2, -1, -1, 5, 6, -1, -1, 9, 10, -1, -1}));
  EXPECT_EQ(cudaMemcpy2D(d, 4, &m[0], 16, 8, 3, cudaMemcpyHostToDevice),
            cudaErrorInvalidPitchValue);
  cudaGetLastError();
  cudaFree(d);
}
TEST_F(Runtime, TheDirectionOfACopyMustBeTrue) {
  settings().print_findings = false;
  float host[4] = {};
  float* d = ones(4);
  EXPECT_EQ(cudaMemcpy(d, host, 16, cudaMemcpyDeviceToHost), cudaErrorInvalidMemcpyDirection);
  EXPECT_THAT(only_finding().message, testing::HasSubstr("another cudaMemcpyKind"));
  EXPECT_EQ(cudaMemcpy(host, d, 16, cudaMemcpyDefault), cudaSuccess);
  EXPECT_EQ(host[3], 1.0f);
  cudaFree(d);
}

TEST_F(Runtime, AsyncCopiesRunWhenSomebodyWaits) {
  cudaStream_t s;
  cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking);
  float *pinned = nullptr, *d = ones(4);
  ASSERT_EQ(cudaMallocHost(reinterpret_cast<void**>(&pinned), 16), cudaSuccess);
  pinned[0] = 7;
  cudaMemcpyAsync(d, pinned, 16, cudaMemcpyHostToDevice, s);
  pinned[0] = 8;  // a fault of the caller: the copy has not run, it sees this
  EXPECT_EQ(cudaStreamQuery(s), cudaSuccess);  // one step of time: the copy
  EXPECT_EQ(host_of(d, 1)[0], 8.0f);
  float pageable[4] = {5, 5, 5, 5};
  cudaMemcpyAsync(d, pageable, 16, cudaMemcpyHostToDevice, s);
  pageable[0] = 6;  // allowed: a pageable source is staged
  cudaStreamSynchronize(s);
  EXPECT_EQ(host_of(d, 1)[0], 5.0f);
  EXPECT_EQ(cudaFreeHost(pinned), cudaSuccess);
  cudaStreamDestroy(s);
  cudaFree(d);
}
TEST_F(Runtime, RegisteredHostMemory) {
  std::vector<float> v(64, 2.0f);
  float* y = ones(64);
  ASSERT_EQ(cudaHostRegister(v.data(), 256, cudaHostRegisterDefault), cudaSuccess);
  EXPECT_EQ(cudaHostRegister(v.data(), 256, 0), cudaErrorHostMemoryAlreadyRegistered);
  void* mapped = nullptr;
  ASSERT_EQ(cudaHostGetDevicePointer(&mapped, v.data(), 0), cudaSuccess);
  axpy(3, static_cast<float*>(mapped), y, 64, nullptr);  // a kernel may read it
  EXPECT_EQ(host_of(y, 64), std::vector<float>(64, 7.0f));
  cudaPointerAttributes a;
  cudaPointerGetAttributes(&a, v.data());
  EXPECT_EQ(a.type, cudaMemoryTypeHost);
  cudaPointerGetAttributes(&a, y);
  EXPECT_EQ(a.type, cudaMemoryTypeDevice);
  EXPECT_EQ(cudaHostUnregister(v.data()), cudaSuccess);
  cudaPointerGetAttributes(&a, v.data());
  EXPECT_EQ(a.type, cudaMemoryTypeUnregistered);
  EXPECT_EQ(cudaHostUnregister(v.data()), cudaErrorHostMemoryNotRegistered);
  cudaGetLastError();
  cudaFree(y);
}

TEST_F(Runtime, EventsOrderAndTime) {
  cudaStream_t a, b;
  cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking);
  cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
  cudaEvent_t start, end, untimed;
  cudaEventCreate(&start);
  cudaEventCreate(&end);
  cudaEventCreateWithFlags(&untimed, cudaEventDisableTiming);
  float *x = ones(1000), *y = ones(1000), ms = -1;
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorInvalidResourceHandle);  // unrecorded
  cudaEventRecord(start, a);
  axpy(1, x, y, 1000, a);
  cudaEventRecord(end, a);
  cudaEventRecord(untimed, a);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaErrorNotReady);
  EXPECT_EQ(cudaEventQuery(end), cudaErrorNotReady);
  cudaStreamWaitEvent(b, end, 0);
  axpy(1, y, x, 1000, b);  // after the first: 1 + 2
  EXPECT_EQ(cudaStreamSynchronize(b), cudaSuccess);
  EXPECT_EQ(host_of(x, 1)[0], 3.0f);
  EXPECT_EQ(cudaEventSynchronize(untimed), cudaSuccess);
  EXPECT_EQ(cudaEventQuery(end), cudaSuccess);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, end), cudaSuccess);
  EXPECT_GT(ms, 0);
  EXPECT_EQ(cudaEventElapsedTime(&ms, start, untimed), cudaErrorInvalidResourceHandle);
  cudaGetLastError();
  for (cudaEvent_t e : {start, end, untimed}) cudaEventDestroy(e);
  for (cudaStream_t s : {a, b}) cudaStreamDestroy(s);
  cudaFree(x), cudaFree(y);
}

TEST_F(Runtime, ErrorsHaveNames) {
  EXPECT_STREQ(cudaGetErrorName(cudaSuccess), "cudaSuccess");
  EXPECT_STREQ(cudaGetErrorName(cudaErrorMemoryAllocation), "cudaErrorMemoryAllocation");
  EXPECT_STREQ(cudaGetErrorString(cudaErrorMemoryAllocation), "out of memory");
  EXPECT_STREQ(cudaGetErrorName(static_cast<cudaError_t>(12345)), "unrecognized error code");
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, 1ull << 40), cudaErrorMemoryAllocation);
  EXPECT_EQ(p, nullptr);
  EXPECT_EQ(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaErrorMemoryAllocation);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}
TEST_F(Runtime, AFailedKernelIsSticky) {
  settings().print_findings = false;
  float* y = ones(4);
  axpy(1, y, y, 100, nullptr);  // past the end
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
  EXPECT_EQ(cudaMemset(y, 0, 4), cudaErrorLaunchFailure);
  EXPECT_EQ(only_finding().kind, Kind::kOutOfBounds);  // and taking it clears the error
  EXPECT_EQ(cudaMemset(y, 0, 4), cudaSuccess);
  cudaFree(y);
}

TEST_F(Runtime, AttributesOfDevices) {
  struct Want {
    const char* name;
    int minor, sms, optin;
  };
  for (Want w : {Want{"sm_80", 0, 108, 163 << 10}, Want{"sm_86", 6, 80, 99 << 10},
                 Want{"sm_89", 9, 128, 99 << 10}, Want{"sm_90", 0, 132, 227 << 10}}) {
    settings().device = described_device(w.name);
    int v = 0;
    cudaDeviceProp p;
    ASSERT_EQ(cudaGetDeviceProperties(&p, 0), cudaSuccess);
    EXPECT_EQ(p.minor, w.minor);
    EXPECT_EQ(p.multiProcessorCount, w.sms);
    cudaDeviceGetAttribute(&v, cudaDevAttrMaxSharedMemoryPerBlockOptin, 0);
    EXPECT_EQ(v, w.optin);
    cudaDeviceGetAttribute(&v, cudaDevAttrMultiProcessorCount, 0);
    EXPECT_EQ(v, w.sms);
    cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, 0);
    EXPECT_EQ(v, 32);
  }
  int v = 0;
  EXPECT_EQ(cudaDeviceGetAttribute(&v, cudaDevAttrWarpSize, 1), cudaErrorInvalidDevice);
  cudaGetLastError();
}
TEST_F(Runtime, AttributesAndOccupancyOfKernels) {
  const void* k = flash_function();
  cudaFuncAttributes a;
  ASSERT_EQ(cudaFuncGetAttributes(&a, k), cudaSuccess);
  EXPECT_EQ(a.maxThreadsPerBlock, 128);  // __launch_bounds__
  EXPECT_EQ(a.sharedSizeBytes, 0u);
  EXPECT_EQ(a.maxDynamicSharedSizeBytes, 48 << 10);
  // 128 threads of 64 registers: 8 Ki registers, 40 KiB + 1 KiB of shared memory of 164.
  int n = 0;
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 128, 40 << 10), cudaSuccess);
  EXPECT_EQ(n, 4);
  ASSERT_EQ(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, k, 128, 0), cudaSuccess);
  EXPECT_EQ(n, 8);  // by registers
  size_t bytes = 0;
  ASSERT_EQ(cudaOccupancyAvailableDynamicSMemPerBlock(&bytes, k, 4, 128), cudaSuccess);
  EXPECT_EQ(bytes, (164u / 4 - 1) << 10);
  ASSERT_EQ(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10),
            cudaSuccess);
  cudaFuncGetAttributes(&a, k);
  EXPECT_EQ(a.maxDynamicSharedSizeBytes, 100 << 10);
  EXPECT_EQ(cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 164 << 10),
            cudaErrorInvalidValue);
  settings().n_devices = 2;  // an attribute is that of the function on one device
  cudaSetDevice(1);
  cudaFuncGetAttributes(&a, k);
  EXPECT_EQ(a.maxDynamicSharedSizeBytes, 48 << 10);
  cudaSetDevice(0);
  settings().n_devices = 1;
  cudaFuncSetAttribute(k, cudaFuncAttributeMaxDynamicSharedMemorySize, 48 << 10);
  EXPECT_EQ(cudaFuncGetAttributes(&a, "no kernel"), cudaErrorInvalidDeviceFunction);
  cudaGetLastError();
}

TEST_F(Runtime, SeveralDevices) {
  settings().n_devices = 2;
  int n = 0, can = 0, current = -1;
  cudaGetDeviceCount(&n);
  EXPECT_EQ(n, 2);
  EXPECT_EQ(cudaSetDevice(2), cudaErrorInvalidDevice);
  cudaGetLastError();
  float* x0 = ones(32);
  ASSERT_EQ(cudaSetDevice(1), cudaSuccess);
  cudaGetDevice(&current);
  EXPECT_EQ(current, 1);
  float* y1 = ones(32);
  cudaPointerAttributes a;
  cudaPointerGetAttributes(&a, y1);
  EXPECT_EQ(a.device, 1);
  cudaDeviceCanAccessPeer(&can, 1, 0);
  EXPECT_EQ(can, 1);

  settings().print_findings = false;  // device 1 reads device 0's memory without leave
  axpy(1, x0, y1, 32, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
  EXPECT_EQ(only_finding().kind, Kind::kPeerAccess);
  ASSERT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaSuccess);
  EXPECT_EQ(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
  cudaGetLastError();
  axpy(1, x0, y1, 32, nullptr);
  EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
  EXPECT_EQ(host_of(y1, 32), std::vector<float>(32, 2.0f));
  EXPECT_EQ(cudaDeviceDisablePeerAccess(0), cudaSuccess);

  ASSERT_EQ(cudaMemcpyPeer(x0, 0, y1, 1, 64), cudaSuccess);  // half of it
  EXPECT_EQ(host_of(x0, 32)[15], 2.0f);
  EXPECT_EQ(host_of(x0, 32)[16], 1.0f);

  cudaStream_t s1;
  cudaStreamCreateWithFlags(&s1, cudaStreamNonBlocking);
  cudaSetDevice(0);
  axpy(1, x0, x0, 32, s1);  // a stream of another device
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(only_finding().kind, Kind::kRuntimeUse);
  cudaStreamDestroy(s1);
  cudaFree(x0), cudaFree(y1);
}

}  // namespace
}  // namespace pf::ptxvm
