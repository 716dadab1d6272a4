#include "cli/command_words.h"
#include "cli/completion.h"
#include "cli/version.h"

namespace pf {
namespace {

// Text as roff shows it: no line begins with a control character, hyphens stay hyphens.
std::string roff(const std::string& text) {
  std::string out = text.starts_with('.') || text.starts_with('\'') ? "\\&" : "";
  for (char c : text)
    out += c == '\\' ? "\\e" : c == '-' ? "\\-" : c == '\n' ? "\n\\&" : std::string(1, c);
  return out;
}

std::string item(const OptionWords& o) {
  std::string out = ".TP\n";
  std::string names;
  for (const std::string& name : o.names)
    names += (names.empty() ? "" : ", ") + ("\\fB" + roff(name) + "\\fR");
  std::string value = o.value.empty() ? "" : "\\fI" + roff(o.value) + "\\fR";
  out += names + (names.empty() || value.empty() ? "" : " ") + value + "\n";
  return out + roff(o.help) + "\n";
}

std::string section_of(const CommandWords& c) {
  std::string synopsis = "pilotfish " + c.name;
  for (const OptionWords& o : c.options)
    if (o.names.empty()) synopsis += " " + o.value;
  std::string out = ".SS " + roff(synopsis) + "\n" + roff(c.help) + ".\n";
  std::string group;
  for (const OptionWords& o : c.options) {
    if (o.group != group && o.group != "Options") out += ".PP\n\\fI" + roff(o.group) + "\\fR\n";
    group = o.group;
    out += item(o);
  }
  return out;
}

}  // namespace

std::string manual_page(const CLI::App& app) {
  std::vector<CommandWords> commands = words_of_commands(app);
  std::string out = ".TH PILOTFISH 1 \"\" \"pilotfish " + version() + "\" \"Pilotfish\"\n" +
                    ".SH NAME\npilotfish \\- " + roff(app.get_description()) + "\n" +
                    ".SH SYNOPSIS\n.B pilotfish\n\\fICOMMAND\\fR [\\fIOPTIONS\\fR]\n" +
                    ".SH COMMANDS\n";
  for (const CommandWords& c : commands) out += section_of(c);
  out +=
      ".SH ENVIRONMENT\n"
      "Every setting of \\fBserve\\fR may be given as \\fBPILOTFISH_\\fINAME\\fR: the option in "
      "capitals with underscores. A flag goes before the environment, the environment before the "
      "file of \\fB\\-\\-config\\fR, the file before the default; \\fB\\-\\-print\\-config\\fR "
      "shows each value and where it came from.\n";
  out += ".SH EXIT STATUS\n" + roff(app.get_footer()) + "\n";
  return out;
}

}  // namespace pf
