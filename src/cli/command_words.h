#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace pf {

// The command line as data, read off the declared commands: what completions and the manual page
// are made from, so that neither can say anything else than --help.
struct OptionWords {
  std::vector<std::string> names;  // "--listen", "-h"; empty: a positional argument
  std::string help;                // one line
  std::string group;               // of --help
  std::string value;               // what stands behind it: "N", "FILE", "{a,b}"; empty: nothing
  std::vector<std::string> choices;
  bool takes_path = false;
};
struct CommandWords {
  std::string name, help;
  std::vector<OptionWords> options;
};

OptionWords words_of(const CLI::Option& option);
// The subcommands in the order of their declaration.
std::vector<CommandWords> words_of_commands(const CLI::App& app);

}  // namespace pf
