#include "cli/line.h"

#include <cstdarg>
#include <cstdio>

namespace pf {

std::string line(const char* format, ...) {
  char text[256];
  va_list arguments;
  va_start(arguments, format);
  std::vsnprintf(text, sizeof(text), format, arguments);
  va_end(arguments);
  return text;
}

}  // namespace pf
