#pragma once

#include <string>

namespace pf {

// printf into a string, up to 255 characters.
std::string line(const char* format, ...) __attribute__((format(printf, 1, 2)));

}  // namespace pf
