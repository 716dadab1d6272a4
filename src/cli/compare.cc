// `pilotfish compare`: why does the draft miss? Both models read the prompts and what the target
// says to them, position by position; then the engine itself runs with the draft and without.
#include <atomic>
#include <cstdio>
#include <fstream>
#include <numeric>
#include <optional>
#include <sstream>

#include "base/files.h"
#include "cli/commands.h"
#include "cli/compare_stats.h"
#include "cli/config.h"
#include "cli/draft_tokens.h"
#include "cli/load_report.h"
#include "cli/load_text.h"
#include "cli/settle.h"
#include "engine/device.h"
#include "engine/load.h"
#include "engine/self_test.h"
#include "speculation/model_drafter.h"

namespace pf {
namespace {

struct CompareOptions {
  std::vector<std::string> prompts;
  std::string prompt_file, json;
  int32_t n_new_tokens = 64;
  size_t n_shown = 8;
};

constexpr int32_t kDraftTokens = 5;  // K of the measurement, as the self-test's verify pass has

Result<std::vector<std::string>> prompts_of(const CompareOptions& o) {
  std::vector<std::string> prompts = o.prompts;
  if (!o.prompt_file.empty()) {
    Result<std::string> all = read_whole_file(o.prompt_file, kMaxRequestBytes);
    if (!all.ok()) return all.status().within("--prompt-file");
    std::istringstream in(*all);
    for (std::string text; std::getline(in, text);)
      if (!text.empty()) prompts.push_back(text);
    if (prompts.empty()) return invalid("--prompt-file: " + o.prompt_file + ": has no prompt");
  }
  if (prompts.empty()) return invalid("give --prompt, or --prompt-file with one prompt a line");
  return prompts;
}

// One text of a model, fed by hand.
class Reader {
 public:
  Reader(Backend& backend, int64_t max_rows)
      : backend_(backend),
        max_rows_(static_cast<size_t>(max_rows)),
        logits_(static_cast<size_t>(backend.info().vocabulary_size), 0.0f) {}

  // Runs tokens at slots [base, base + size).
  void run(std::span<const int32_t> tokens, int64_t base, std::span<const BlockId> blocks) {
    for (size_t at = 0; at < tokens.size(); at += max_rows_) {
      auto some = tokens.subspan(at, std::min(max_rows_, tokens.size() - at));
      Batch batch;
      batch.add(some, base + static_cast<int64_t>(at), nullptr, blocks, Batch::Logits::kLast);
      backend_.forward(batch);
    }
    auto V = static_cast<int64_t>(logits_.size());
    if (!tokens.empty()) backend_.read_logits(0, 1, {logits_.data(), {1, V}});
  }
  // Behind the last token. Who has read nothing knows nothing: all alike.
  const std::vector<float>& logits() const { return logits_; }

 private:
  Backend& backend_;
  const size_t max_rows_;
  std::vector<float> logits_;
};

std::vector<BlockId> first_blocks(int32_t n) {
  std::vector<BlockId> blocks(static_cast<size_t>(n));
  std::iota(blocks.begin(), blocks.end(), 0);
  return blocks;
}

// The draft reads what the engine would feed it for a text of the target: in its plane, or through
// a window, in its own tokens; and answers under the target's names.
class DraftReader {
 public:
  DraftReader(ModelDrafter& draft, int32_t n_blocks, int64_t max_rows)
      : draft_(draft), blocks_(first_blocks(n_blocks)), reader_(draft.backend(), max_rows) {
    text_.request = &request_;
    if (draft.windows()) windows_.emplace(draft.options().windows, &draft.options().vocabulary);
  }

