#pragma once

#include <string>
#include <vector>

namespace pf {

// The command line for CLI11, which wants it backwards and without the program's name. "--name="
// gives an empty value; CLI11 alone would take the next argument for it.
std::vector<std::string> arguments_backwards(int argc, const char* const* argv);

}  // namespace pf
