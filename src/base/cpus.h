#pragma once

#include <cstdint>

namespace pf {

// CPUs that this process may run on (its affinity, not the machine's count); at least 1.
int32_t n_usable_cpus();

}  // namespace pf
