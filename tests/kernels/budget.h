#pragma once

#include <gtest/gtest.h>

#include <string>

#include "ptxvm/ptxvm.h"

namespace pf {

// What the kernels whose name contains `name` did since clear_measures(), each on its own.
struct Budget {
  double reached = 0.95;  // of the PTX instructions, at least
  double wavefronts = 1;  // of shared memory, over the ideal, at most
  double sectors = 1;     // of global memory, over the ideal, at most
};
inline void expect_within(const Budget& budget, const std::string& name) {
  int n = 0;
  for (const ptxvm::Measure& m : ptxvm::kernel_measures()) {
    if (m.kernel.find(name) == std::string::npos) continue;
    ++n;
    EXPECT_GE(static_cast<double>(m.n_executed),
              budget.reached * static_cast<double>(m.n_instructions))
        << m.kernel << "\n"
        << ptxvm::unreached_text(m.kernel).substr(0, 2000);
    EXPECT_LE(static_cast<double>(m.wavefronts),
              budget.wavefronts * static_cast<double>(m.wavefronts_ideal))
        << m.kernel;
    EXPECT_LE(static_cast<double>(m.sectors), budget.sectors * static_cast<double>(m.sectors_ideal))
        << m.kernel;
  }
  EXPECT_GT(n, 0) << "no kernel called " << name << " ran";
}

// A test that runs under several schedules of the machine and ends without a finding.
class Scheduled : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { ptxvm::settings().seed = GetParam(); }
  void TearDown() override {
    ptxvm::settings().seed = 0;
    EXPECT_TRUE(ptxvm::take_findings().empty());
  }
};

}  // namespace pf
