// Truth: faults planted by hand; the check that is meant for each must find it, at its line.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>

#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

// The line of the kernel's `// BUG` mark.
int marked_line(const std::string& kernel) {
  std::ifstream file(std::string(PF_SOURCE_DIR) + "/tests/ptxvm/samples/planted.cu");
  std::string line;
  bool inside = false;
  for (int n = 1; std::getline(file, line); ++n) {
    inside |= line.find(" " + kernel + "(") != std::string::npos;
    if (inside && line.find("// BUG") != std::string::npos) return n;
  }
  return -1;
}

TEST(Planted, EachIsFoundByItsCheckAtItsLine) {
  settings().print_findings = false;
  for (const Planted& p : planted()) {
    p.run();
    EXPECT_NE(cudaDeviceSynchronize(), cudaSuccess) << p.name;
    auto found = take_findings();
    ASSERT_EQ(found.size(), 1u) << p.name;
    EXPECT_STREQ(kind_name(found[0].kind), p.kind) << p.name << ": " << to_text(found[0]);
    EXPECT_EQ(found[0].line, marked_line(p.name)) << p.name << ": " << to_text(found[0]);
  }
  settings().print_findings = true;
}

}  // namespace
}  // namespace pf::ptxvm
