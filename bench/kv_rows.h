#pragma once

#include "bench/report.h"

namespace pf {

// Blocks that a scripted engine holds and copies; counts, no times. Goals C7.
void bench_kv(Report* report);

}  // namespace pf
