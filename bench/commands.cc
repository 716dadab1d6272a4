#include "bench/commands.h"

#include <algorithm>
#include <cstdio>
#include <memory>

#include "bench/kernels.h"

namespace pf {

void Output::declare(CLI::App* command) {
  command->add_option("--json", json, "Write all figures and goals as JSON")
      ->type_name("FILE")
      ->group("Output");
  command->add_flag("--strict", strict, "Exit with 1 when a goal is missed")->group("Output");
}

int Output::finish(const Result<Report>& report) const {
  Status s = report.ok() ? report->write(json) : report.status();
  if (report.ok()) std::fputs(report->table().c_str(), stdout);
  if (!s.ok()) {
    std::fprintf(stderr, "pilotfish-bench: %s\n", s.message().c_str());
    return kBadUsage;
  }
  bool missed = std::any_of(report->goals().begin(), report->goals().end(),
                            [](const Goal& g) { return !g.pass(); });
  return strict && missed ? kGoalMissed : kDone;
}

std::vector<int> default_threads() {
  int n = static_cast<int>(usable_cpus().size());
  return n > 1 ? std::vector<int>{1, n} : std::vector<int>{1};
}

void declare_kernels(CLI::App* app, BenchRun* run) {
  struct Options {
    KernelsOptions kernels;
    Output output;
    double slice_ms = 10;
  };
  auto o = std::make_shared<Options>();
  CLI::App* command = app->add_subcommand(
      "kernels", "The CPU backend's kernels and steps beside probes of the machine, and growth");
  command
      ->add_option("--model", o->kernels.models,
                   "A model file or folder, or a shape with random weights: smollm2-135m, "
                   "tinyllama-1.1b, tiny; may be repeated [smollm2-135m, tinyllama-1.1b]")
      ->type_name("PATH");
  command->add_option("--dtype", o->kernels.dtypes, "Of the weights [bf16,int8,int4]")
      ->delimiter(',')
      ->type_name("{bf16,int8,int4,fp32}");
  command->add_option("--threads", o->kernels.threads, "[1 and the CPUs]")
      ->delimiter(',')
      ->type_name("N,N")
      ->check(CLI::Range(1, 1024).description(""));
  command
      ->add_option("--part", o->kernels.parts,
                   "What to measure [products,attention,rows,step,growth]")
      ->delimiter(',')
      ->type_name("NAME,NAME")
      ->check(CLI::IsMember({"products", "attention", "rows", "step", "growth"}).description(""));
  command->add_option("--rounds", o->kernels.protocol.n_rounds, "Steady pairs of each figure [30]")
      ->type_name("N")
      ->check(CLI::Range(1, 100000).description(""));
  command->add_option("--slice-ms", o->slice_ms, "Of one probe or subject [10]")
      ->type_name("MS")
      ->check(CLI::Range(0.1, 100.0).description(""));
  CLI::Option* quick = command->add_flag(
      "--quick", o->kernels.quick, "Does it all run? Few and short rounds, small probes and sizes");
  o->output.declare(command);
  command->callback([o, run, command, quick] {
    *run = [o, command, quick] {
      KernelsOptions& k = o->kernels;
      if (k.threads.empty()) k.threads = default_threads();
      k.protocol.slice_s = 1e-3 * o->slice_ms;
      if (quick->count() > 0) {
        if (command->count("--rounds") == 0) k.protocol.n_rounds = 2;
        if (command->count("--slice-ms") == 0) k.protocol.slice_s = 2e-4;
        k.probe_bytes = size_t{32} << 20;
      }
      return o->output.finish(bench_kernels(k));
    };
  });
}

}  // namespace pf
