#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <thread>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/config.h"
#include "cli/last_words.h"
#include "cli/load_report.h"
#include "cli/plan_flags.h"
#include "cli/settle.h"
#include "cli/stacks.h"
#include "cli/start_notes.h"
#include "cli/version.h"
#include "engine/device.h"

namespace pf {
namespace {

sigset_t block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (int signal : {SIGTERM, SIGINT, SIGHUP}) sigaddset(&set, signal);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a log that may grow no more is no reason to end
  return set;
}

// True: an end was asked for. SIGHUP asks for a look at certificates and tokens.
bool wait_for_end(const sigset_t& set, int milliseconds, Server& server) {
  timespec time{milliseconds / 1000, (milliseconds % 1000) * 1'000'000L};
  int signal = sigtimedwait(&set, nullptr, &time);
  if (signal == SIGHUP) server.reread_files();
  return signal == SIGTERM || signal == SIGINT;
}

void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Loads on a thread of its own, so that signals are heard meanwhile.
struct Loading {
  explicit Loading(const Settings& settings, const Clock& clock) {
    thread = std::thread([this, &settings, &clock] {
      result.emplace(load_engine_and_text(settings, clock, &progress));
      done.store(true);
    });
  }
  Progress progress;
  std::optional<Result<Loaded>> result;
  std::atomic<bool> done{false};
  std::thread thread;
};

// Says how far it is meanwhile. False: an end was asked for.
bool wait_until_loaded(const sigset_t& set, const Settings& settings, const Loading& loading,
                       const Clock& clock, Server& server, Log& log) {
  LoadReport report(loading.progress, settings.log_format == "json" ? nullptr : terminal(), &log);
  const int64_t began_us = clock.now_us();
  while (!loading.done.load()) {
    if (wait_for_end(set, 20, server) || server.drain_asked()) return false;
    report.tick(1e-6 * static_cast<double>(clock.now_us() - began_us));
  }
  return true;
}

// Loading cannot be broken off, and a second signal does not wait.
[[noreturn]] void end_at_once(Log& log) {
  log.info("ended", {{"in_flight", std::string("dropped")}});
  log.flush();
  _exit(kOk);
}

void run_until_signal(const sigset_t& set, Server& server, Log& log) {
  while (!wait_for_end(set, 200, server) && !server.drain_asked()) {
  }
  log.info("draining");
  bool again = false;
  bool clean = server.drain([&] { return again = again || wait_for_end(set, 0, server); });
  log.info("drained", {{"all_finished", std::string(clean ? "yes" : "no")}});
  // Whatever holds the calls now, the supervisor has waited long enough.
  if (again || server.state().n_open.load() > 0) end_at_once(log);
}

// Before anybody is told that this server is ready.
Status test_engine(Engine& engine, Log& log) {
  Result<SelfTested> tested = engine.self_test();
  if (!tested.ok()) return tested.status();
  for (const DraftCost& c : draft_costs(engine.info().drafters, tested->step_cost_ratios)) {
    const std::string by = c.measured ? "measured" : "bytes";
    if (c.warning.empty())
      log.info("draft cost", {{"drafter", c.drafter}, {"ratio", c.ratio}, {"by", by}});
    else
      log.warn(c.warning, {{"drafter", c.drafter}, {"ratio", c.ratio}, {"by", by}});
  }
  if (tested->skipped.empty())
    log.info("self-test passed");
  else
    log.warn("self-test skipped: " + tested->skipped);
  return {};
}

// The last line of a start that fails, in the form of the log whatever its level is.
int refuse(const Status& status, const Settings& settings) {
  if (settings.log_format != "json") return fail(status);
  Log(Log::Format::kJson, "error").error("cannot start", {{"why", status.message()}});
  return kUsage;
}

int serve(Config& config) {
  Settings& settings = config.settings();
  sigset_t set = block_signals();
  prepare_stacks();
  quiet_grpc();
  raise_descriptor_limit();
  Log log(settings.log_format == "json" ? Log::Format::kJson : Log::Format::kText,
          settings.log_level);
  for (const std::string& variable : config.ignored())
    log.info("ignored a variable of Kubernetes", {{"name", variable}});
  if (settings.engine.model.empty())
    return refuse(invalid("--model is not set; give a .gguf file or a folder with config.json"),
                  settings);
  for (const std::string& line : settle(&settings.engine)) log.warn(line);

  Clock clock;
  settings.server.version = version();
  settings.server.commit = commit();
  settings.server.plan_memory = [&settings](const std::map<std::string, std::string>& flags) {
    return plan_with_flags(settings, flags);
  };
  set_termination_log(settings.termination_log);
  end_on_faults(&settings.server);
  std::unique_ptr<Engine> engine;  // outlives the server
  Result<std::unique_ptr<Server>> started = Server::start(settings.server, clock, log);
  if (!started.ok()) return refuse(started.status(), settings);
  Server& server = **started;
  set_dying_server(&server);
  log.info("listening", {{"address", settings.server.listen},
                         {"port", int64_t{server.port()}},
                         {"metrics", settings.server.metrics_listen},
                         {"admin", settings.server.admin_listen}});
  if (std::string w = device_warning(settings.engine); !w.empty()) log.warn(w);
  int64_t began_us = clock.now_us();
  Loading loading(settings, clock);
  if (!wait_until_loaded(set, settings, loading, clock, server, log))
    server.set_not_serving(), end_at_once(log);
  loading.thread.join();
  if (!loading.result->ok()) {
    set_dying_server(nullptr);
    return refuse(loading.result->status(), settings);
  }
  engine = std::move((*loading.result)->engine);
  if (Status s = test_engine(*engine, log); !s.ok()) {
    set_dying_server(nullptr);
    return refuse(s, settings), kFault;
  }
  for (const std::string& note : start_notes(settings.engine)) log.warn(note);
  engine->start();
  const EngineInfo& info = engine->info();
  log.info("ready", {{"model", (*loading.result)->model.name},
                     {"architecture", info.architecture},
                     {"device", info.device},
                     {"dtype", info.dtype},
                     {"context", info.max_context},
                     {"load_s", 1e-6 * static_cast<double>(clock.now_us() - began_us)}});
  for (const std::string& note : info.notes) log.info("draft differs", {{"how", note}});
  server.set_ready(std::move((*loading.result)->model), port_of(*engine));
  run_until_signal(set, server, log);
  set_dying_server(nullptr);
  started->reset();
  log.info("ended");
  return kOk;
}

}  // namespace

void declare_serve(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("serve", "Serve a model over gRPC");
  auto config = std::make_shared<Config>();
  config->declare(command, Option::Scope::kServe);
  command->callback([config, run] {
    *run = [config] {
      if (Status s = config->resolve(environ); !s.ok()) return fail(s);
      if (config->wants_print()) return std::fputs(config->print().c_str(), stdout), kOk;
      return serve(*config);
    };
  });
}

}  // namespace pf
