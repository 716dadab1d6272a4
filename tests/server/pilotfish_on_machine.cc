// Part of `pilotfish` linked with the PTX machine in place of a CUDA runtime (cuda_server_test.cc):
// SIGUSR1 makes the device fail, as an uncorrectable memory error would: from then on every call
// that waits for it gets the error.
#include <pthread.h>
#include <signal.h>

#include <thread>

#include "ptxvm/runtime.h"

namespace pf::ptxvm {
namespace {

// Blocked before there is any other thread, so that this one alone hears it.
[[maybe_unused]] const bool listens = [] {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  std::thread([set] {
    int signal = 0;
    sigwait(&set, &signal);
    PF_LOCK;
    rt.last = rt.sticky = cudaErrorECCUncorrectable;
  }).detach();
  return true;
}();

}  // namespace
}  // namespace pf::ptxvm
