// Truth: the CUDA Runtime API reference on capture and graphs.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    cudaStreamCreateWithFlags(&s_, cudaStreamNonBlocking);
    for (float** p : {&x_, &y_}) {
      cudaMalloc(reinterpret_cast<void**>(p), 400);
      fill(*p, 1);
    }
  }
  void TearDown() override {
    cudaStreamDestroy(s_);
    cudaFree(x_), cudaFree(y_);
    EXPECT_TRUE(take_findings().empty());
    settings().print_findings = true;
  }
  void fill(float* p, float v) {
    std::vector<float> host(100, v);
    cudaMemcpy(p, host.data(), 400, cudaMemcpyHostToDevice);
  }
  float value(const float* p) {
    float v = -1;
    cudaMemcpy(&v, p + 99, 4, cudaMemcpyDeviceToHost);
    return v;
  }
  // y += a x, n elements, `times` times.
  cudaGraph_t captured(float a, int n = 100, int times = 1) {
    cudaGraph_t g = nullptr;
    EXPECT_EQ(cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal), cudaSuccess);
    for (int i = 0; i < times; ++i) axpy(a, x_, y_, n, s_);
    EXPECT_EQ(cudaStreamEndCapture(s_, &g), cudaSuccess);
    return g;
  }
  cudaStream_t s_ = nullptr;
  float *x_ = nullptr, *y_ = nullptr;
};

TEST_F(Graphs, CaptureRunsNothing) {
  cudaGraph_t g = captured(1, 100, 3);
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 1);
  size_t n = 0;
  cudaGraphGetNodes(g, nullptr, &n);
  ASSERT_EQ(n, 3u);
  cudaGraphNode_t nodes[3];
  cudaGraphGetNodes(g, nodes, &n);
  cudaGraphNodeType type;
  cudaGraphNodeGetType(nodes[2], &type);
  EXPECT_EQ(type, cudaGraphNodeTypeKernel);
  cudaGraphExec_t e;
  ASSERT_EQ(cudaGraphInstantiate(&e, g, 0), cudaSuccess);
  cudaGraphDestroy(g);  // the executable lives on
  EXPECT_EQ(cudaGraphUpload(e, s_), cudaSuccess);
  uint64_t before = n_launches();
  cudaGraphLaunch(e, s_);
  EXPECT_EQ(value(y_), 1);  // the default stream does not wait for a non-blocking one
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 4);
  EXPECT_EQ(n_launches() - before, 3u);
  cudaGraphExecDestroy(e);
}
TEST_F(Graphs, UpdateChangesArguments) {
  cudaGraph_t one = captured(1), ten = captured(10), two_kernels = captured(1, 100, 2);
  cudaGraphExec_t e;
  cudaGraphInstantiateWithFlags(&e, one, 0);
  cudaGraphLaunch(e, s_);  // queued: keeps a = 1
  cudaGraphExecUpdateResultInfo info;
  ASSERT_EQ(cudaGraphExecUpdate(e, ten, &info), cudaSuccess);
  EXPECT_EQ(info.result, cudaGraphExecUpdateSuccess);
  cudaGraphLaunch(e, s_);
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 12);
  EXPECT_EQ(cudaGraphExecUpdate(e, two_kernels, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorTopologyChanged);
  cudaGetLastError();
  cudaGraphLaunch(e, s_);  // a refused update leaves the executable as it was
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 22);
  for (cudaGraph_t g : {one, ten, two_kernels}) cudaGraphDestroy(g);
  cudaGraphExecDestroy(e);
}
TEST_F(Graphs, UpdateRefusesAnotherKernel) {
  cudaGraph_t g = captured(1), other = nullptr;
  cudaGraphExec_t e;
  cudaGraphInstantiate(&e, g, 0);
  cudaStreamBeginCapture(s_, cudaStreamCaptureModeThreadLocal);
  cudaMemsetAsync(y_, 0, 400, s_);
  cudaStreamEndCapture(s_, &other);
  cudaGraphExecUpdateResultInfo info;
  EXPECT_EQ(cudaGraphExecUpdate(e, other, &info), cudaErrorGraphExecUpdateFailure);
  EXPECT_EQ(info.result, cudaGraphExecUpdateErrorNodeTypeChanged);
  cudaGetLastError();
  cudaGraphDestroy(g), cudaGraphDestroy(other);
  cudaGraphExecDestroy(e);
}
TEST_F(Graphs, ParametersOfOneNode) {
  cudaGraph_t g = captured(1);
  cudaGraphExec_t e;
  cudaGraphInstantiate(&e, g, 0);
  cudaGraphNode_t node;
  size_t n = 1;
  cudaGraphGetNodes(g, &node, &n);
  cudaKernelNodeParams p;
  ASSERT_EQ(cudaGraphKernelNodeGetParams(node, &p), cudaSuccess);
  EXPECT_EQ(p.blockDim.x, 128u);
  float five = 5;
  void* args[] = {&five, p.kernelParams[1], p.kernelParams[2], p.kernelParams[3]};
  p.kernelParams = args;
  ASSERT_EQ(cudaGraphExecKernelNodeSetParams(e, node, &p), cudaSuccess);
  cudaGraphLaunch(e, s_);
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 6);
  cudaGraphDestroy(g);
  cudaGraphExecDestroy(e);
}
TEST_F(Graphs, CopiesAndSetsAreNodes) {
  float* pinned = nullptr;
  cudaMallocHost(reinterpret_cast<void**>(&pinned), 400);
  cudaGraph_t g;
  cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal);
  cudaMemsetAsync(y_, 0, 400, s_);
  cudaMemcpyAsync(x_, pinned, 400, cudaMemcpyHostToDevice, s_);
  axpy(2, x_, y_, 100, s_);
  cudaMemcpyAsync(pinned + 1, y_, 4, cudaMemcpyDeviceToHost, s_);
  ASSERT_EQ(cudaStreamEndCapture(s_, &g), cudaSuccess);
  cudaGraphExec_t e;
  cudaGraphInstantiate(&e, g, 0);
  for (float v : {3.0f, 4.0f}) {  // the source is read at each replay
    pinned[0] = v;
    cudaGraphLaunch(e, s_);
    cudaStreamSynchronize(s_);
    EXPECT_EQ(pinned[1], 2 * v);
  }
  cudaGraphDestroy(g);
  cudaGraphExecDestroy(e);
  cudaFreeHost(pinned);
}

