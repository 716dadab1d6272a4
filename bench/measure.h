#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/statistics.h"

namespace pf {

// Something that can be run piece by piece. A piece takes some milliseconds at most and answers how
// much work it did, in whatever unit the load counts in (bytes, FLOPs, passes).
using Load = std::function<double()>;

struct Protocol {
  int n_rounds = 30;       // steady rounds wanted; at most twice as many are run
  double slice_s = 0.010;  // pieces are run until so much time has passed
};

// Runs the load for one slice; work per second.
double rate_of_slice(const Load& load, double slice_s);

// Probe and subjects in turns, after one slice of each for warming up. Workers of `pool` spin
// meanwhile. Requires: subjects is not empty.
std::vector<Round> alternate(const Protocol& protocol, ThreadPool& pool, const Load& probe,
                             std::span<const Load> subjects);

// The CPUs that the calling thread may use, to be asked before any thread is pinned.
std::vector<int> usable_cpus();

// Puts thread i of the pool (0: the caller) on cpus[i]. False: there are fewer CPUs than threads;
// then nothing is pinned.
bool pin_threads(ThreadPool& pool, std::span<const int> cpus);

double now_s();         // the steady clock
double thread_cpu_s();  // time that the calling thread has run

}  // namespace pf