  void feed(std::span<const int32_t> tokens) {
    const int64_t n_before = text_.n_tokens();
    text_.tokens.insert(text_.tokens.end(), tokens.begin(), tokens.end());
    if (draft_.uses_plane(text_.n_tokens())) return run(tokens, n_before, blocks_);
    if (!windows_->follow(text_)) return;  // no token so far that it knows
    DraftWindows::Job job = windows_->job(text_, 0);
    run(job.committed, job.base, job.blocks);
    windows_->note(text_, job, {});
  }
  std::vector<float> logits() const {
    return translate_logits(reader_.logits(), draft_.options().vocabulary);
  }

 private:
  void run(std::span<const int32_t> tokens, int64_t base, std::span<const BlockId> blocks) {
    std::vector<int32_t> own(tokens.begin(), tokens.end());
    const int32_t n_known = draft_.options().n_known;  // the rest is padding that it lacks
    for (int32_t& token : own)
      if (n_known > 0 && token >= n_known) token = 0;
    reader_.run(own, base, blocks);
  }

  const ModelDrafter& draft_;
  const std::vector<BlockId> blocks_;
  Reader reader_;
  const Request request_{};
  Sequence text_;
  std::optional<DraftWindows> windows_;
};

void print_position(const PositionComparison& c, int64_t position, const Tokenizer& tokenizer) {
  auto names = [&](const std::vector<std::pair<int32_t, float>>& top) {
    std::string text;
    for (auto [token, p] : top) {
      char number[16];
      std::snprintf(number, sizeof(number), " %.2f  ", p);
      text += (token < tokenizer.size() ? excerpt(tokenizer.bytes(token)) : "?") + number;
    }
    return text;
  };
  std::printf("position %lld  Jaccard %.2f  1 - TV %.2f\n  target %s\n  draft  %s\n",
              static_cast<long long>(position), c.jaccard, 1 - c.total_variation,
              names(c.target_top).c_str(), names(c.draft_top).c_str());
}

class Comparison {
 public:
  Comparison(const CompareOptions& o, EngineParts parts, const Tokenizer& tokenizer)
      : o_(o), parts_(std::move(parts)), tokenizer_(tokenizer) {}

  Result<CompareReport> run(const std::vector<std::string>& prompts) {
    for (int32_t d = 0; d < parts_.step.drafters.size() && drafter_ == nullptr; ++d)
      drafter_ = dynamic_cast<ModelDrafter*>(&parts_.step.drafters[d]);
    if (drafter_ == nullptr)
      return invalid("compare needs a draft model: give one with --draft PATH or --draft self");
    if (drafter_->room_tokens() < SelfTestInput::kDraftTokens)
      return invalid("compare needs a draft with room for " +
                     std::to_string(SelfTestInput::kDraftTokens) + " tokens; " + drafter_->name() +
                     " has room for " + std::to_string(drafter_->room_tokens()) +
                     ": raise --max-prefix-len, or take a draft with a longer context");
    report_.draft = drafter_->name();
    report_.k = kDraftTokens;
    const int64_t longest = std::min(parts_.step.max_context, drafter_->max_context());
    std::vector<std::vector<int32_t>> texts;
    for (const std::string& prompt : prompts) {
      texts.push_back(tokenizer_.encode(prompt));
      if (texts.back().empty() ||
          static_cast<int64_t>(texts.back().size()) + o_.n_new_tokens > longest)
        return invalid("a prompt is empty, or with --max-new-tokens beyond the context of " +
                       std::to_string(longest) + " tokens");
    }
    parts_.pool->begin();
    Result<bool> read = measure_models(texts);
    parts_.pool->end();
    if (!read.ok()) return read.status();
    measure_engine(texts);
    return report_;
  }

