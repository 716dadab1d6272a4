// Truth: hand-worked refusals; and losslessness: the text of the same tiny model without drafts.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstring>
#include <map>
#include <thread>

#include "engine/load.h"
#include "model/model.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;
using test::StRow;
using testing::HasSubstr;
using Tokens = DraftOption::Tokens;

constexpr int32_t kV = 40;  // of the tiny model

// The tiny model's tensors with other rows of the vocabulary: row i is row `from[i]` of the model,
// or a row of noise for -1.
std::map<std::string, StRow> with_vocabulary(const std::vector<int32_t>& from) {
  auto tensors = test::tiny_tensors(false, false);
  for (const char* name : {"model.embed_tokens.weight", "lm_head.weight"}) {
    StRow& t = tensors[name];
    std::string rows;
    size_t n_bytes = 64 * sizeof(float);
    for (size_t i = 0; i < from.size(); ++i)
      rows += from[i] >= 0 ? t.data.substr(static_cast<size_t>(from[i]) * n_bytes, n_bytes)
                           : test::floats(test::random_floats(64, 900 + static_cast<unsigned>(i)));
    t = {"F32", {static_cast<int64_t>(from.size()), 64}, rows};
  }
  return tensors;
}

std::vector<int32_t> same(int32_t n) {
  std::vector<int32_t> from;
  for (int32_t i = 0; i < n; ++i) from.push_back(i < kV ? i : -1);
  return from;
}

// A model folder; `more` is JSON behind a comma.
void write_model(const Folder& folder, const std::vector<int32_t>& from, const std::string& more) {
  std::string config = test::tiny_config("llama", more);
  size_t at = config.find("\"vocab_size\": 40");
  config.replace(at, 16, "\"vocab_size\": " + std::to_string(from.size()));
  folder.put("config.json", config);
  folder.put("model.safetensors", test::safetensors(with_vocabulary(from)));
}

struct Pair {
  Folder target, draft;
  EngineOptions options;

  Pair(const std::vector<int32_t>& from, const std::string& more = R"(, "rope_theta": 10000.0)") {
    write_model(target, same(kV), R"(, "rope_theta": 10000.0)");
    write_model(draft, from, more);
    options.model = target.path();
    options.drafts = {{"", draft.path()}};
    options.speculation = {"model"};
    options.draft_length = "fixed";
    options.num_speculative_tokens = 4;
    options.device = "cpu";
    options.dtype = "fp32";
    options.draft_quantization = "none";
    options.max_model_len = 200;
    options.max_num_seqs = 4;
    options.max_num_batched_tokens = 64;
    options.threads = 1;
  }
  std::string refusal() const {
    Result<EngineParts> parts = load_engine(options);
    return parts.ok() ? "accepted" : parts.status().message();
  }
};

// Checked before any file is opened.
TEST(LoadTrees, OnesThatNoStepHasRoomForAreRefused) {
  EngineOptions o;
  o.device = "cpu";
  o.model = "/nowhere";
  auto refusal = [&] { return load_engine(o).status().message(); };
  o.max_num_batched_tokens = 64;
  o.speculation_tree_nodes = 64;
  EXPECT_THAT(refusal(), HasSubstr("--speculation-tree-nodes: 64 nodes and their root do not fit "
                                   "into --max-num-batched-tokens 64"));
  o.speculation_tree_nodes = 63;
  EXPECT_THAT(refusal(), HasSubstr("/nowhere"));
  o.speculation_tree_nodes = 65;
  EXPECT_THAT(refusal(), HasSubstr("at most 64 nodes"));
  o.speculation_tree = {2};
  EXPECT_THAT(refusal(), HasSubstr("give one of them"));
  o.speculation_tree_nodes = 0;
  o.speculation_tree = {8, 7};
  EXPECT_THAT(refusal(), HasSubstr("--speculation-tree: 64 nodes and their root"));
}

