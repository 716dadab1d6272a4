#include "bench/message_rows.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>

#include "bench/byte_vocabulary.h"
#include "bench/measure.h"
#include "bench/scripted_backend.h"
#include "engine/load.h"
#include "server/server.h"

namespace pf {
namespace {

constexpr int32_t kStreams = 64, kPromptTokens = 16, kBlockTokens = 16;
constexpr int64_t kContext = 1024;
constexpr auto kBetweenSteps = std::chrono::milliseconds(8);

double process_cpu_s() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  auto seconds = [](timeval t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// CPU time of the engine thread as the device sees it, once a step.
using EngineTime = std::atomic<double>;

EngineParts scripted_engine(EngineTime* engine_s) {
  auto target = std::make_unique<ScriptedBackend>(kContext);
  target->on_forward = [engine_s](int32_t) {
    engine_s->store(thread_cpu_s());
    std::this_thread::sleep_for(kBetweenSteps);
  };
  EngineParts parts;
  parts.info.architecture = "scripted";
  parts.info.dtype = parts.info.kv_dtype = "none";
  parts.info.device = "scripted";
  parts.info.vocabulary_size = 256;
  parts.info.max_context = kContext;
  parts.step.kv = {kStreams * static_cast<int32_t>(kContext / kBlockTokens + 1), kBlockTokens, 1,
                   false};
  parts.step.scheduler.max_num_seqs = kStreams;
  parts.step.scheduler.max_num_batched_tokens = kStreams * kPromptTokens;
  parts.step.target = std::move(target);
  parts.step.max_context = kContext;
  parts.max_queue = kStreams;
  return parts;
}

ServedModel scripted_model(const EngineInfo& info) {
  Result<Tokenizer> tokenizer = Tokenizer::create(byte_vocabulary());
  check(tokenizer.ok(), "the vocabulary of bytes is refused");
  return {.name = "scripted",
          .info = info,
          .tokenizer = tokenizer.take(),
          .chat = {},
          .defaults = {},
          .seed = 1,
          .max_num_seqs = kStreams,
          .max_num_batched_tokens = kStreams * kPromptTokens,
          .max_queue = kStreams};
}

// A file's name that nobody else has; the file goes with it.
class TemporaryFile {
 public:
  TemporaryFile() {
    path_ = (std::filesystem::temp_directory_path() / "pilotfish-bench.XXXXXX").string();
    file_ = mkstemp(path_.data());
  }
  ~TemporaryFile() {
    if (file_ < 0) return;
    close(file_);
    unlink(path_.c_str());
  }
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;
  bool ok() const { return file_ >= 0; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  int file_ = -1;
};

// Runs the program until it ends, with nothing on its stdout.
Status run_program(const std::string& program, std::vector<std::string> arguments) {
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& a : arguments) argv.push_back(a.data());
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = 0;
  int error = posix_spawn(&child, program.c_str(), &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0) return invalid(program + " does not start: " + std::strerror(error));
  int status = 0;
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return invalid(program + " cannot be waited for");
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return invalid(program + " serve failed; its line above says why");
  return {};
}

// What one load has cost: 64 streams of so many tokens.
struct Spent {
  double process_s = 0, engine_s = 0;
  int64_t n_messages = 0, n_tokens = 0;
};

Result<Spent> send_load(const std::string& program, int port, int32_t n_tokens,
                        const EngineTime& engine_s) {
  TemporaryFile file;
  if (!file.ok()) return invalid("no temporary file can be made");
  const double process = process_cpu_s(), engine = engine_s.load();
  auto count = [](int64_t n) { return std::to_string(n); };
  Status s = run_program(program, {"serve", "--target", "127.0.0.1:" + count(port), "--num-prompts",
                                   count(kStreams), "--input-len", count(kPromptTokens),
                                   "--output-len", count(n_tokens), "--json", file.path()});
  if (!s.ok()) return s;
  Spent spent{process_cpu_s() - process, engine_s.load() - engine, 0, 0};
  std::ifstream in(file.path());
  const Json said = Json::parse(in, nullptr, false);
  if (!said.is_object() || said.value("completed", 0) != kStreams)
    return invalid("the load on the scripted server did not complete");
  spent.n_messages = said.at("total_messages");
  spent.n_tokens = said.at("total_output_tokens");
  return spent;
}

}  // namespace

Status bench_messages(const std::string& program, bool quick, Report* report) {
  const Clock clock;
  EngineTime engine_s{0};
  Engine engine(scripted_engine(&engine_s), clock);
  Log log(Log::Format::kText, "error");
  ServerOptions options;
  options.listen = "127.0.0.1:0";
  options.metrics_listen = "";
  Result<std::unique_ptr<Server>> server = Server::start(options, clock, log);
  if (!server.ok()) return server.status();
  engine.start();
  (*server)->set_ready(scripted_model(engine.info()), port_of(engine));
  const int32_t n_short = 16, n_long = quick ? 48 : 16 + 256;
  std::vector<double> us;
  int64_t n_messages = 0, n_tokens = 0;
  for (int i = 0; i < (quick ? 1 : 7); ++i) {
    Spent by_length[2];
    for (int l = 0; l < 2; ++l) {
      Result<Spent> spent =
          send_load(program, (*server)->port(), l == 0 ? n_short : n_long, engine_s);
      if (!spent.ok()) return spent.status();
      by_length[l] = *spent;
    }
    const auto& [less, more] = by_length;
    const int64_t messages = more.n_messages - less.n_messages;
    us.push_back(1e6 * (more.process_s - more.engine_s - less.process_s + less.engine_s) /
                 static_cast<double>(messages));
    n_messages += messages;
    n_tokens += more.n_tokens - less.n_tokens;
  }
  const Spread spread = spread_of(us);
  const double each = static_cast<double>(n_messages) / static_cast<double>(n_tokens);
  report->add("messages", {{"streams", kStreams},
                           {"messages", n_messages},
                           {"per request and step", each},
                           {"CPU us each", spread.median},
                           {"q1", spread.q1},
                           {"q3", spread.q3}});
  report->add(
      Goal{"C8.message", "CPU us of a streamed message at 64 streams", spread.median, 8, false});
  report->add(Goal{"C8.each", "messages per request and step", each, 0.99, true});
  return {};
}

}  // namespace pf