// What a capture forbids ends it.
TEST_F(Graphs, ForbiddenCallsBreakTheCapture) {
  void* p = nullptr;
  cudaGraph_t g;
  for (int i = 0; i < 4; ++i) {
    ASSERT_EQ(cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal), cudaSuccess);
    cudaError_t e = i == 0   ? cudaMalloc(&p, 16)
                    : i == 1 ? cudaMemcpy(x_, y_, 400, cudaMemcpyDeviceToDevice)
                    : i == 2 ? cudaDeviceSynchronize()
                             : cudaStreamSynchronize(s_);
    EXPECT_EQ(e, cudaErrorStreamCaptureUnsupported) << i;
    cudaStreamCaptureStatus status;
    cudaStreamIsCapturing(s_, &status);
    EXPECT_EQ(status, cudaStreamCaptureStatusInvalidated) << i;
    EXPECT_EQ(cudaStreamEndCapture(s_, &g), cudaErrorStreamCaptureInvalidated) << i;
    cudaGetLastError();
  }
  // A relaxed capture lets an allocation pass.
  ASSERT_EQ(cudaStreamBeginCapture(s_, cudaStreamCaptureModeRelaxed), cudaSuccess);
  EXPECT_EQ(cudaMalloc(&p, 16), cudaSuccess);
  EXPECT_EQ(cudaStreamEndCapture(s_, &g), cudaSuccess);
  cudaGraphDestroy(g);
  cudaFree(p);
}
// Streams of two devices, forked from the first and joined by nothing but an event; its launches
// run on their own devices again.
TEST_F(Graphs, OneGraphOverTwoDevices) {
  settings().n_devices = 2;
  cudaStream_t other;
  cudaEvent_t forked, joined;
  float *x, *y;
  cudaEventCreate(&forked);
  cudaSetDevice(1);
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&joined);
  for (float** p : {&x, &y}) {
    cudaMalloc(reinterpret_cast<void**>(p), 400);
    fill(*p, 1);
  }
  cudaSetDevice(0);
  cudaGraph_t g;
  cudaStreamBeginCapture(s_, cudaStreamCaptureModeThreadLocal);
  cudaEventRecord(forked, s_);
  axpy(1, x_, y_, 100, s_);
  cudaSetDevice(1);
  cudaStreamWaitEvent(other, forked, 0);
  axpy(2, x, y, 100, other);
  cudaEventRecord(joined, other);
  cudaSetDevice(0);
  cudaStreamWaitEvent(s_, joined, 0);
  ASSERT_EQ(cudaStreamEndCapture(s_, &g), cudaSuccess);
  cudaGraphExec_t e;
  ASSERT_EQ(cudaGraphInstantiate(&e, g, 0), cudaSuccess);
  cudaGraphLaunch(e, s_);
  cudaGraphLaunch(e, s_);
  cudaStreamSynchronize(s_);
  EXPECT_EQ(value(y_), 3);
  EXPECT_EQ(value(y), 5);
  cudaGraphExecDestroy(e);
  cudaGraphDestroy(g);
  cudaStreamDestroy(other);
  cudaEventDestroy(forked), cudaEventDestroy(joined);
  cudaFree(x), cudaFree(y);
  settings().n_devices = 1;
}

TEST_F(Graphs, UnjoinedAndForeignWork) {
  cudaStream_t other;
  cudaEvent_t event;
  cudaGraph_t g;
  cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
  cudaEventCreate(&event);
  cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal);
  axpy(1, x_, y_, 100, s_);
  cudaEventRecord(event, s_);
  EXPECT_EQ(cudaEventQuery(event), cudaErrorCapturedEvent);
  cudaStreamWaitEvent(other, event, 0);
  axpy(1, y_, x_, 100, other);  // forked, never joined
  EXPECT_EQ(cudaStreamEndCapture(s_, &g), cudaErrorStreamCaptureUnjoined);

  cudaEventRecord(event, other);  // outside of any capture
  cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal);
  EXPECT_EQ(cudaStreamWaitEvent(s_, event, 0), cudaErrorStreamCaptureIsolation);
  EXPECT_EQ(cudaStreamBeginCapture(s_, cudaStreamCaptureModeGlobal), cudaErrorIllegalState);
  EXPECT_EQ(cudaStreamEndCapture(other, &g), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(cudaStreamEndCapture(s_, &g), cudaSuccess);
  EXPECT_EQ(cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal),
            cudaErrorStreamCaptureUnsupported);
  cudaGetLastError();
  cudaGraphDestroy(g);
  cudaEventDestroy(event);
  cudaStreamDestroy(other);
}

}  // namespace
}  // namespace pf::ptxvm