// Two drafters of one name would share a plane that is planned once.
TEST(LoadSpeculation, NamesThatDoNotGoTogetherAreRefusedBeforeAFileIsOpened) {
  EngineOptions o;
  o.device = "cpu";
  o.model = "/nowhere";
  auto refusal = [&](std::vector<std::string> names) {
    o.speculation = std::move(names);
    return load_engine(o).status().message();
  };
  EXPECT_THAT(refusal({"model", "model"}), HasSubstr("--speculation model: named twice"));
  EXPECT_THAT(refusal({"ngram", "eagle", "ngram"}), HasSubstr("--speculation ngram: named twice"));
  EXPECT_THAT(refusal({"off", "ngram"}), HasSubstr("--speculation off stands alone"));
  EXPECT_THAT(refusal({"ngram", "auto"}), HasSubstr("--speculation auto stands alone"));
  EXPECT_THAT(refusal({"ngrams"}), HasSubstr("no such drafter"));
  for (const char* alone : {"off", "auto", "ngram"})
    EXPECT_THAT(refusal({alone}), HasSubstr("/nowhere"));
}

TEST(LoadAlpha, ARangeWithoutNumbersIsRefused) {
  EngineOptions o;
  o.device = "cpu";
  o.model = "/nowhere";
  o.dynamic_alpha.least = 0.7;
  o.dynamic_alpha.most = 0.6;
  EXPECT_THAT(load_engine(o).status().message(),
              HasSubstr("--alpha-min 0.700000 is above --alpha-max 0.600000"));
  o.dynamic_alpha.most = 0.7;
  o.dynamic_alpha.quiet_most = 0.65;
  EXPECT_THAT(load_engine(o).status().message(),
              HasSubstr("--alpha-min 0.700000 is above --alpha-quiet-max 0.650000"));
  o.dynamic_alpha.quiet_most = 0.7;
  EXPECT_THAT(load_engine(o).status().message(), HasSubstr("/nowhere"));
}

struct Texts {
  std::map<uint64_t, std::vector<int32_t>> texts;
  int64_t drafted = 0, accepted = 0;
  std::vector<std::string> notes;
  std::vector<int64_t> rounds_per_drafter;
};

// With two names the requests take turns between these drafters.
Texts run(const EngineOptions& options, const std::vector<std::string>& turns = {}) {
  Result<EngineParts> parts = load_engine(options);
  EXPECT_TRUE(parts.ok()) << parts.status().message();
  Texts out;
  if (!parts.ok()) return out;
  out.notes = parts->info.notes;
  Clock clock(1);
  BoundedQueue<std::unique_ptr<Request>> inbox(16);
  BoundedQueue<Event> outbox(1024);
  Step step(std::move(parts->step), clock, &inbox, &outbox);
  EXPECT_TRUE(step.self_test().ok());
  for (uint64_t ticket = 1; ticket <= 4; ++ticket) {
    auto r = std::make_unique<Request>();
    r->ticket = ticket;
    for (int32_t i = 0; i < 20; ++i)
      r->prompt.push_back((i * i * 3 + static_cast<int32_t>(ticket) * 7) % kV);
    r->sampling.temperature = ticket % 2 == 0 ? 0.7f : 0;
    r->has_seed = ticket % 2 == 0;
    r->seed = ticket;
    r->stop.max_new_tokens = 100;
    if (!turns.empty()) r->speculation.drafters = {turns[ticket % turns.size()]};
    step.take(std::move(r));
  }
  while (!step.idle()) {
    step.run();
    while (auto e = outbox.try_pop()) {
      auto& text = out.texts[e->ticket];
      text.insert(text.end(), e->tokens.begin(), e->tokens.end());
    }
  }
  step.check_integrity();
  out.rounds_per_drafter = step.snapshot().rounds_per_drafter;
  out.drafted = step.snapshot().n_drafted;
  out.accepted = step.snapshot().n_accepted;
  EXPECT_EQ(step.kv().n_in_use(), 0);
  return out;
}

Texts expect_lossless(const Pair& pair) {
  EngineOptions plain = pair.options;
  plain.speculation = {"off"};
  Texts with = run(pair.options);
  EXPECT_EQ(with.texts, run(plain).texts);
  EXPECT_GT(with.drafted, 100);
  return with;
}

std::string all(const std::vector<std::string>& notes) {
  std::string text;
  for (const std::string& note : notes) text += note + "\n";
  return text;
}

