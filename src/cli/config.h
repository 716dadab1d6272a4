#pragma once

#include <CLI/CLI.hpp>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/option_table.h"
#include "cli/settings.h"

namespace pf {

// Puts settings together from flags, environment and file, in this order of rank, and remembers
// where each came from.
class Config {
 public:
  // Declares the table's options of `scope` (kServe has all) on a command, and --config and
  // --print-config. The command's parse fills this object, which must outlive it.
  void declare(CLI::App* command, Option::Scope scope);

  // Requires: the command was parsed. `environment` holds "NAME=value" strings, as environ does.
  // The error is one line: what, where (flag, variable or file), what to do.
  Status resolve(const char* const* environment);

  Settings& settings() { return settings_; }
  bool wants_print() const { return print_; }
  // `key = value  # origin` lines, valid TOML, in the order of the table.
  std::string print() const;
  // Variables that look like Kubernetes' and were passed over.
  const std::vector<std::string>& ignored() const { return ignored_; }

 private:
  struct Given {
    std::vector<std::string> values;
    std::string origin;  // as print shows it
    std::string where;   // as an error names it
  };

  Status read_environment(const char* const* environment);
  Status read_file(const std::string& path);
  const Option* find(const std::string& name) const;

  Option::Scope scope_ = Option::Scope::kServe;
  std::string help_;                                       // where the settings are described
  std::map<std::string, std::vector<std::string>> flags_;  // filled by CLI11
  std::map<std::string, bool> switches_;                   // as given on the command line
  std::string file_;
  bool print_ = false;
  std::map<std::string, Given> given_;  // by option name: the highest rank so far
  std::vector<std::string> ignored_;
  Settings settings_;
};

}  // namespace pf
