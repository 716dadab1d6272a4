// On a real device there is no machine to set up or to measure: its settings do nothing, its
// findings are the runtime's errors, and a test that measures does not belong here
// (machine_only.txt).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include "ptxvm/host_calls.h"
#include "ptxvm/measure.h"
#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {

bool on_machine() { return false; }

Device described_device(std::string_view) { return {}; }  // nothing reads it here
Settings& settings() {
  static Settings unused;
  return unused;
}

std::vector<Finding> take_findings() {
  cudaError_t status = cudaDeviceSynchronize();
  if (status == cudaSuccess) status = cudaGetLastError();
  if (status == cudaSuccess) return {};
  Finding f;
  f.kind = Kind::kRuntimeUse;
  f.message = cudaGetErrorString(status);
  return {f};
}

std::string to_text(const Finding& finding) { return finding.message; }

void clear_measures() {
  ADD_FAILURE() << "this test measures the PTX machine: leave it out on a device";
}
void clear_host_calls() { clear_measures(); }
HostCalls host_calls() { return {}; }
void set_graph_node_bytes(uint64_t) {}
Measure measure(std::string_view) { return {}; }
std::vector<Measure> kernel_measures() { return {}; }
std::string unreached_text(std::string_view) { return ""; }
std::vector<Launched> take_launches() { return {}; }
uint64_t n_launches() { return 0; }

namespace {

// Without a device every test is skipped, and says why.
class NeedsDevice : public testing::Environment {
 public:
  void SetUp() override {
    int n = 0;
    cudaError_t status = cudaGetDeviceCount(&n);
    if (status != cudaSuccess || n == 0)
      GTEST_SKIP() << "SKIPPED: no CUDA device (" << cudaGetErrorString(status) << ")";
  }
};
[[maybe_unused]] const testing::Environment* const needs_device =
    testing::AddGlobalTestEnvironment(new NeedsDevice);

}  // namespace
}  // namespace pf::ptxvm
