#include "bench/commands.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "base/files.h"
#include "bench/decode.h"
#include "bench/kernels.h"
#include "bench/length_rows.h"
#include "bench/serve.h"
#include "bench/speculation.h"
#include "bench/way.h"
#include "cli/checks.h"
#include "cli/parse_value.h"

namespace pf {
namespace {

int refuse(const Status& status) {
  std::fprintf(stderr, "pilotfish-bench: %s\n", status.message().c_str());
  return kBadUsage;
}

// That a file can be written, if one is named.
Status check_output(const char* flag, const std::string& path) {
  return path.empty() ? Status() : check_can_write(path).within(flag);
}

constexpr const char* kModelHelp =
    "A model file or folder, or a shape with random weights: smollm2-135m, tinyllama-1.1b, tiny";

}  // namespace

void Output::declare(CLI::App* command) {
  command->add_option("--json", json, "Write all figures and goals as JSON")
      ->type_name("FILE")
      ->group("Output");
  command->add_flag("--strict", strict, "Exit with 1 when a goal is missed, or a request fails")
      ->group("Output");
}

Status Output::check() const { return check_output("--json", json); }

int Output::finish(const Result<Report>& report) const {
  Status s = report.ok() ? report->write(json) : report.status();
  if (report.ok()) std::fputs(report->table().c_str(), stdout);
  if (!s.ok()) return refuse(s);
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
    std::string html;
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
      ->type_name("{bf16,int8,int4,fp32}")
      ->check(CLI::IsMember({"bf16", "int8", "int4", "fp32"}).description(""));
  command->add_option("--threads", o->kernels.threads, "[1 and the CPUs]")
      ->delimiter(',')
      ->type_name("N,N")
      ->check(whole_number(1, 1024));
  command
      ->add_option(
          "--part", o->kernels.parts,
          "What to measure [all but groups]; groups: INT4 groups of 128 over blocks of 32, "
          "needs --dtype int4")
      ->delimiter(',')
      ->type_name("{products,groups,attention,rows,sampling,step,length,kv,growth,messages}")
      ->check(CLI::IsMember({"products", "groups", "attention", "rows", "sampling", "step",
                             "length", "kv", "growth", "messages"})
                  .description(""));
  command->add_option("--m", o->kernels.rows, "Rows, or sequences, of a step [1..16 and 512]")
      ->delimiter(',')
      ->type_name("N,N")
      ->check(whole_number(1, 512));
  command->add_option("--rounds", o->kernels.protocol.n_rounds, "Steady pairs of each figure [30]")
      ->type_name("N")
      ->check(whole_number(1, 100000));
  command->add_option("--slice-ms", o->slice_ms, "Of one probe or subject [10]")
      ->type_name("MS")
      ->check(real_number(0.1, 100));
  CLI::Option* quick = command->add_flag(
      "--quick", o->kernels.quick, "Does it all run? Few and short rounds, small probes and sizes");
  o->output.declare(command);
  command->add_option("--html", o->html, "The choice of draft length (part length) as plots")
      ->type_name("FILE")
      ->group("Output");
  command->callback([o, run, command, quick] {
    *run = [o, command, quick] {
      KernelsOptions& k = o->kernels;
      std::error_code error;
      k.program = std::filesystem::read_symlink("/proc/self/exe", error).string();
      if (k.threads.empty()) k.threads = default_threads();
      k.protocol.slice_s = 1e-3 * o->slice_ms;
      if (quick->count() > 0) {
        if (command->count("--rounds") == 0) k.protocol.n_rounds = 2;
        if (command->count("--slice-ms") == 0) k.protocol.slice_s = 2e-4;
        k.probe_bytes = size_t{32} << 20;
      }
      if (Status s = o->output.check(); !s.ok()) return refuse(s);
      if (Status s = check_output("--html", o->html); !s.ok()) return refuse(s);
      if (!o->html.empty() && !k.parts.empty() &&
          std::find(k.parts.begin(), k.parts.end(), "length") == k.parts.end())
        return refuse(invalid("--html shows the choice of draft length: it needs --part length"));
      Result<Report> report = bench_kernels(k);
      if (report.ok()) {
        const Json all = report->json();
        std::vector<Plot> plots =
            length_plots(all["sections"].value("draft length", Json::array()));
        if (Status s = write_page(o->html, "pilotfish-bench kernels", report->head(), plots);
            !s.ok())
          return refuse(s);
      }
      return o->output.finish(report);
    };
  });
}

void declare_decode(CLI::App* app, BenchRun* run) {
  struct Options {
    DecodeOptions decode;
    Output output;
    bool quick = false;
  };
  auto o = std::make_shared<Options>();
  DecodeOptions& d = o->decode;
  CLI::App* command = app->add_subcommand(
      "decode", "Tokens per second by threads, dtype, sequences and draft length");
  auto numbers = [&](const char* name, std::vector<int>& field, const char* help, int least,
                     int most) {
    command->add_option(name, field, help)
        ->delimiter(',')
        ->type_name("N,N")
        ->check(whole_number(least, most));
  };
  command->add_option("--model", d.model, std::string(kModelHelp) + " [smollm2-135m]")
      ->type_name("PATH");
  command->add_option("--draft", d.draft, "A draft model beside n-grams")->type_name("PATH");
  command->add_option("--dtype", d.dtypes, "Of the weights [bf16,int4]")
      ->delimiter(',')
      ->type_name("{bf16,int8,int4}")
      ->check(CLI::IsMember({"bf16", "int8", "int4"}).description(""));
  numbers("--threads", d.threads, "[1 and the CPUs]", 1, 1024);
  numbers("--sequences", d.batches, "Answered together [1,8,32]", 1, 512);
  numbers("--k", d.ks, "Tokens drafted per step [0,4]", 0, 16);
  command->add_option("--prompt-tokens", d.n_prompt, "[64]")->check(whole_number(2, 100000));
  command->add_option("--tokens", d.n_tokens, "Of each answer [16]")
      ->check(whole_number(2, 100000));
  command->add_option("--rounds", d.protocol.n_rounds, "Steady pairs of each figure [15]")
      ->check(whole_number(1, 100000));
  command->add_flag("--quick", o->quick, "Does it all run? Two rounds beside a small probe");
  o->output.declare(command);
  command->callback([o, run] {
    *run = [o] {
      if (o->decode.threads.empty()) o->decode.threads = default_threads();
      if (o->quick) {
        o->decode.protocol = {2, 2e-4};
        o->decode.probe_bytes = size_t{32} << 20;
      }
      if (Status s = o->output.check(); !s.ok()) return refuse(s);
      return o->output.finish(bench_decode(o->decode));
    };
  });
}

void declare_speculation(CLI::App* app, BenchRun* run) {
  struct Options {
    SpeculationOptions speculation;
    Output output;
    bool quick = false;
  };
  auto o = std::make_shared<Options>();
  SpeculationOptions& s = o->speculation;
  CLI::App* command = app->add_subcommand(
      "speculation", "Acceptance, costs and speed-up of each drafter on real prompts");
  command->add_option("--model", s.model, "[SmolLM2-135M-Instruct in models/]")->type_name("PATH");
  command->add_option("--draft", s.draft, "Of \"model\" [models/drafts/smollm2-3l]");
  command->add_option("--head", s.head, "Of \"eagle\" [models/drafts/smollm2-eagle]");
  command->add_option("--medusa", s.medusa, "Of \"medusa\": a folder of heads [random ones]");
  command->add_option("--draft-layers", s.draft_layers, "Of \"early-exit\" [8]")
      ->check(whole_number(1, 1024));
  command
      ->add_option(
          "--drafters", s.drafters,
          "Each a name (of --speculation, self, predicted) or a list to choose among, such "
          "as ngram,eagle; @3x2x1 behind it gives trees their widths, @grow16 lets them "
          "grow; or all [ngram eagle model predicted ngram,eagle]")
      ->type_name("NAME[,NAME][@TREE]");
  CLI::Option* ks =
      command->add_option("--k", s.ks, "Tokens drafted per round; -1: as the server chooses [4,-1]")
          ->delimiter(',')
          ->check(whole_number(-1, 16));
  command->add_option("--prompts-file", s.prompts_file,
                      "JSON: lists of prompts by kind [bench/prompts/speculation.json]");
  command->add_option("--kinds", s.kinds, "Only these [all]");
  CLI::Option* prompts =
      command->add_option("--prompts", s.n_prompts, "Of each kind [20; a sweep: 3]")
          ->check(whole_number(1, 100000));
  CLI::Option* tokens =
      command->add_option("--max-tokens", s.max_tokens, "Of an answer [128; a sweep: 64]")
          ->check(whole_number(2, 512));
  command->add_option("--temperature", s.temperature, "> 0: with a seed [0]")
      ->check(real_number(0, 100));
  command->add_option("--dtype", s.dtype, "Of the model [bf16]")
      ->type_name("{bf16,int8,int4}")
      ->check(CLI::IsMember({"bf16", "int8", "int4"}).description(""));
  command->add_option("--threads", s.threads, "[the CPUs]")->check(whole_number(1, 1024));
  command->add_flag("--sweep", s.sweep,
                    "Draft lengths 1..16, beside what the industry claims of an A100 and what the "
                    "roofline of one says of that");
  command->add_flag("--quick", o->quick, "Does it all run? One prompt of each kind, few rounds");
  o->output.declare(command);
  command->callback([o, run, command, ks, prompts, tokens] {
    *run = [o, command, ks, prompts, tokens] {
      SpeculationOptions& s = o->speculation;
      if (s.sweep && command->count("--drafters") == 0)
        s.drafters = {"model", "self", "early-exit", "medusa", "eagle"};
      if (s.drafters == std::vector<std::string>{"all"}) s.drafters = Way::all_names();
      if (s.sweep && ks->count() > 0)
        return refuse(invalid("--sweep has draft lengths of its own; leave --k away"));
      if (s.sweep && prompts->count() == 0) s.n_prompts = 3;
      if (s.sweep && tokens->count() == 0) s.max_tokens = 64;
      if (o->quick) {
        s.protocol = {2, 2e-4};
        if (prompts->count() == 0) s.n_prompts = 1;
        if (tokens->count() == 0) s.max_tokens = 16;
      }
      if (Status bad = o->output.check(); !bad.ok()) return refuse(bad);
      return o->output.finish(bench_speculation(s));
    };
  });
}

void declare_serve_load(CLI::App* app, BenchRun* run) {
  struct Options {
    ServeOptions serve;
    Output output;
  };
  auto o = std::make_shared<Options>();
  ServeOptions& s = o->serve;
  CLI::App* command = app->add_subcommand("serve", "Load on a running server over gRPC");
  auto one_of = [&](const char* name, std::string& field, std::vector<std::string> names,
                    const char* help) {
    command->add_option(name, field, help)
        ->type_name("{" + join_list(names) + "}")
        ->check(CLI::IsMember(names).description(""));
  };
  command->add_option("--target", s.target, "[127.0.0.1:50051]")->type_name("HOST:PORT");
  one_of(
      "--scenario", s.scenario, {"long", "short", "mixed", "custom"},
      "long: one prompt of 128K tokens at a time; short: 1,000 requests/s; mixed: 7 to 3 [custom]");
  one_of("--dataset", s.dataset, {"random", "sonnet", "prefix-repetition", "prompts-file"},
         "[random]");
  command->add_option("--prompts-file", s.prompts_file, "One prompt a line")->type_name("FILE");
  command->add_option("--sonnet-file", s.sonnet_file, "Of sonnet [bench/prompts/sonnet.txt]")
      ->type_name("FILE");
  command->add_option("--num-prompts", s.num_prompts, "[100]")->check(whole_number(1, INT32_MAX));
  command->add_option("--max-concurrency", s.max_concurrency, "0: no limit [0]")
      ->check(whole_number(0, INT32_MAX));
  command->add_option("--request-rate", s.request_rate, "Per second; 0: all at once [0]")
      ->check(real_number(0));
  command->add_option("--ramp", s.ramp, "Requests per second that grow over the load, as in 1:20")
      ->type_name("FROM:TO");
  command->add_option("--burstiness", s.burstiness, "1: Poisson; below: bursts; above: even [1]")
      ->check(real_number(0, INFINITY, true));
  command->add_option("--input-len", s.input_len, "Prompt tokens [256]")
      ->check(whole_number(1, INT32_MAX));
  command->add_option("--output-len", s.output_len, "Answer tokens [128]")
      ->check(whole_number(1, INT32_MAX));
  command->add_option("--prefix-len", s.prefix_len, "Of prefix-repetition [256] and sonnet [200]")
      ->check(whole_number(0, 1 << 20));
  command->add_option("--num-prefixes", s.n_prefixes, "Of prefix-repetition [4]")
      ->check(whole_number(1, 1 << 20));
  command->add_option("--cancel-rate", s.cancel_rate, "Part that is cancelled half-way [0]")
      ->check(real_number(0, 1));
  one_of("--speculation", s.speculation, {"server", "off"}, "[server]");
  command->add_option("--goodput", s.goodput,
                      "\"ttft:500 tpot:30 e2el:9000\" in ms, mlperf-8b-server or "
                      "mlperf-8b-interactive: what request_goodput counts");
  command
      ->add_option("--compare", s.compare,
                   "So many loads with speculation, between the same ones without [5]")
      ->expected(0, 1)
      ->default_str("5")
      ->type_name("N")
      ->check(whole_number(1, 1000));
  command->add_option("--cost-per-hour", s.cost_per_hour, "Of the machine: cost per million")
      ->type_name("USD")
      ->check(real_number(0, INFINITY, true));
  command->add_option("--seed", s.seed, "[1]")
      ->check(CLI::Validator([](std::string& text) { return parse_seed(text).status().message(); },
                             ""));
  o->output.declare(command);
  command->add_option("--save-result", o->output.json, "As --json")
      ->type_name("FILE")
      ->group("Output");
  command->add_option("--html", s.html, "A page with plots, complete in itself")
      ->type_name("FILE")
      ->group("Output");
  command->callback([o, run] {
    *run = [o] {
      Status s = o->output.check();
      if (s.ok()) s = check_output("--html", o->serve.html);
      if (!s.ok()) return refuse(s);
      const Result<Report> report = bench_serve(o->serve);
      const int code = o->output.finish(report);
      return report.ok() && code == kDone && load_failed(report->json(), o->output.strict)
                 ? kGoalMissed
                 : code;
    };
  });
}

void declare_worker(CLI::App* app, BenchRun* run) {
  auto o = std::make_shared<WorkerOptions>();
  CLI::App* command = app->add_subcommand(
      "worker", "Measures what it is asked for, one JSON object a line (for bench/peers)");
  command->add_option("--model", o->model, kModelHelp)->type_name("PATH")->required();
  command->add_option("--draft", o->draft, "A draft model")->type_name("PATH");
  command->add_option("--dtype", o->dtype, "Of the weights [bf16]")
      ->type_name("{bf16,int8,int4}")
      ->check(CLI::IsMember({"bf16", "int8", "int4"}).description(""));
  command->add_option("--speculation", o->speculation, "As the server's [auto]")
      ->type_name("NAME,NAME");
  command->add_option("--num-speculative-tokens", o->num_speculative_tokens, "As the server's [5]")
      ->check(whole_number(0, 16));
  command->add_option("--threads", o->threads, "[the CPUs]")->check(whole_number(1, 1024));
  command->callback([o, run] {
    *run = [o] {
      Status s = run_worker(*o);
      return s.ok() ? kDone : refuse(s);
    };
  });
}

}  // namespace pf
