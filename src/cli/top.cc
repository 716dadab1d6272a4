#include "cli/top.h"

#include <grpcpp/grpcpp.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <thread>

#include "cli/client.h"
#include "cli/commands.h"
#include "cli/parse_value.h"
#include "proto/pilotfish/v1/admin.grpc.pb.h"

namespace pf {
namespace {

namespace wire = pilotfish::v1;

struct TopOptions {
  ClientOptions client{.target = "127.0.0.1:50052"};
  std::string interval = "1s";
  int32_t count = 0;
  std::string token_file;
};

template <class... Values>
std::string line(const char* form, Values... values) {
  char text[256];
  std::snprintf(text, sizeof(text), form, values...);
  return text;
}

double percent(uint64_t part, uint64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

// The first word of a file, as a bearer token; "" without a file.
Result<std::string> bearer_of(const TopOptions& o) {
  Result<std::string> text = read_flag_file("--auth-token-file", o.token_file);
  if (!text.ok() || text->empty()) return text;
  size_t begin = text->find_first_not_of(" \t\r\n");
  if (begin == std::string::npos) return invalid("--auth-token-file " + o.token_file + " is empty");
  return "Bearer " + text->substr(begin, text->find_first_of(" \t\r\n", begin) - begin);
}

int watch(const TopOptions& o) {
  Result<int64_t> timeout = parse_duration_us(o.client.timeout);
  if (!timeout.ok()) return fail(timeout.status().within("--timeout"));
  Result<int64_t> interval = parse_duration_us(o.interval);
  if (!interval.ok()) return fail(interval.status().within("--interval"));
  auto credentials = credentials_of(o.client);
  if (!credentials.ok()) return fail(credentials.status());
  Result<std::string> bearer = bearer_of(o);
  if (!bearer.ok()) return fail(bearer.status());
  auto stub = wire::Admin::NewStub(grpc::CreateChannel(o.client.target, *credentials));
  bool terminal = isatty(STDOUT_FILENO) != 0;
  for (int32_t i = 0; o.count == 0 || i < o.count; ++i) {
    if (i > 0) std::this_thread::sleep_for(std::chrono::microseconds(*interval));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::microseconds(*timeout));
    if (!bearer->empty()) context.AddMetadata("authorization", *bearer);
    wire::ServerInfo info;
    grpc::Status status = stub->GetServerInfo(&context, {}, &info);
    if (!status.ok()) {
      std::fprintf(stderr,
                   "pilotfish: top: %s does not answer: %s; is it the server's --admin-listen?\n",
                   o.client.target.c_str(), status.error_message().c_str());
      return kCheckSaidNo;
    }
    if (terminal) std::fputs("\x1b[H\x1b[2J", stdout);
    std::fputs(top_screen(info).c_str(), stdout);
    std::fflush(stdout);
  }
  return kOk;
}

}  // namespace

std::string top_screen(const wire::ServerInfo& i) {
  uint64_t seconds = i.uptime_ms() / 1000;
  std::string text =
      line("pilotfish %s (%s)  %s  up %llu:%02llu:%02llu\n", i.version().c_str(),
           i.commit().c_str(), i.state().c_str(), static_cast<unsigned long long>(seconds / 3600),
           static_cast<unsigned long long>(seconds / 60 % 60),
           static_cast<unsigned long long>(seconds % 60));
  text += line("  requests      %u running, %u waiting\n", i.running(), i.waiting());
  text += line("  tokens/s      %.1f   speed-up %s against K = 0\n", i.tokens_per_second(),
               i.speedup() > 0 ? line("%.2f", i.speedup()).c_str() : "-");
  text += line("  acceptance    %.2f   accepted length %.2f   K %.1f   alpha %.2f\n",
               i.acceptance_rate(), i.accepted_length(), i.draft_length(), i.alpha());
  text += line("  utilisation   %.0f %%\n", i.utilisation());
  text += line("  KV blocks     %u of %u in use (%.0f %%), %u cached\n", i.kv_blocks_in_use(),
               i.kv_blocks_total(), percent(i.kv_blocks_in_use(), i.kv_blocks_total()),
               i.kv_blocks_cached());
  text += line("  memory        %.1f of %.1f GB\n",
               1e-9 * static_cast<double>(i.memory().total_bytes()),
               1e-9 * static_cast<double>(i.memory().device_bytes()));
  const bool idle = i.running() + i.waiting() == 0;
  text += line("  steps         %llu, ", static_cast<unsigned long long>(i.steps()));
  text +=
      idle ? "idle\n"
           : line("the last %llu ms ago\n", static_cast<unsigned long long>(i.last_step_age_ms()));
  return text;
}

void declare_top(CLI::App* app, Run* run) {
  CLI::App* command =
      app->add_subcommand("top", "Watch a server: requests, tokens per second, acceptance, KV");
  auto o = std::make_shared<TopOptions>();
  declare_client(command, &o->client);
  command->add_option("--interval", o->interval, "Between two looks [1s]")->type_name("TIME");
  command->add_option("--count", o->count, "Looks; 0: until interrupted [0]")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000'000));
  command->add_option("--auth-token-file", o->token_file, "Its first word is the bearer token")
      ->type_name("FILE");
  command->callback([o, run] { *run = [o] { return watch(*o); }; });
}

}  // namespace pf
