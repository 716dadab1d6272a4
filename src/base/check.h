#pragma once

#include <cstdio>
#include <exception>
#include <source_location>

namespace pf {

// A failed check is a bug in this program: say where, then end the process. It goes through
// std::terminate, so that main's handler can turn health to NOT_SERVING and exit with 70 first.
// Mistakes from outside (a request, a file, a flag) are a Status instead.
[[noreturn]] inline void die(const char* what,
                             std::source_location at = std::source_location::current()) {
  std::fprintf(stderr, "%s:%u: %s: %s\n", at.file_name(), at.line(), at.function_name(), what);
  std::terminate();
}

inline void check(bool ok, const char* what,
                  std::source_location at = std::source_location::current()) {
  if (!ok) [[unlikely]]
    die(what, at);
}

// As check, in debug builds only: for invariants on a hot path.
inline void debug_check(
    [[maybe_unused]] bool ok, [[maybe_unused]] const char* what,
    [[maybe_unused]] std::source_location at = std::source_location::current()) {
#ifndef NDEBUG
  check(ok, what, at);
#endif
}

}  // namespace pf
