#pragma once

namespace pf {

// Makes print_all_stacks possible: takes a signal for it. Once, before threads that matter start.
void prepare_stacks();

// Writes where each thread of this process is to stderr; for a process that is about to end.
void print_all_stacks();

}  // namespace pf
