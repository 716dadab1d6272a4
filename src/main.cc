#include <cstdio>
#include <cstring>
#include <string>

#include "base/lost_bytes.h"
#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/last_words.h"
#include "cli/version.h"

namespace {

// CLI11's words may run over several lines; the first says what is wrong.
int say_usage_error(const CLI::App& app, const CLI::ParseError& error) {
  std::string what = error.what();
  what = what.substr(0, what.find('\n'));
  std::string command;
  for (const CLI::App* sub : app.get_subcommands()) command = " " + sub->get_name();
  std::fprintf(stderr, "pilotfish%s: %s; see pilotfish%s --help\n", command.c_str(), what.c_str(),
               command.c_str());
  return pf::kUsage;
}

}  // namespace

int main(int argc, char** argv) {
  pf::on_lost_bytes(pf::die_of_lost_bytes);
  CLI::App app("Pilotfish: a language model server with lossless speculative decoding",
               "pilotfish");
  app.set_version_flag("--version", pf::version_text());
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 a check said no, 2 usage, configuration or file, 70 a fault.");
  pf::Run run;
  pf::declare_all(&app, &run);
  try {
    app.parse(pf::arguments_backwards(argc, argv));
    return run();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return say_usage_error(app, error);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pilotfish: fault: %s\n", error.what());
    return pf::kFault;
  }
}
