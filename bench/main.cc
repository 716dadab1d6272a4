#include <cstdio>

#include "bench/commands.h"
#include "cli/close_output.h"
#include "cli/version.h"

namespace {

int run_program(int argc, char** argv) {
  CLI::App app("Measures Pilotfish beside the machine it runs on", "pilotfish-bench");
  app.set_version_flag("--version", pf::version_text("pilotfish-bench"));
  app.require_subcommand(1);
  app.footer(
      "Every figure is a ratio in one run: probe and subject alternate, pairs beside which the "
      "probe\n"
      "moved by more than 10 % are dropped and counted.\n"
      "Exit codes: 0 done, 1 a goal was missed (--strict), 2 usage or file, 70 a fault.");
  pf::BenchRun run;
  pf::declare_kernels(&app, &run);
  pf::declare_decode(&app, &run);
  pf::declare_speculation(&app, &run);
  pf::declare_serve_load(&app, &run);
  pf::declare_worker(&app, &run);
  try {
    app.parse(argc, argv);
    return run();
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    std::string what = error.what();
    std::fprintf(stderr, "pilotfish-bench: %s; see pilotfish-bench --help\n",
                 what.substr(0, what.find('\n')).c_str());
    return pf::kBadUsage;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "pilotfish-bench: fault: %s\n", error.what());
    return pf::kBenchFault;
  }
}

}  // namespace

int main(int argc, char** argv) {
  return pf::close_output("pilotfish-bench", run_program(argc, argv));
}
