#include "cli/close_output.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iostream>

#include "cli/commands.h"

namespace pf {

int close_output(const char* program, int code) {
  std::cout.flush();
  // A failure of an earlier flush is remembered by the stream, but not its reason.
  const bool failed = std::ferror(stdout) != 0;
  errno = 0;
  const bool closed = std::fclose(stdout) == 0;
  if (!failed && (closed || errno == EBADF)) return code;
  const std::string why = closed || errno == EBADF ? "" : std::string(": ") + std::strerror(errno);
  std::fprintf(stderr, "%s: standard output cannot be written%s\n", program, why.c_str());
  return code == kOk ? kUsage : code;
}

}  // namespace pf
