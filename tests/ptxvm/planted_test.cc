// Truth: faults planted by hand; the check that is meant for each must find it, at its line, under
// every schedule.
#include <cuda_runtime_api.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <set>
#include <string>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

// The lines of the kernel's `// BUG` marks.
std::set<int> marked_lines(const std::string& path, const std::string& kernel) {
  std::ifstream file(std::string(PF_SOURCE_DIR) + "/tests/ptxvm/samples/" + path);
  std::string line;
  std::set<int> marks;
  bool inside = false;
  for (int n = 1; std::getline(file, line); ++n) {
    inside |= line.find(" " + kernel + "(") != std::string::npos;
    if (inside && line.find("// BUG") != std::string::npos) marks.insert(n);
    if (inside && line[0] == '}') break;
  }
  return marks;
}

struct Quiet {
  Quiet() { settings().print_findings = false; }
  ~Quiet() { settings().print_findings = true; }
};

void expect_found(const std::vector<Planted>& list, const std::string& path, uint32_t seed) {
  Quiet quiet;
  settings().seed = seed;
  for (const Planted& p : list) {
    p.run();
    bool failed = cudaPeekAtLastError() != cudaSuccess;
    failed |= cudaDeviceSynchronize() != cudaSuccess;
    EXPECT_TRUE(failed) << p.name;
    std::vector<Finding> found = take_findings();
    ASSERT_EQ(found.size(), 1u) << p.name << " with seed " << seed;
    std::string kind = kind_name(found[0].kind);
    EXPECT_TRUE(kind == p.kind || (p.or_kind != nullptr && kind == p.or_kind))
        << p.name << " with seed " << seed << ": " << to_text(found[0]);
    if (p.has_line) {
      EXPECT_EQ(marked_lines(path, p.name).count(found[0].line), 1u)
          << p.name << " with seed " << seed << ": " << to_text(found[0]);
      EXPECT_THAT(found[0].file, testing::HasSubstr(path)) << p.name;
    }
  }
  settings().seed = 0;
}

class PlantedFaults : public testing::TestWithParam<uint32_t> {};
TEST_P(PlantedFaults, FaultsOfMemoryAndLaunches) {
  expect_found(planted_memory(), "planted.cu", GetParam());
}
TEST_P(PlantedFaults, FaultsOfOrder) {
  expect_found(planted_order(), "planted_order.cu", GetParam());
}
INSTANTIATE_TEST_SUITE_P(Schedules, PlantedFaults, testing::Range(0u, 20u));

TEST(PlantedCount, ThereAreManyOfThem) {
  EXPECT_GE(planted_memory().size() + planted_order().size(), 25u);
}

// Each misuse of the runtime is one finding whose text says what was wrong.
void expect_misuse(void (*use)(), const std::string& says) {
  Quiet quiet;
  use();
  std::vector<Finding> found = take_findings();
  ASSERT_EQ(found.size(), 1u) << says;
  EXPECT_EQ(found[0].kind, Kind::kRuntimeUse) << to_text(found[0]);
  EXPECT_THAT(found[0].message, testing::HasSubstr(says));
}
void* device_bytes(size_t n) {
  void* p = nullptr;
  EXPECT_EQ(cudaMalloc(&p, n), cudaSuccess);
  return p;
}
TEST(Misuse, CopyPastTheEndOfAnAllocation) {
  expect_misuse(
      [] {
        char host[128] = {};
        void* p = device_bytes(100);
        EXPECT_NE(cudaMemcpy(p, host, 128, cudaMemcpyHostToDevice), cudaSuccess);
        cudaGetLastError();
      },
      "past its end");
}
TEST(Misuse, CopyOfMemoryThatNobodyWrote) {
  expect_misuse(
      [] {
        char host[64];
        void* p = device_bytes(64);
        cudaMemset(p, 0, 32);
        cudaMemcpy(host, p, 64, cudaMemcpyDeviceToHost);
      },
      "reads byte 32 of allocation");
}
TEST(Misuse, FreedTwice) {
  expect_misuse(
      [] {
        void* p = device_bytes(64);
        EXPECT_EQ(cudaFree(p), cudaSuccess);
        EXPECT_EQ(cudaFree(p), cudaErrorInvalidValue);
      },
      "no live allocation");
}
TEST(Misuse, FreedInTheMiddle) {
  expect_misuse([] { EXPECT_NE(cudaFree(static_cast<char*>(device_bytes(64)) + 16), cudaSuccess); },
                "no live allocation");
}
TEST(Misuse, CopyFromFreedMemory) {
  expect_misuse(
      [] {
        char host[64];
        void* p = device_bytes(64);
        cudaFree(p);
        EXPECT_NE(cudaMemcpy(host, p, 64, cudaMemcpyDeviceToHost), cudaSuccess);
      },
      "which was freed");
}
TEST(Misuse, PinnedMemoryFreedAsWhatItIsNot) {
  expect_misuse(
      [] {
        char host[8];
        EXPECT_NE(cudaFreeHost(host), cudaSuccess);
      },
      "no pinned memory");
}

TEST(HostAccess, EndsTheProgramWithAReason) {
  int* p = static_cast<int*>(device_bytes(64));
  EXPECT_DEATH(*static_cast<volatile int*>(p) = 1, "host-access: the host touches device memory");
}

}  // namespace
}  // namespace pf::ptxvm
