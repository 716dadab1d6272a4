#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace pf {

// What is wrong with a command line, in one line that points to the help of the subcommand which it
// was meant for. `first` is the first argument; "" for none. CLI11 asks for a subcommand where an
// unknown one is named, and speaks of counts and conversions.
std::string usage_line(const CLI::App& app, const CLI::ParseError& error, const std::string& first);

}  // namespace pf
