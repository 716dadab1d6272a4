#include "cli/command_words.h"

#include <algorithm>

#include "cli/parse_value.h"

namespace pf {

OptionWords words_of(const CLI::Option& option) {
  OptionWords w;
  for (const std::string& name : option.get_lnames()) w.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) w.names.push_back("-" + name);
  w.help = option.get_description();
  std::replace(w.help.begin(), w.help.end(), '\n', ' ');
  w.group = option.get_group();
  if (option.get_items_expected_max() == 0) return w;
  w.value = option.get_type_name();
  size_t open = w.value.find('{'), close = w.value.find('}');
  if (open != std::string::npos && close != std::string::npos)
    w.choices = split_list(w.value.substr(open + 1, close - open - 1));
  for (const char* path : {"FILE", "PATH", "IN", "OUT"})
    w.takes_path |= w.value.find(path) != std::string::npos;
  return w;
}

std::vector<CommandWords> words_of_commands(const CLI::App& app) {
  std::vector<CommandWords> commands;
  for (const CLI::App* command : app.get_subcommands(nullptr)) {
    commands.push_back({command->get_name(), command->get_description(), {}});
    for (const CLI::Option* option : command->get_options(nullptr))
      commands.back().options.push_back(words_of(*option));
  }
  return commands;
}

}  // namespace pf
