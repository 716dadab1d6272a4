#pragma once

#include <string>
#include <vector>

#include "backend/cuda/launch_list.h"
#include "ptxvm/ptxvm.h"

namespace pf {

// Launches as text, to compare what the PTX machine saw (since the last call) with what a list
// says.
inline std::string text_of_launch(const std::string& kernel, int64_t x, int64_t y, int64_t z) {
  return kernel + " (" + std::to_string(x) + ", " + std::to_string(y) + ", " + std::to_string(z) +
         ")";
}

// The kernel's own name, without namespaces and template arguments.
inline std::string plain_name(const std::string& name) {
  size_t end = name.find("_kernel") + 7, begin = end;
  while (begin > 0 && (std::isalnum(name[begin - 1]) || name[begin - 1] == '_')) --begin;
  return name.substr(begin, end - begin);
}

inline std::vector<std::string> launched() {
  std::vector<std::string> out;
  for (const ptxvm::Launched& l : ptxvm::take_launches())
    out.push_back(text_of_launch(plain_name(l.kernel), l.grid.x, l.grid.y, l.grid.z));
  return out;
}

inline std::vector<std::string> listed(const LaunchList& list) {
  std::vector<std::string> out;
  for (const kernels::LaunchCost& c : list.launches())
    out.push_back(text_of_launch(c.kernel, c.grid[0], c.grid[1], c.grid[2]));
  return out;
}

}  // namespace pf
