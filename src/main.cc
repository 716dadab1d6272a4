#include <cstdio>

#include "base/lost_bytes.h"
#include "cli/arguments.h"
#include "cli/close_output.h"
#include "cli/commands.h"
#include "cli/last_words.h"
#include "cli/usage_error.h"
#include "cli/version.h"

namespace {

int run_program(int argc, char** argv) {
  pf::on_lost_bytes(pf::die_of_lost_bytes);
  CLI::App app("Pilotfish: a language model server with lossless speculative decoding",
               "pilotfish");
  app.set_version_flag("--version", pf::version_text());
  app.require_subcommand(1);
  app.footer(
      "Exit codes: 0 done, 1 a check said no, 2 usage, configuration, file or a plan that does not "
      "fit, 70 a fault.");
  pf::Run run;
  pf::declare_all(&app, &run);
  try {
    app.parse(pf::arguments_backwards(argc, argv));
    return run();
  } catch (const CLI::Success& success) {  // --help, --version
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::fprintf(stderr, "%s\n", pf::usage_line(app, error, argc > 1 ? argv[1] : "").c_str());
    return pf::kUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pilotfish: fault: %s\n", error.what());
    return pf::kFault;
  }
}

}  // namespace

int main(int argc, char** argv) { return pf::close_output("pilotfish", run_program(argc, argv)); }