// A folder with an adapter of one matrix, the head, and a draft folder whose head lacks what the
// adapter adds: with it the draft is the target again, up to the rounding of the sum.
struct LoraPair : Pair {
  Folder adapter;
  LoraPair() : Pair(same(kV)) {
    constexpr size_t kE = 64, kRank = 4, kRows = kV;
    std::vector<float> a = test::random_floats(kRank * kE, 71),
                       b = test::random_floats(kRows * kRank, 72);
    for (float& x : b) x *= 10;  // as much as the head itself
    auto tensors = with_vocabulary(same(kV));
    StRow& head = tensors["lm_head.weight"];
    std::vector<float> w(kRows * kE);
    std::memcpy(w.data(), head.data.data(), head.data.size());
    for (size_t o = 0; o < kRows; ++o)
      for (size_t k = 0; k < kRank; ++k)
        for (size_t i = 0; i < kE; ++i) w[o * kE + i] -= 2 * b[o * kRank + k] * a[k * kE + i];
    head.data = test::floats(w);
    draft.put("model.safetensors", test::safetensors(tensors));
    const std::string module = "base_model.model.lm_head.lora_";
    adapter.put("adapter_config.json", R"({"peft_type": "LORA", "r": 4, "lora_alpha": 8})");
    adapter.put("adapter_model.safetensors",
                test::safetensors({{module + "A.weight", {"F32", {4, 64}, test::floats(a)}},
                                   {module + "B.weight", {"F32", {kV, 4}, test::floats(b)}}}));
  }
};

TEST(LoadLora, AnAdapterIsMergedIntoTheDraft) {
  LoraPair pair;
  Texts without = expect_lossless(pair);
  pair.options.draft_lora = pair.adapter.path();
  Texts with = expect_lossless(pair);
  EXPECT_LT(without.accepted, without.drafted * 9 / 10);
  EXPECT_GE(with.accepted, with.drafted * 99 / 100);
  EXPECT_THAT(all(with.notes), HasSubstr("is merged into 1 of its tensors"));
}

TEST(LoadLora, SeveralDraftsAreToldApartByName) {
  LoraPair pair;
  pair.options.drafts = {{"small", pair.draft.path()}, {"large", pair.draft.path()}};
  pair.options.draft_lora = pair.adapter.path();
  EXPECT_THAT(pair.refusal(), HasSubstr("which draft is it for? say it, --draft-lora NAME=FOLDER"));
  pair.options.draft_lora = "medium=" + pair.adapter.path();
  EXPECT_THAT(pair.refusal(), HasSubstr("no draft model is called 'medium'"));
  pair.options.draft_lora = "large=" + pair.adapter.path();
  EXPECT_THAT(all(expect_lossless(pair).notes), HasSubstr("large: the LoRA adapter"));
}

TEST(LoadLora, OneThatDoesNotFitIsRefusedAlsoByPlan) {
  LoraPair pair;
  pair.options.draft_lora = pair.adapter.path();
  EXPECT_TRUE(plan_engine(pair.options).ok());
  pair.options.drafts[0].path = "self";
  EXPECT_EQ(pair.refusal(), "accepted");  // the target's own layers are of the same shape
  auto other = test::safetensors({{"base_model.model.model.layers.9.mlp.up_proj.lora_A.weight",
                                   {"F32", {1, 64}, test::floats(std::vector<float>(64))}},
                                  {"base_model.model.model.layers.9.mlp.up_proj.lora_B.weight",
                                   {"F32", {96, 1}, test::floats(std::vector<float>(96))}}});
  pair.adapter.put("adapter_model.safetensors", other);
  const std::string want = "the model has no 'model.layers.9.mlp.up_proj.weight'";
  EXPECT_THAT(pair.refusal(), HasSubstr(want));
  EXPECT_THAT(plan_engine(pair.options).status().message(), HasSubstr(want));
  pair.options.draft_lora = "/nowhere";
  EXPECT_THAT(pair.refusal(), HasSubstr("/nowhere/adapter_config.json"));
}

TEST(LoadDrafts, WhatIsWrongIsListed) {
  Pair pair(same(48), "");
  EXPECT_THAT(pair.refusal(), HasSubstr("rope_theta is missing"));
  EXPECT_THAT(pair.refusal(), HasSubstr("no vocabulary map"));
  EXPECT_THAT(pair.refusal(), HasSubstr("48"));
  pair.options.drafts[0].tokens = Tokens::kForeign;
  pair.options.drafts[0].why_foreign = "another language";
  EXPECT_THAT(pair.refusal(), HasSubstr("another language"));
  pair.options.drafts[0].tokens = Tokens::kEqual;
  EXPECT_THAT(pair.refusal(), HasSubstr("--draft-rope-theta"));
  pair.options.draft_rope_theta = 20000;
  EXPECT_EQ(pair.refusal(), "accepted");
}