 private:
  Result<bool> measure_models(const std::vector<std::vector<int32_t>>& texts) {
    SelfTestInput in{parts_.step.target.get(),
                     {&drafter_->backend()},
                     parts_.step.kv.block_tokens,
                     parts_.step.kv.n_blocks,
                     parts_.step.scheduler.max_num_batched_tokens,
                     parts_.step.max_context};
    Result<SelfTestReport> tested = self_test(in, clock_);
    if (!tested.ok()) return tested.status();
    double one = tested->target_step_seconds(), wide = 0;
    for (const SelfTestReport::Pass& p : tested->target_passes)
      if (p.n_rows == kDraftTokens + 1 && (wide == 0 || p.seconds < wide)) wide = p.seconds;
    if (!(one > 0) || !(wide > 0))
      return invalid("too little room to measure: raise --kv-blocks or --max-num-batched-tokens");
    report_.step_ratio = tested->draft_seconds[0] / one;
    report_.verify_ratio = wide / one;
    for (const auto& text : texts) compare_text(text);
    return true;
  }

  // The target goes on greedily; the draft reads the same tokens.
  void compare_text(const std::vector<int32_t>& prompt) {
    const int64_t max_rows = parts_.step.scheduler.max_num_batched_tokens;
    const int32_t n_blocks = parts_.step.kv.n_blocks;
    const std::vector<BlockId> blocks = first_blocks(n_blocks);
    Reader target(*parts_.step.target, max_rows);
    DraftReader draft(*drafter_, n_blocks, max_rows);
    target.run(prompt, 0, blocks);
    draft.feed(prompt);
    for (int32_t i = 0; i < o_.n_new_tokens; ++i) {
      const auto position = static_cast<int64_t>(prompt.size()) + i;
      PositionComparison c = compare_position(target.logits(), draft.logits());
      report_.add(c);
      if (report_.n_positions() <= o_.n_shown) print_position(c, position, tokenizer_);
      int32_t next = c.target_top[0].first;
      target.run({&next, 1}, position, blocks);
      draft.feed({&next, 1});
    }
  }

  // Every prompt with K = 0 and with K, in turns; the first pair warms up and does not count.
  void measure_engine(const std::vector<std::vector<int32_t>>& texts) {
    Engine engine(std::move(parts_), clock_);
    engine.start();
    double seconds[2] = {0, 0};
    int64_t n_tokens = 0, n_rounds = 0;
    std::vector<int64_t> drafted(kDraftTokens, 0), kept(kDraftTokens, 0);
    for (size_t i = 0; i <= texts.size(); ++i)
      for (int fixed : {0, 1}) {
        SpeculationCounts counts;
        PhaseTimes times = answer(engine, texts[i == 0 ? 0 : i - 1], fixed == 1, &counts);
        if (i == 0) continue;
        seconds[fixed] += 1e-6 * static_cast<double>(times.end_us - times.first_token_us);
        if (fixed == 0) continue;
        n_tokens += o_.n_new_tokens - 1;
        n_rounds += counts.rounds;
        for (size_t d = 0; d < counts.drafted_at.size() && d < drafted.size(); ++d) {
          drafted[d] += counts.drafted_at[d];
          kept[d] += counts.accepted_at[d];
        }
      }
    for (size_t d = 0; d < drafted.size(); ++d) {
      int64_t reached = d == 0 ? drafted[0] : std::min(drafted[d], kept[d - 1]);
      report_.acceptance.push_back(
          reached > 0 ? static_cast<double>(kept[d]) / static_cast<double>(reached) : 0);
    }
    if (n_rounds > 0)
      report_.accepted_length = static_cast<double>(n_tokens) / static_cast<double>(n_rounds);
    if (seconds[0] > 0) report_.plain_tokens_per_s = static_cast<double>(n_tokens) / seconds[0];
    if (seconds[1] > 0) report_.tokens_per_s = static_cast<double>(n_tokens) / seconds[1];
  }

