#include "base/cpus.h"

#include <sched.h>

#include <algorithm>

namespace pf {

int32_t n_usable_cpus() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
  return std::max(1, CPU_COUNT(&set));
}

}  // namespace pf