TEST(LoadDrafts, ATokenizerBeyondTheModelIsRefused) {
  Pair pair(same(kV));
  pair.options.drafts[0].tokens = Tokens::kMapped;
  pair.options.drafts[0].vocabulary.to_target.assign(kV + 1, -1);
  EXPECT_THAT(pair.refusal(), HasSubstr("tokenizer has 41 tokens"));
}

TEST(LoadDrafts, PaddedVocabulariesWork) {
  for (int32_t n : {kV - 6, kV, kV + 24}) {
    Pair pair(same(n));
    pair.options.drafts[0].tokens = Tokens::kEqual;
    Texts texts = expect_lossless(pair);
    if (n < kV) {
      EXPECT_GT(texts.accepted, 0) << "it knows no more than the tokens it has";
    } else {
      EXPECT_EQ(texts.accepted, texts.drafted) << n;
    }
    EXPECT_EQ(texts.notes.empty(), n == kV) << all(texts.notes);
  }
}

TEST(LoadDrafts, OneWithoutATokenizerIsTakenAtItsNumbersAndSaysSo) {
  Pair pair(same(kV));
  pair.options.drafts[0].tokens = Tokens::kUnknown;
  Texts texts = expect_lossless(pair);
  EXPECT_EQ(texts.accepted, texts.drafted);
  EXPECT_THAT(all(texts.notes), HasSubstr("its 40 tokens are taken for the target's"));
}

// The same model under other token ids; tokens below n_missing have no partner and are spelled.
DraftVocabulary permuted(int32_t n_missing, std::vector<int32_t>* from) {
  DraftVocabulary v;
  from->assign(kV + 3, -1);
  v.to_target.assign(kV + 3, -1);
  v.to_draft.assign(kV, -1);
  for (int32_t t = 0; t < kV; ++t) {
    int32_t d = (7 * t + 5) % kV;
    v.spelling_begin.push_back(static_cast<int32_t>(v.spelling.size()));
    if (t < n_missing) {
      v.spelling.insert(v.spelling.end(), {(7 * 39 + 5) % kV, (7 * 38 + 5) % kV});
      continue;
    }
    (*from)[static_cast<size_t>(d)] = t;
    v.to_target[static_cast<size_t>(d)] = t;
    v.to_draft[static_cast<size_t>(t)] = d;
  }
  v.spelling_begin.push_back(static_cast<int32_t>(v.spelling.size()));
  return v;
}

TEST(LoadDrafts, AnotherVocabularyIsTranslated) {
  for (int32_t n_missing : {0, 5}) {
    std::vector<int32_t> from;
    DraftVocabulary v = permuted(n_missing, &from);
    Pair pair(from);
    pair.options.drafts[0].tokens = Tokens::kMapped;
    pair.options.drafts[0].vocabulary = v;
    Texts texts = expect_lossless(pair);
    EXPECT_THAT(all(texts.notes), HasSubstr("a tokenizer of its own"));
    if (n_missing == 0) {
      EXPECT_EQ(texts.accepted, texts.drafted) << "it is the same model";
    } else {
      EXPECT_GT(texts.accepted, 0);
    }
    pair.options.speculation_tree = {2, 2};
    expect_lossless(pair);
  }
}

TEST(LoadDrafts, AShorterContextDraftsOnInAWindow) {
  Pair pair(same(kV), R"(, "rope_theta": 10000.0)");
  std::string config = test::tiny_config("llama", R"(, "rope_theta": 10000.0)");
  config.replace(config.find("512"), 3, "40");
  pair.draft.put("config.json", config);
  Texts texts = expect_lossless(pair);
  EXPECT_THAT(all(texts.notes), HasSubstr("a context of 40 tokens"));
  // Every round until the end drafts: 4 texts of 100 tokens, at most 5 of them a round.
  EXPECT_GT(texts.drafted, 4 * 100 / 5 * 3);
}

TEST(LoadDrafts, ALimitOnThePrefixIsNoLimitOnDrafting) {
  Pair pair(same(kV));
  pair.options.max_prefix_len = 32;
  Texts texts = expect_lossless(pair);
  EXPECT_THAT(all(texts.notes), HasSubstr("--max-prefix-len 32"));
  EXPECT_GT(texts.drafted, 4 * 100 / 5 * 3);
}

