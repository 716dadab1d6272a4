#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "cli/settings.h"

namespace pf {

inline constexpr char kBetweenValues = '\0';  // a path may hold any other letter

// One setting: its name on the command line (--name), in the environment (PILOTFISH_NAME) and in a
// file (name = ...), what it may be, what it means and where it goes. Flags, environment, file,
// --help and --print-config are all made from this table and nothing else.
struct Option {
  enum class Kind { kText, kNumber, kSwitch, kList };  // how TOML writes it
  // Which commands have it: those that run an engine, or `serve` only.
  enum class Scope { kEngine, kServe };

  std::string name;
  Kind kind;
  Scope scope;
  const char* group;   // of --help
  std::string values;  // of --help: what may stand there
  const char* help;
  bool repeatable;  // each occurrence adds one item
  std::function<Status(const std::string& value, Settings*)> set;
  // As `set` would read it; values of a repeatable one have kBetweenValues between them.
  std::function<std::string(const Settings&)> get;
};

const std::vector<Option>& option_table();

std::string environment_name(const std::string& option);  // max-num-seqs -> PILOTFISH_MAX_NUM_SEQS

}  // namespace pf
