#pragma once

#include <string>

#include "server/server.h"

namespace pf {

// How the process ends when it cannot go on: what it says last goes to stderr and, while it serves,
// into the file in which a supervisor looks for the reason of a restart.

// That file (Kubernetes: terminationMessagePath); written only if it is there. Once, before there
// are threads.
void set_termination_log(const std::string& path);

// Whose health turns before a fault ends the process; null: nobody's. Any thread.
void set_dying_server(Server* server);

// A bug, or a device error: exit 70, and the supervisor starts the process again.
[[noreturn]] void die_of_fault(const char* words);

// For on_lost_bytes (base): the file is at fault, so exit 2. Async-signal-safe.
[[noreturn]] void die_of_lost_bytes(const char* path);

// Faults that the server finds, and those that end in std::terminate or abort, end the process so;
// a bad address too, but by its signal. A hang is said with the stacks of all threads. Requires:
// prepare_stacks (cli/stacks.h).
void end_on_faults(ServerOptions* options);

}  // namespace pf
