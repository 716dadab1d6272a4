#include "cli/usage_error.h"

#include <string_view>

namespace pf {
namespace {

// Its words may run over several lines; the first says what is wrong.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// "--prompt: At Most 1 required but received 2", "Could not convert: --top-p = x".
std::string plainly(const std::string& what) {
  constexpr std::string_view kMost = ": At Most ", kReceived = " required but received ";
  const size_t most = what.find(kMost), received = what.find(kReceived);
  if (most != std::string::npos && received != std::string::npos) {
    const std::string limit = what.substr(most + kMost.size(), received - most - kMost.size());
    return what.substr(0, most) + ": given " + what.substr(received + kReceived.size()) +
           " times, " + (limit == "1" ? "one is needed" : limit + " at most");
  }
  constexpr std::string_view kConvert = "Could not convert: ";
  const size_t equals = what.find(" = ");
  if (what.starts_with(kConvert) && equals != std::string::npos)
    return what.substr(kConvert.size(), equals - kConvert.size()) + ": " + what.substr(equals + 3) +
           " cannot stand here";
  return what;
}

}  // namespace

std::string usage_line(const CLI::App& app, const CLI::ParseError& error,
                       const std::string& first) {
  std::string command = app.get_name();
  bool named = false;
  for (const CLI::App* sub : app.get_subcommands()) {
    command += " " + sub->get_name();
    named = true;
  }
  std::string what = plainly(first_line(error.what()));
  if (!named && !first.empty())
    what = (first.starts_with('-') ? "no such option: " : "no such command: ") + first_line(first);
  return command + ": " + what + "; see " + command + " --help";
}

}  // namespace pf