TEST(LoadDrafts, TheModelItselfAndItsFirstLayers) {
  for (int32_t layers : {0, 1}) {
    Pair pair(same(kV));
    pair.options.drafts = {{"twin", "self"}};
    pair.options.draft_layers = layers;
    pair.options.draft_quantization = "int4";
    Texts texts = expect_lossless(pair);
    EXPECT_GT(texts.accepted, 0);
  }
}

// Truth by hand: the tiny model in the file is F32 of 64 wide; its matrices are q, k, v, o, gate,
// up and down of each layer, embedding and head.
TEST(LoadProgress, CountsTheTargetTwiceAndTheDraftOnce) {
  Pair pair(same(kV));
  auto load = [&] {
    Progress progress;
    std::atomic<bool> loaded{false}, looks{false};
    int64_t last = 0;
    std::thread watch([&] {  // as whoever shows it: never back, never beyond the end
      while (!loaded.load()) {
        const int64_t done = progress.done(), total = progress.total();
        EXPECT_GE(done, last);
        EXPECT_LE(done, total);
        last = done;
        looks.store(true);
        std::this_thread::yield();
      }
    });
    while (!looks.load()) std::this_thread::yield();
    Result<EngineParts> parts = load_engine(pair.options, &progress);
    loaded.store(true);
    watch.join();
    EXPECT_TRUE(parts.ok()) << parts.status().message();
    EXPECT_EQ(progress.done(), progress.total());
    return progress.done();
  };
  Result<Model> model = load_model(pair.target.path());
  ASSERT_TRUE(model.ok());
  int64_t all = 0, matrices = 0;
  for (const Tensor* t : all_tensors(*model)) {
    all += static_cast<int64_t>(t->data.size());
    if (t->shape.size() == 2) matrices += static_cast<int64_t>(t->data.size());
  }
  EXPECT_EQ(load(), all + 2 * matrices);
  pair.options.speculation = {"off"};  // then the draft is not loaded
  EXPECT_EQ(load(), all + matrices);
}

TEST(LoadProgress, ARefusedLoadLeavesItUnfinished) {
  Pair pair(same(kV));
  auto tensors = with_vocabulary(same(kV));
  std::string& down = tensors["model.layers.1.mlp.down_proj.weight"].data;
  const float nan = NAN;
  down.replace(0, sizeof(nan), reinterpret_cast<const char*>(&nan), sizeof(nan));
  pair.target.put("model.safetensors", test::safetensors(tensors));
  Progress progress;
  Result<EngineParts> parts = load_engine(pair.options, &progress);
  ASSERT_FALSE(parts.ok());
  EXPECT_THAT(parts.status().message(), HasSubstr("down_proj.weight' holds NaN or infinity"));
  EXPECT_GT(progress.done(), 0);
  EXPECT_LT(progress.done(), progress.total());
}

TEST(LoadDrafts, DraftsAreToldApartByName) {
  Pair pair(same(kV));
  pair.options.drafts = {{"", pair.draft.path()}, {"", "self"}};
  EXPECT_THAT(pair.refusal(), HasSubstr("a second draft called 'model'"));
  pair.options.drafts[1].name = "large";
  Result<EngineParts> parts = load_engine(pair.options);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  std::vector<std::string> names;
  for (const DrafterDescription& d : parts->info.drafters) names.push_back(d.name);
  EXPECT_EQ(names, (std::vector<std::string>{"predicted", "model", "large"}));
  EXPECT_EQ(parts->step.kv.n_planes, 3);
  Texts texts = run(pair.options, {"model", "large"});
  EXPECT_GT(texts.rounds_per_drafter[1], 0);
  EXPECT_GT(texts.rounds_per_drafter[2], 0);
  pair.options.speculation = {"off"};
  EXPECT_EQ(texts.texts, run(pair.options).texts);
}

// A request for 'ngram' could have meant either.
TEST(LoadDrafts, ADraftMayNotBeCalledLikeAnotherDrafter) {
  Pair pair(same(kV));
  for (const char* name : {"ngram", "off", "auto", "predicted", "eagle", "cascade"}) {
    pair.options.drafts[0].name = name;
    EXPECT_THAT(pair.refusal(), HasSubstr(std::string("'") + name + "' is what another drafter"));
  }
  for (const char* name : {"model", "", "small"}) {
    pair.options.drafts[0].name = name;
    EXPECT_EQ(pair.refusal(), "accepted") << name;
  }
}

