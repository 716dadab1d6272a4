#include <cstdio>

#include "bench/commands.h"
#include "cli/close_output.h"
#include "cli/usage_error.h"
#include "cli/version.h"

namespace {

int run_program(int argc, char** argv) {
  CLI::App app("Measures Pilotfish beside the machine it runs on", "pilotfish-bench");
  app.set_version_flag("--version", pf::version_text("pilotfish-bench"));
  app.require_subcommand(1);
  app.footer(
      "kernels, decode and speculation give ratios in one run: probe and subject alternate, pairs\n"
      "beside which the probe moved by more than 10 % are dropped and counted. serve gives what a\n"
      "client saw, in seconds and per second; a ratio of two such loads with --compare.\n"
      "Exit codes: 0 done, 1 a goal was missed or a request failed (both with --strict), or all\n"
      "requests failed, 2 usage or file, 70 a fault.");
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
    std::fprintf(stderr, "%s\n", pf::usage_line(app, error, argc > 1 ? argv[1] : "").c_str());
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
