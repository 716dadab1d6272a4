#include <google/protobuf/util/json_util.h>

#include <cstdio>

#include "cli/checks.h"
#include "cli/commands.h"
#include "cli/config.h"
#include "cli/generate_request.h"
#include "cli/generate_stats.h"
#include "cli/load_report.h"
#include "cli/settle.h"
#include "engine/device.h"
#include "server/answer.h"
#include "server/make_request.h"

namespace pf {
namespace {

// The same border and the same assembly as the server's, without a network between.
Result<wire::GenerateResponse> answer(const wire::GenerateRequest& r, Loaded& loaded,
                                      const Clock& clock, uint64_t ticket, bool show,
                                      bool context_is_set) {
  if (Status s = check_request(r, loaded.model); !s.ok()) return in_flags(s, context_is_set);
  Result<PreparedRequest> prepared = make_request(r, loaded.model, clock.now_us());
  if (!prepared.ok()) return in_flags(prepared.status(), context_is_set);
  std::atomic<uint32_t> cancel{0};
  prepared->request->ticket = ticket;
  prepared->request->cancel = &cancel;
  Answer answer(loaded.model.tokenizer, std::move(prepared->answer));
  if (!loaded.engine->submit(prepared->request))
    return Status(Code::kResourceExhausted, "the engine's queue is full; raise --max-queue");
  wire::GenerateResponse response;
  response.add_completions();
  while (!answer.finished()) {
    std::optional<Event> event = loaded.engine->outbox().pop();
    if (!event) continue;
    std::vector<wire::GenerateChunk> chunks;
    answer.push(std::move(*event), clock.now_us(), &chunks);
    if (answer.stopped() != 0 && cancel.exchange(~0u) == 0) loaded.engine->cancelled(ticket);
    for (wire::GenerateChunk& chunk : chunks) {
      if (show) std::fwrite(chunk.text().data(), 1, chunk.text().size(), stdout);
      if (chunk.has_prompt()) *response.mutable_prompt() = std::move(*chunk.mutable_prompt());
      append_chunk(std::move(chunk), response.mutable_completions(0));
    }
    if (show) std::fflush(stdout);
  }
  if (answer.failure() != FinishReason::kNone)
    return Status(Code::kInternal, "the model's logits were not finite; is the file damaged?");
  return response;
}

std::string json_of(const wire::GenerateResponse& response) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  return google::protobuf::util::MessageToJsonString(response, &text, options).ok() ? text : "{}";
}

int run(const GenerateOptions& o, Loaded& loaded, const Clock& clock,
        const wire::GenerateRequest& asked, bool context_is_set) {
  wire::GenerateRequest request = asked;
  bool show = !o.json && !o.quiet;
  auto first = answer(request, loaded, clock, 1, show, context_is_set);
  if (!first.ok()) return fail(first.status());
  if (show) std::printf("\n");
  if (!o.stats) {
    if (o.json) std::printf("%s\n", json_of(*first).c_str());
    return kOk;
  }
  // The first run also warmed everything up. Now both ways again, with the same draws; each
  // under a salt of its own, or a drafter would only have to remember the answer.
  request.mutable_sampling()->set_seed(first->completions(0).finish().seed());
  wire::GenerateRequest plain = request;
  plain.mutable_speculation()->Clear();
  plain.mutable_speculation()->set_mode(wire::Speculation::OFF);
  plain.set_cache_salt("plain");
  request.set_cache_salt("speculative");
  auto without = answer(plain, loaded, clock, 2, false, context_is_set);
  if (!without.ok()) return fail(without.status());
  auto with = answer(request, loaded, clock, 3, false, context_is_set);
  if (!with.ok()) return fail(with.status());
  GenerateStats stats = stats_of(with->completions(0), without->completions(0));
  if (o.json)
    // That of the stats: the first run's counts are of a machine that was cold.
    std::printf("{\"response\":%s,\"stats\":%s}\n", json_of(*with).c_str(),
                json_text(stats).c_str());
  else
    std::fputs(plain_text(stats).c_str(), stdout);
  return kOk;
}

int generate(const GenerateOptions& o, Config& config) {
  Result<wire::GenerateRequest> request = make_generate_request(o);
  if (!request.ok()) return fail(request.status());
  settle_aloud(&config.settings().engine);
  if (std::string w = unused_alpha(config.settings().engine); !w.empty())
    std::fprintf(stderr, "pilotfish: warning: %s\n", w.c_str());
  Clock clock;
  if (std::string w = device_warning(config.settings().engine); !w.empty())
    std::fprintf(stderr, "pilotfish: warning: %s\n", w.c_str());
  Result<Loaded> loaded = [&] {
    Progress progress;
    LoadWatch watch(progress);
    return load_engine_and_text(config.settings(), clock, &progress);
  }();
  if (!loaded.ok()) return fail(loaded.status());
  loaded->engine->start();
  return run(o, *loaded, clock, *request, config.settings().engine.max_model_len > 0);
}

}  // namespace

void declare_generate(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand("generate", "Answer one prompt, without a network");
  auto o = std::make_shared<GenerateOptions>();
  auto config = std::make_shared<Config>();
  // Not as an option of std::optional, which CLI11 leaves unset for an empty text.
  auto add = [&]<class T>(const char* name, std::optional<T>& field, const char* help,
                          const char* values) {
    return command
        ->add_option_function<T>(
            name, [&field](const T& value) { field = value; }, help)
        ->type_name(values)
        ->group("Prompt and answer");
  };
  auto flag = [&](const char* name, bool& field, const char* help) {
    command->add_flag(name, field, help)->group("Prompt and answer");
  };
  add("--prompt", o->prompt, "The prompt", "TEXT");
  add("--prompt-file", o->prompt_file, "Read the prompt from a file; -: from standard input",
      "FILE");
  add("--predicted-file", o->predicted_file,
      "What the answer may be much like; drafted where it fits, so an edit comes faster", "FILE");
  flag("--chat", o->chat, "Put the prompt into the model's chat template as the user's message");
  add("--max-new-tokens", o->max_new_tokens, "Most tokens of the answer [the model's, or 256]", "N")
      ->check(whole_number(1, UINT32_MAX));
  add("--temperature", o->temperature, "0: greedy [the model's, or 0]", "X")
      ->check(real_number(0, 100));
  add("--top-k", o->top_k, "0: off [the model's, or 0]", "N")->check(whole_number(-1, INT32_MAX));
  add("--top-p", o->top_p, "1: off [the model's, or 1]", "X")->check(real_number(0, 1, true));
  command->add_option("--stop", o->stop, "End the answer before this text; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Prompt and answer");
  flag("--json", o->json, "Print one JSON object instead of the text");
  flag("--stats", o->stats, "Then run it again without speculation, and print what it gained");
  flag("--quiet", o->quiet, "Do not print the text");
  config->declare(command, Option::Scope::kEngine);
  command->callback([o, config, run] {
    *run = [o, config] {
      if (Status s = config->resolve(environ); !s.ok()) return fail(s);
      if (config->wants_print()) return std::fputs(config->print().c_str(), stdout), kOk;
      return generate(*o, *config);
    };
  });
}

}  // namespace pf
