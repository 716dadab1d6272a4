#include "cli/completion.h"

#include "cli/command_words.h"
#include "cli/parse_value.h"

namespace pf {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& w : words) out += (out.empty() ? "" : " ") + w;
  return out;
}

// Within single quotes of a shell; `also` are escaped with a backslash.
std::string quoted(const std::string& text, const std::string& also = "") {
  std::string out;
  for (char c : text) {
    if (also.find(c) != std::string::npos) out += '\\';
    out += c == '\'' ? "'\\''" : std::string(1, c);
  }
  return out;
}

std::vector<std::string> names_of(const std::vector<CommandWords>& commands) {
  std::vector<std::string> names;
  for (const CommandWords& c : commands) names.push_back(c.name);
  return names;
}

std::string bash_script(const std::vector<CommandWords>& commands) {
  std::string values, options;
  for (const CommandWords& c : commands) {
    std::vector<std::string> all, places;
    for (const OptionWords& o : c.options) {
      all.insert(all.end(), o.names.begin(), o.names.end());
      if (o.names.empty()) places.insert(places.end(), o.choices.begin(), o.choices.end());
      if (o.value.empty()) continue;
      for (const std::string& name : o.names) {
        values += "    '" + c.name + " " + name + "') ";
        if (!o.choices.empty())
          values += "COMPREPLY=($(compgen -W '" + joined(o.choices) + "' -- \"$current\")); ";
        else if (o.takes_path)
          values += "COMPREPLY=($(compgen -f -- \"$current\")); ";
        values += "return ;;\n";
      }
    }
    options +=
        "    " + c.name + ") options='" + joined(all) + "' places='" + joined(places) + "' ;;\n";
  }
  return "# source <(pilotfish completion bash)\n"
         "_pilotfish() {\n"
         "  local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]}\n"
         "  local options= places=\n"
         "  COMPREPLY=()\n"
         "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
         "    COMPREPLY=($(compgen -W '" +
         joined(names_of(commands)) +
         " --help --version' -- \"$current\"))\n"
         "    return\n"
         "  fi\n"
         "  case \"${COMP_WORDS[1]} $previous\" in\n" +
         values +
         "  esac\n"
         "  case \"${COMP_WORDS[1]}\" in\n" +
         options +
         "  esac\n"
         "  case \"$current\" in\n"
         "    -*) COMPREPLY=($(compgen -W \"$options\" -- \"$current\")) ;;\n"
         "    *) if [ -n \"$places\" ]; then COMPREPLY=($(compgen -W \"$places\" -- "
         "\"$current\"));\n"
         "       else COMPREPLY=($(compgen -f -- \"$current\")); fi ;;\n"
         "  esac\n"
         "}\n"
         "complete -o filenames -F _pilotfish pilotfish\n";
}

// What stands in the places of a command: of its choices, or files.
std::string places_of(const CommandWords& c) {
  for (const OptionWords& o : c.options)
    if (o.names.empty() && !o.choices.empty())
      return quoted(o.help, ":") + ":(" + joined(o.choices) + ")";
  return "file:_files";
}

std::string zsh_script(const std::vector<CommandWords>& commands) {
  std::string names, cases;
  for (const CommandWords& c : commands) {
    names += "      '" + quoted(c.name, ":") + ":" + quoted(c.help, ":") + "'\n";
    cases += "    " + c.name + ") _arguments";
    for (const OptionWords& o : c.options)
      for (const std::string& name : o.names) {
        cases += " \\\n      '*" + name + "[" + quoted(o.help, "[]") + "]";
        if (!o.value.empty()) cases += ":" + quoted(o.value, ":") + ":";
        if (!o.choices.empty())
          cases += "(" + joined(o.choices) + ")";
        else if (o.takes_path)
          cases += "_files";
        cases += "'";
      }
    cases += " \\\n      '*:" + places_of(c) + "' ;;\n";
  }
  return "#compdef pilotfish\n"
         "_pilotfish() {\n"
         "  if (( CURRENT == 2 )); then\n"
         "    local -a commands=(\n" +
         names +
         "    )\n"
         "    _describe command commands\n"
         "    return\n"
         "  fi\n"
         "  shift words\n"
         "  (( CURRENT-- ))\n"
         "  case ${words[1]} in\n" +
         cases +
         "  esac\n"
         "}\n"
         "compdef _pilotfish pilotfish\n";
}

std::string fish_script(const std::vector<CommandWords>& commands) {
  std::string out = "complete -c pilotfish -f\n";
  for (const CommandWords& c : commands) {
    out += "complete -c pilotfish -n __fish_use_subcommand -a " + c.name + " -d '" +
           quoted(c.help) + "'\n";
    for (const OptionWords& o : c.options) {
      out += "complete -c pilotfish -n '__fish_seen_subcommand_from " + c.name + "'";
      for (const std::string& name : o.names)
        out += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      if (!o.choices.empty())
        out += " -x -a '" + joined(o.choices) + "'";
      else if (o.takes_path)
        out += o.names.empty() ? " -F" : " -r -F";
      else if (!o.value.empty())
        out += " -x";
      out += " -d '" + quoted(o.help) + "'\n";
    }
  }
  return out;
}

}  // namespace

std::string completion_script(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands = words_of_commands(app);
  if (shell == "bash") return bash_script(commands);
  return shell == "zsh" ? zsh_script(commands) : fish_script(commands);
}

}  // namespace pf
