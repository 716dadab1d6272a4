#include "cli/last_words.h"

#include <fcntl.h>
#include <linux/limits.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <exception>
#include <initializer_list>
#include <thread>

#include "cli/commands.h"
#include "cli/stacks.h"

namespace pf {
namespace {

// For handlers, which have no other way to them.
std::atomic<Server*> dying_server{nullptr};
char termination_log[PATH_MAX] = "";

// One line to each reader in one call, so that no other thread's comes between.
void say_last(std::initializer_list<const char*> parts) {
  char line[PATH_MAX + 512];
  size_t n = 0;
  for (const char* part : parts) {
    size_t more = std::min(std::strlen(part), sizeof(line) - 1 - n);
    std::memcpy(line + n, part, more);
    n += more;
  }
  line[n++] = '\n';
  int file = termination_log[0] == '\0' ? -1 : open(termination_log, O_WRONLY | O_APPEND);
  for (int fd : {STDERR_FILENO, file})
    if (fd >= 0 && write(fd, line, n) < 0) continue;  // there is nobody left to tell
}

void on_terminate() {
  if (std::exception_ptr e = std::current_exception()) {
    try {
      std::rethrow_exception(e);
    } catch (const std::exception& known) {
      die_of_fault(known.what());
    } catch (...) {
    }
  }
  die_of_fault("a check failed; the line above says where");
}

// Of libraries, as gRPC does without memory.
void on_abort(int) {
  print_this_stack();
  say_last({"pilotfish: fault: a library gave up (abort); the stack above says which"});
  _exit(kFault);
}

// The core that follows holds more, where cores are kept.
void on_bad_address(int signal_number) {
  print_this_stack();
  say_last({"pilotfish: fault: memory that is not there was used; the stack above says where"});
  signal(signal_number, SIG_DFL);
  raise(signal_number);
}

}  // namespace

void set_termination_log(const std::string& path) {
  if (path.size() < sizeof(termination_log)) std::strcpy(termination_log, path.c_str());
}

void set_dying_server(Server* server) { dying_server.store(server); }

void die_of_fault(const char* words) {
  if (Server* server = dying_server.exchange(nullptr)) {
    server->set_not_serving();
    std::this_thread::sleep_for(std::chrono::milliseconds(100));  // for those who watch to hear it
  }
  say_last({"pilotfish: fault: ", words});
  _exit(kFault);
}

void die_of_lost_bytes(const char* path) {
  say_last({"pilotfish: ", path,
            ": its bytes are gone: the file was cut short while it was in use, or its disk fails; "
            "put it back whole and start again"});
  _exit(kUsage);
}

void end_on_faults(ServerOptions* options) {
  options->watch.on_hang = [](double) {
    print_all_stacks();
    die_of_fault("the engine hangs");
  };
  options->probe.on_deaf = [] { die_of_fault("new connections are not answered"); };
  std::set_terminate(on_terminate);
  signal(SIGABRT, on_abort);
  signal(SIGSEGV, on_bad_address);
}

}  // namespace pf
