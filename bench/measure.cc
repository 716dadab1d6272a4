#include "bench/measure.h"

#include <pthread.h>
#include <sched.h>

#include <chrono>
#include <ctime>

#include "base/check.h"

namespace pf {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double thread_cpu_s() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double rate_of_slice(const Load& load, double slice_s) {
  double began = now_s(), work = 0, took = 0;
  do {
    work += load();
    took = now_s() - began;
  } while (took < slice_s);
  return work / took;
}

std::vector<Round> alternate(const Protocol& protocol, ThreadPool& pool, const Load& probe,
                             std::span<const Load> subjects) {
  check(!subjects.empty(), "nothing to measure");
  pool.begin();
  rate_of_slice(probe, protocol.slice_s);
  for (const Load& s : subjects) rate_of_slice(s, protocol.slice_s);
  std::vector<Round> rounds;
  int n_steady = 0;
  double before = rate_of_slice(probe, protocol.slice_s);
  while (n_steady < protocol.n_rounds && static_cast<int>(rounds.size()) < 2 * protocol.n_rounds) {
    Round round{{before}, {}};
    for (const Load& s : subjects) {
      round.subjects.push_back(rate_of_slice(s, protocol.slice_s));
      round.probes.push_back(rate_of_slice(probe, protocol.slice_s));
    }
    before = round.probes.back();
    n_steady += is_steady(round.probes);
    rounds.push_back(std::move(round));
  }
  pool.end();
  return rounds;
}

std::vector<int> usable_cpus() {
  std::vector<int> cpus;
  cpu_set_t allowed;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) != 0) return cpus;
  for (int c = 0; c < CPU_SETSIZE; ++c)
    if (CPU_ISSET(c, &allowed)) cpus.push_back(c);
  return cpus;
}

bool pin_threads(ThreadPool& pool, std::span<const int> cpus) {
  if (static_cast<int>(cpus.size()) < pool.size()) return false;
  pool.run([&](int thread) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpus[static_cast<size_t>(thread)], &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  });
  return true;
}

}  // namespace pf
