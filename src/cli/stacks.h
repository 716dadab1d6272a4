#pragma once

namespace pf {

// Makes print_all_stacks possible: takes a signal for it. Once, before threads that matter start.
void prepare_stacks();

// Writes where the calling thread is to stderr. Async-signal-safe behind prepare_stacks.
void print_this_stack();

// Writes where each thread of this process is to stderr, with its name; for a process that is about
// to end.
void print_all_stacks();

}  // namespace pf