// Random Medusa heads for a target of this width and vocabulary, as published.
void write_medusa(const Folder& folder, int64_t width, int64_t vocabulary, int n_heads) {
  std::map<std::string, StRow> rows;
  unsigned seed = 40;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    rows["medusa_head." + name] = {"F32", shape, test::floats(test::random_floats(n, seed++))};
  };
  for (int i = 0; i < n_heads; ++i) {
    add(std::to_string(i) + ".0.linear.weight", {width, width});
    add(std::to_string(i) + ".0.linear.bias", {width});
    add(std::to_string(i) + ".1.weight", {vocabulary, width});
  }
  folder.put("medusa_lm_head.safetensors", test::safetensors(rows));
  folder.put("config.json",
             "{\"medusa_num_heads\": " + std::to_string(n_heads) + ", \"medusa_num_layers\": 1}");
}

TEST(LoadDrafts, MedusaHeadsDraftChainsAndTrees) {
  Pair pair(same(kV));
  Folder heads;
  write_medusa(heads, 64, kV, 3);
  pair.options.drafts = {{"", heads.path()}};
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"medusa"}, {"ngram", "medusa"}}) {
    pair.options.speculation = names;
    pair.options.speculation_tree.clear();
    pair.options.speculation_tree_nodes = 0;
    expect_lossless(pair);
    pair.options.speculation_tree = {4, 2};
    Texts trees = expect_lossless(pair);
    EXPECT_GT(trees.accepted, 0) << "four of forty tokens, at random";
    pair.options.speculation_tree.clear();
    pair.options.speculation_tree_nodes = 10;
    expect_lossless(pair);
  }
  pair.options.speculation = {"auto"};
  pair.options.draft_quantization = "int4";
  Result<EngineParts> parts = load_engine(pair.options);
  ASSERT_TRUE(parts.ok()) << parts.status().message();
  const DrafterDescription& d = parts->info.drafters.back();
  EXPECT_EQ(d.name, "medusa");
  EXPECT_EQ(d.kind, "medusa");
  EXPECT_EQ(d.quantization, "int4");
  EXPECT_EQ(d.max_context, 200);
  EXPECT_GT(d.step_cost_ratio, 0);
  EXPECT_EQ(parts->step.kv.n_planes, 1);
}

TEST(LoadDrafts, MedusaHeadsOfAnotherTargetAreRefusedWithTheList) {
  Pair pair(same(kV));
  Folder heads;
  write_medusa(heads, 32, kV + 2, 2);
  pair.options.drafts = {{"", heads.path()}};
  pair.options.speculation = {"medusa"};
  EXPECT_THAT(pair.refusal(), HasSubstr("hidden states of width 64, its own width is 32"));
  EXPECT_THAT(pair.refusal(), HasSubstr("42 tokens, the target has 40"));
  pair.options.drafts.clear();
  EXPECT_THAT(pair.refusal(), HasSubstr("--speculation medusa needs a head"));
  write_medusa(heads, 64, kV, 2);
  pair.options.drafts = {{"", heads.path()}};
  pair.options.speculation = {"eagle"};
  EXPECT_THAT(pair.refusal(), HasSubstr("another kind; name medusa"));
  pair.options.model = heads.path();
  EXPECT_THAT(pair.refusal(), HasSubstr("give it as --draft"));
}

TEST(LoadDrafts, APlanThatDoesNotFitIsAnAnswer) {
  Pair pair(same(kV));
  Result<MemoryFigures> plan = plan_engine(pair.options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->fits);
  EXPECT_EQ(plan->max_context, 200);
  EXPECT_EQ(plan->n_full_sequences, 4);
  ASSERT_EQ(plan->parts.size(), 6u);  // weights, scratch and KV of each
  EXPECT_THAT(plan->parts[2].name, HasSubstr("weights of the draft model"));
  // K and V of target and draft: 2 layers, one head of 32 numbers, 4 bytes each.
  EXPECT_EQ(plan->kv_bytes_per_token, 2 * (2 * 2 * 32 * 4));
  pair.options.kv_blocks = INT32_MAX / 16;
  plan = plan_engine(pair.options);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_FALSE(plan->fits);
  EXPECT_GT(plan->total_bytes(), int64_t{1} << 40);
  pair.options.model = "nothing";
  EXPECT_FALSE(plan_engine(pair.options).ok());
}

}  // namespace
}  // namespace pf
