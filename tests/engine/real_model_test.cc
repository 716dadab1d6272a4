// Truth: losslessness on the real model. The text that the same engine gives without speculation,
// one sequence alone, is what every drafter, depth, batch, cache state and preemption must give.
#include "support/real_model.h"

#include <gtest/gtest.h>

#include <map>

#include "engine/load.h"

namespace pf {
namespace {

struct Run {
  std::vector<std::string> speculation = {"off"};
  int32_t k = 0;
  std::vector<int32_t> tree = {};
  int32_t tree_nodes = 0;
  int32_t draft_layers = 0;
  int32_t kv_blocks = 400;
  int32_t block_size = 16;
  const char* draft_length = "fixed";  // K is what the test says
  const char* kv_cache_dtype = "auto";
};

class RealEngine {
 public:
  explicit RealEngine(const Run& run) : inbox_(256), outbox_(4096) {
    EngineOptions o;
    o.model = real_model_path();
    o.drafts = {{"", draft_model_path()}, {"", draft_head_path()}};
    o.speculation = run.speculation;
    o.num_speculative_tokens = run.k;
    o.draft_length = run.draft_length;
    o.kv_cache_dtype = run.kv_cache_dtype;
    o.draft_layers = run.draft_layers;
    o.speculation_tree = run.tree;
    o.speculation_tree_nodes = run.tree_nodes;
    o.kv_blocks = run.kv_blocks;
    o.max_model_len = 128;
    o.max_num_seqs = 32;
    o.max_num_batched_tokens = 160;
    o.block_size = run.block_size;
    o.threads = 2;
    Result<EngineParts> parts = load_engine(o);
    EXPECT_TRUE(parts.ok()) << parts.status().message();
    pool_ = std::move(parts->pool);
    step = std::make_unique<Step>(std::move(parts->step), clock_, &inbox_, &outbox_);
  }
  void submit(uint64_t ticket, std::vector<int32_t> prompt, float temperature, int32_t max_new) {
    auto r = std::make_unique<Request>();
    r->ticket = ticket;
    r->prompt = std::move(prompt);
    r->sampling.temperature = temperature;
    r->has_seed = temperature > 0;
    r->seed = 77;
    r->stop.max_new_tokens = max_new;
    r->arrival_us = static_cast<int64_t>(ticket);
    step->take(std::move(r));
  }
  std::map<uint64_t, std::vector<int32_t>> run() {
    std::map<uint64_t, std::vector<int32_t>> texts;
    while (!step->idle()) {
      step->run();
      while (auto e = outbox_.try_pop()) {
        auto& t = texts[e->ticket];
        t.insert(t.end(), e->tokens.begin(), e->tokens.end());
        for (const VerifiedRound& round : e->rounds) {
          drafted += round.n_drafted;
          accepted += round.n_accepted;
        }
      }
    }
    step->check_integrity();
    EXPECT_EQ(step->kv().n_in_use(), 0);
    return texts;
  }
  std::unique_ptr<Step> step;
  int64_t drafted = 0, accepted = 0;