  // Greedy, without a stop.
  PhaseTimes answer(Engine& engine, const std::vector<int32_t>& prompt, bool fixed,
                    SpeculationCounts* counts) {
    auto request = std::make_unique<Request>();
    request->ticket = ++ticket_;
    request->prompt = prompt;
    request->stop.max_new_tokens = o_.n_new_tokens;
    request->arrival_us = clock_.now_us();
    using Mode = SpeculationParams::Mode;
    request->speculation.mode = fixed ? Mode::kFixed : Mode::kOff;
    request->speculation.n_draft_tokens = kDraftTokens;
    request->speculation.drafters = {report_.draft};
    while (!engine.submit(request)) std::this_thread::yield();
    for (;;) {
      std::optional<Event> event = engine.outbox().pop();
      if (!event) continue;
      for (const VerifiedRound& round : event->rounds) counts->add(round);
      if (event->finish != FinishReason::kNone) return event->times;
    }
  }

  const CompareOptions& o_;
  EngineParts parts_;
  const Tokenizer& tokenizer_;
  Clock clock_;
  ModelDrafter* drafter_ = nullptr;
  uint64_t ticket_ = 0;
  CompareReport report_;
};

int compare(const CompareOptions& o, Config& config) {
  Result<std::vector<std::string>> prompts = prompts_of(o);
  if (!prompts.ok()) return fail(prompts.status());
  if (Status s = o.json.empty() ? Status() : check_can_write(o.json); !s.ok())
    return fail(s.within("--json"));
  EngineOptions engine = config.settings().engine;
  if (engine.model.empty())
    return fail(invalid("--model is not set; give a .gguf file or a folder with config.json"));
  Result<ModelText> text = load_text(engine.model);
  if (!text.ok()) return fail(text.status());
  engine.speculation = {"model"};
  settle_aloud(&engine);
  if (Status s = read_draft_tokens(text->tokenizer, &engine); !s.ok()) return fail(s);
  if (std::string w = device_warning(engine); !w.empty())
    std::fprintf(stderr, "pilotfish: warning: %s\n", w.c_str());
  Result<EngineParts> parts = [&] {
    Progress progress;
    LoadWatch watch(progress);
    return load_engine(engine, &progress);
  }();
  if (!parts.ok()) return fail(parts.status());
  Comparison comparison(o, parts.take(), text->tokenizer);
  Result<CompareReport> report = comparison.run(*prompts);
  if (!report.ok()) return fail(report.status());
  std::fputs(plain_text(*report).c_str(), stdout);
  if (!o.json.empty()) {
    std::ofstream out(o.json);
    out << json_text(*report) << "\n";
    if (!out.flush()) return fail(invalid("--json " + o.json + " cannot be written"));
  }
  for (const CompareGoal& goal : compare_goals(*report))
    if (!goal.pass()) return kCheckSaidNo;
  return kOk;
}

}  // namespace

void declare_compare(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand(
      "compare",
      "Why does the draft miss? Compare it with the model on prompts (exit 1 when it "
      "misses a threshold)");
  auto o = std::make_shared<CompareOptions>();
  auto config = std::make_shared<Config>();
  command->add_option("--prompt", o->prompts, "A prompt; may be repeated")
      ->type_name("TEXT")
      ->allow_extra_args(false)
      ->group("Comparison");
  command->add_option("--prompt-file", o->prompt_file, "Prompts, one a line")
      ->type_name("FILE")
      ->group("Comparison");
  command->add_option("--max-new-tokens", o->n_new_tokens, "Tokens of every answer")
      ->type_name("N")
      ->check(CLI::Range(8, 4096))
      ->capture_default_str()
      ->group("Comparison");
  command->add_option("--positions", o->n_shown, "Positions to show, with the top 5 of both models")
      ->type_name("N")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str()
      ->group("Comparison");
  command->add_option("--json", o->json, "Also write the figures and goals to a file")
      ->type_name("FILE")
      ->group("Comparison");
  config->declare(command, Option::Scope::kEngine);
  command->callback([o, config, run] {
    *run = [o, config] {
      if (Status s = config->resolve(environ); !s.ok()) return fail(s);
      if (config->wants_print()) return std::fputs(config->print().c_str(), stdout), kOk;
      return compare(*o, *config);
    };
  });
}

}  // namespace pf
