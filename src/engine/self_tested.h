#pragma once

#include <string>
#include <vector>

namespace pf {

// What the test at the start leaves behind.
struct SelfTested {
  std::vector<double> step_cost_ratios;  // by drafter; 0 where nothing was measured
  std::string skipped;                   // why nothing was run; empty: it ran and passed
};

}  // namespace pf