 private:
  Clock clock_;
  std::unique_ptr<ThreadPool> pool_;
  BoundedQueue<std::unique_ptr<Request>> inbox_;
  BoundedQueue<Event> outbox_;
};

// Prompt i: one of the golden prompts, from its i-th token on for later rounds, at most 60 tokens.
std::vector<int32_t> prompt(size_t i) {
  static const nlohmann::json prompts = golden("logits.json")["prompts"];
  auto ids = prompts[i % prompts.size()]["ids"].get<std::vector<int32_t>>();
  size_t from = std::min(i / prompts.size(), ids.size() - 2),
         n = std::min<size_t>(60, ids.size() - from);
  return {ids.begin() + static_cast<std::ptrdiff_t>(from),
          ids.begin() + static_cast<std::ptrdiff_t>(from + n)};
}

constexpr int32_t kNew = 24;

// The texts of prompts 0..15, each computed alone, without drafts and from an empty cache.
const std::vector<std::vector<int32_t>>& plain(float temperature,
                                               const char* kv_cache_dtype = "auto") {
  static std::map<std::pair<float, std::string>, std::vector<std::vector<int32_t>>> known;
  auto& texts = known[{temperature, kv_cache_dtype}];
  if (!texts.empty()) return texts;
  RealEngine engine({.kv_cache_dtype = kv_cache_dtype});
  for (size_t i = 0; i < 16; ++i) {
    engine.submit(i, prompt(i), temperature, kNew);
    texts.push_back(engine.run()[i]);
  }
  return texts;
}

void expect_plain(RealEngine* engine, size_t n, float temperature,
                  const char* kv_cache_dtype = "auto") {
  const auto& want = plain(temperature, kv_cache_dtype);
  for (size_t i = 0; i < n; ++i) engine->submit(100 + i, prompt(i), temperature, kNew);
  auto got = engine->run();
  for (size_t i = 0; i < n; ++i) EXPECT_EQ(got[100 + i], want[i]) << "prompt " << i;
}

class RealModel : public testing::TestWithParam<float> {
  void SetUp() override { PF_NEEDS_REAL_MODEL(); }
};

TEST_P(RealModel, BatchesAndPrefixHitsWithoutSpeculation) {
  RealEngine engine({});
  for (size_t n : {1, 7, 16}) expect_plain(&engine, n, GetParam());
  EXPECT_GT(engine.step->snapshot().n_prefix_hit_tokens, 0);
}

TEST_P(RealModel, EveryDrafterAndDepth) {
  for (const char* drafter : {"ngram", "model"})
    for (int32_t k : {1, 2, 4, 8}) {
      RealEngine engine({.speculation = {drafter}, .k = k});
      expect_plain(&engine, 7, GetParam());
      EXPECT_GT(engine.accepted, 0) << drafter << " K = " << k;
    }
}

TEST_P(RealModel, BothDraftersInEveryBatchWithPrefixHits) {
  RealEngine engine({.speculation = {"ngram", "model"}, .k = 4});
  for (size_t n : {1, 7, 16}) expect_plain(&engine, n, GetParam());
  EXPECT_GT(engine.accepted, 0);
}

TEST_P(RealModel, SuffixesAndAHead) {
  for (const char* drafter : {"suffix", "eagle"}) {
    RealEngine engine({.speculation = {drafter}, .k = 4});
    expect_plain(&engine, 7, GetParam());
    EXPECT_GT(engine.accepted, 0) << drafter;
  }
}

TEST_P(RealModel, Lookahead) {
  for (const char* rule : {"fixed", "adaptive"}) {
    RealEngine engine({.speculation = {"lookahead"}, .k = 6, .draft_length = rule});
    for (size_t n : {1, 7}) expect_plain(&engine, n, GetParam());
    EXPECT_GT(engine.step->snapshot().n_drafted, 0);
  }
}

TEST_P(RealModel, ACascadeAndItsModel) {
  RealEngine engine({.speculation = {"cascade"}, .k = 6});
  for (size_t n : {1, 7, 16}) expect_plain(&engine, n, GetParam());
  EXPECT_GT(engine.accepted, 0);
  std::vector<int64_t> rounds = engine.step->snapshot().rounds_per_drafter;
  ASSERT_EQ(rounds.size(), 3u) << "predicted, model, cascade";
  EXPECT_GT(rounds[1], 0);
  EXPECT_GT(rounds[2], 0);
}

TEST_P(RealModel, LengthsThatFollowTimeAndAcceptance) {
  for (const char* rule : {"adaptive", "window", "rate"}) {
    RealEngine engine({.speculation = {"ngram", "model"}, .k = 8, .draft_length = rule});
    for (size_t n : {1, 7, 16}) expect_plain(&engine, n, GetParam());
    EXPECT_GT(engine.accepted, 0) << rule;
  }
}

TEST_P(RealModel, Trees) {
  for (const char* drafter : {"suffix", "model", "eagle"}) {
    RealEngine engine({.speculation = {drafter}, .k = 3, .tree = {3, 2, 1}});
    expect_plain(&engine, 7, GetParam());
    EXPECT_GT(engine.accepted, 0) << drafter;
  }
}

TEST_P(RealModel, TreesThatGrow) {
  for (const char* drafter : {"model", "eagle"}) {
    RealEngine engine({.speculation = {drafter}, .k = 4, .tree_nodes = 12});
    expect_plain(&engine, 7, GetParam());
    EXPECT_GT(engine.accepted, 0) << drafter;
  }
}

TEST_P(RealModel, EarlyExitInChainsAndTrees) {
  for (const auto& tree : {std::vector<int32_t>{}, std::vector<int32_t>{2, 2, 1}}) {
    RealEngine engine({.speculation = {"early-exit"}, .k = 3, .tree = tree, .draft_layers = 24});
    expect_plain(&engine, 7, GetParam());
    EXPECT_GT(engine.accepted, 0);
  }
}

TEST_P(RealModel, AHeadBehindNgramsWithPrefixHitsAndPreemption) {
  RealEngine engine({.speculation = {"ngram", "eagle"}, .k = 4, .kv_blocks = 60, .block_size = 4});
  for (size_t n : {1, 16, 16}) expect_plain(&engine, n, GetParam());
  EXPECT_GT(engine.accepted, 0);
  EXPECT_GT(engine.step->snapshot().n_preemptions, 0);
}

TEST_P(RealModel, AfterForcedPreemption) {
  // A sequence is admitted with blocks of 4 for its up to 60 tokens and grows by 6 more; 60 hold
  // three at first and not at last.
  RealEngine engine({.speculation = {"ngram", "model"}, .k = 4, .kv_blocks = 60, .block_size = 4});
  expect_plain(&engine, 16, GetParam());
  EXPECT_GT(engine.step->snapshot().n_preemptions, 0);
}

const std::vector<Run> kInt8Runs = {
    {.speculation = {"ngram", "model"}, .k = 4, .kv_cache_dtype = "int8"},
    {.speculation = {"eagle"}, .k = 3, .tree = {3, 2, 1}, .kv_cache_dtype = "int8"},
    {.speculation = {"early-exit"}, .k = 3, .draft_layers = 24, .kv_cache_dtype = "int8"},
    {.speculation = {"ngram", "eagle"},
     .k = 4,
     .kv_blocks = 60,
     .block_size = 4,
     .kv_cache_dtype = "int8"}};

// Its own plain text, within int8: drafts, trees, batches, prefix hits and preemption keep it.
TEST_P(RealModel, Int8KvKeepsItsOwnPlainText) {
  for (const auto& run : kInt8Runs) {
    RealEngine engine(run);
    for (size_t again = 0; again < 2; ++again)
      expect_plain(&engine, run.kv_blocks == 60 ? 16 : 4, GetParam(), "int8");
    EXPECT_GT(engine.accepted, 0) << run.speculation.back();
    EXPECT_GT(engine.step->snapshot().n_prefix_hit_tokens, 0);
    EXPECT_EQ(engine.step->snapshot().n_preemptions > 0, run.kv_blocks == 60);
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, RealModel, testing::Values(0.0f, 0.8f),
                         [](const auto& info) { return info.param > 0 ? "Coupled" : "Greedy"; });

TEST(RealModelLoad, SelfDraftOfAllLayersInTheSameWeightsKeepsEverything) {
  PF_NEEDS_REAL_MODEL();
  EngineOptions o;
  o.model = real_model_path();
  o.drafts = {{"", "self"}};
  o.draft_quantization = "none";
  o.speculation = {"model"};
  o.num_speculative_tokens = 4;
  o.draft_length = "fixed";  // a draft that costs as much as the target would not be wanted
  o.max_model_len = 256;
  o.kv_blocks = 60;
  Result<EngineParts> parts = load_engine(o);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  Clock clock;
  BoundedQueue<std::unique_ptr<Request>> inbox(4);
  BoundedQueue<Event> outbox(64);
  auto pool = std::move(parts->pool);
  Step step(std::move(parts->step), clock, &inbox, &outbox);
  auto r = std::make_unique<Request>();
  r->prompt = prompt(1);
  r->stop.max_new_tokens = 21;
  step.take(std::move(r));
  SpeculationCounts counts;
  while (!step.idle()) {
    step.run();
    while (auto e = outbox.try_pop())
      for (const VerifiedRound& round : e->rounds) counts.add(round);
  }
  EXPECT_GT(counts.drafted, 0);
  EXPECT_EQ(counts.accepted, counts.drafted) << "verify is bit-equal to decode";
}

TEST(RealModelLoad, RefusesWithWhatWhereAndWhatToDo) {
  PF_NEEDS_REAL_MODEL();
  auto message = [](auto change) {
    EngineOptions o;
    o.model = real_model_path();
    change(&o);
    Result<EngineParts> parts = load_engine(o);
    EXPECT_FALSE(parts.ok());
    return parts.ok() ? std::string() : parts.status().message();
  };
  EXPECT_NE(message([](auto* o) { o->model = "/nonexistent.gguf"; }).find("/nonexistent.gguf"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->speculation = {"model"}; }).find("--draft"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->speculation = {"eagle"}; }).find("--draft"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->speculation = {"cascade"}; }).find("--draft"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) {
              o->speculation = {"eagle"};
              o->drafts = {{"", draft_model_path()}};
            }).find("name model"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) {
              o->speculation = {"model"};
              o->drafts = {{"", draft_head_path()}};
            }).find("name eagle"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) {
              o->drafts = {{"", draft_head_path()}, {"", draft_head_path()}};
            }).find("second draft head"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->model = draft_head_path(); }).find("--draft"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->speculation = {"early-exit"}; }).find("1..29"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) {
              o->speculation = {"early-exit"};
              o->draft_layers = 30;
            }).find("--draft-layers"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->speculation = {"oracle"}; }).find("known:"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->max_model_len = 9000; }).find("8192"), std::string::npos);
  EXPECT_NE(message([](auto* o) { o->kv_blocks = 5; }).find("--max-model-len"), std::string::npos);
  EXPECT_NE(message([](auto* o) { o->kv_blocks = 100'000'000; }).find("blocks fit"),
            std::string::npos);
  EXPECT_NE(message([](auto* o) { o->max_num_batched_tokens = 8; }).find("--max-num-seqs"),
            std::string::npos);
}

}  // namespace
}  // namespace pf
