#include "cli/stacks.h"

#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

namespace pf {
namespace {

constexpr int kSignal = SIGUSR2;
constexpr int kMaxFrames = 64;
std::atomic<int> n_printed{0};  // by the signal handler

void print_own_stack(int) {
  print_this_stack();
  n_printed.fetch_add(1);
}

std::string name_of(const std::filesystem::path& task) {
  std::string name;
  std::getline(std::ifstream(task / "comm"), name);
  return name;
}

}  // namespace

void print_this_stack() {
  void* frames[kMaxFrames];
  backtrace_symbols_fd(frames, backtrace(frames, kMaxFrames), STDERR_FILENO);
}

void prepare_stacks() {
  void* frame[1];
  backtrace(frame, 1);  // loads what it needs now: a signal handler must not
  struct sigaction action {};
  action.sa_handler = print_own_stack;
  action.sa_flags = SA_RESTART;
  sigaction(kSignal, &action, nullptr);
}

void print_all_stacks() {
  std::error_code error;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task", error)) {
    std::string id = task.path().filename().string();
    dprintf(STDERR_FILENO, "thread %s (%s)\n", id.c_str(), name_of(task.path()).c_str());
    int before = n_printed.load();
    if (syscall(SYS_tgkill, getpid(), std::atoi(id.c_str()), kSignal) != 0) continue;
    for (int i = 0; i < 100 && n_printed.load() == before; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace pf
