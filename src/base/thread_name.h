#pragma once

#include <pthread.h>

namespace pf {

// As `top -H`, debuggers and print_all_stacks call the calling thread. At most 15 letters.
inline void name_this_thread(const char* name) { pthread_setname_np(pthread_self(), name); }

}  // namespace pf
