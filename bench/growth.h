#pragma once

#include "bench/report.h"

namespace pf {

// How the host's work grows with its size: the exponent of cost in size for everything on a path
// that a client can lengthen, and the host's time of one step at 1..1,024 sequences.
// Single-threaded CPU time, so that neighbours on the machine do not count. `quick`: small sizes.
void bench_growth(bool quick, Report* report);

}  // namespace pf
