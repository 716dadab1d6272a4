#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "engine/hash_model.h"
#include "engine/step.h"
#include "speculation/cascade_drafter.h"
#include "speculation/eagle_drafter.h"
#include "speculation/early_exit_drafter.h"
#include "speculation/lookahead_drafter.h"
#include "speculation/medusa_drafter.h"
#include "speculation/model_drafter.h"
#include "speculation/ngram_drafter.h"
#include "speculation/predicted_drafter.h"
#include "speculation/suffix_drafter.h"

namespace pf {

struct HarnessOptions {
  HashModel model = {};
  int32_t draft_agreement = -1;  // of 64; < 0: no model drafter
  int32_t hard_agreement = -1;   // its, on texts that begin with an odd token; < 0: as on all
  int32_t large_agreement = -1;  // of a second one, called "large"
  int32_t eagle_agreement = -1;  // the same of a head over the target's hidden states
  int32_t exit_agreement = -1;   // and of an early exit
  int32_t medusa_agreement = -1, n_medusa_heads = 3;  // and of Medusa heads
  bool predicted = false, ngram = false, suffix = false, lookahead = false;
  // N-grams filtered by the model, which drafts by itself too unless it is `cascade_only`; with
  // inner_agreement >= 0 a second model filters them before.
  bool cascade = false, cascade_only = false;
  int32_t inner_agreement = -1;
  int32_t k = 0;
  std::vector<int32_t> tree = {};
  int32_t tree_nodes = 0;  // > 0: trees of so many that grow
  int32_t n_blocks = 512, block_tokens = 4;
  int64_t max_context = 256, draft_context = 256;
  // Of the model drafter: windows beside its plane or, not in tables, instead of it.
  bool draft_in_tables = true;
  int64_t window_tokens = 0;
  int32_t n_window_blocks = 0;
  DraftVocabulary vocabulary = {};
  bool overlaps = false;
  int32_t max_num_seqs = 64, max_num_batched_tokens = 96;
  bool prefix_caching = true;
  float draft_temperature = -1;
  DraftLengthOptions length = {};
  bool dynamic_alpha = false;
  std::optional<AcceptPolicy> policy = {};  // the server's own rule; none: auto
  // Microseconds of a pass by its rows; none: passes take no time.
  std::function<int64_t(int32_t)> target_us = {}, draft_us = {}, large_us = {};
};

// One completion as the outbox told it.
struct Reply {
  std::vector<int32_t> tokens;
  std::vector<Origin> origins;
  std::vector<TokenLogprob> logprobs, prompt_logprobs;
  FinishReason finish = FinishReason::kNone;
  SpeculationCounts speculation;
  int64_t n_cached_tokens = 0;
  int32_t n_prompt_events = 0, n_events = 0;
  int32_t n_short_rounds = 0;  // that kept fewer tokens than their draft had levels
};

// A Step over hash models, driven by hand with a manual clock: each step takes one millisecond.
class Harness {
 public:
  explicit Harness(const HarnessOptions& o) : options(o), inbox(4096), outbox(1 << 16) {
    StepParts parts;
    auto takes = [this](const std::function<int64_t(int32_t)>& us) {
      return [this, &us](int32_t rows) { clock.advance_us(us(rows)); };
    };
    int32_t n_planes = 1 + (o.draft_agreement >= 0 && o.draft_in_tables) +
                       (o.inner_agreement >= 0) + (o.large_agreement >= 0) +
                       (o.eagle_agreement >= 0);
    parts.kv = {o.n_blocks, o.block_tokens, n_planes, o.prefix_caching};
    parts.scheduler = {o.max_num_seqs, o.max_num_batched_tokens};
    auto backend =
        std::make_unique<HashBackend>(o.model, o.n_blocks, o.block_tokens, o.max_context);
    target = backend.get();
    target->keeps_hidden = o.eagle_agreement >= 0 || o.medusa_agreement >= 0;
    parts.target = std::move(backend);
    if (o.predicted) parts.drafters.add(std::make_unique<PredictedDrafter>());
    if (o.ngram) parts.drafters.add(std::make_unique<NgramDrafter>(o.draft_agreement >= 0 ? 2 : 1));
    if (o.suffix)
      parts.drafters.add(std::make_unique<SuffixDrafter>(o.draft_agreement >= 0 ? 2 : 1));
    if (o.lookahead) parts.drafters.add(std::make_unique<LookaheadDrafter>());
    if (o.eagle_agreement >= 0) {
      HashModel m = o.model;
      m.agreement = o.eagle_agreement;
      auto model = std::make_unique<HashBackend>(m, o.n_blocks, o.block_tokens, o.draft_context);
      model->is_head = true;
      model->hidden_of = target->hidden_states();
      parts.drafters.add(std::make_unique<EagleDrafter>(
          EagleDrafter::Options{"eagle", n_planes - 1, o.draft_context, o.n_blocks, o.block_tokens},
          std::move(model)));
    }
    if (o.medusa_agreement >= 0) {
      HashModel m = o.model;
      m.agreement = o.medusa_agreement;
      auto heads = std::make_unique<HashBackend>(m, o.max_num_batched_tokens, 1, o.max_context);
      heads->n_medusa_heads = o.n_medusa_heads;
      heads->hidden_of = target->hidden_states();
      parts.drafters.add(std::make_unique<MedusaDrafter>(
          MedusaDrafter::Options{"medusa", o.n_medusa_heads}, std::move(heads)));
    }
    if (o.exit_agreement >= 0)
      parts.drafters.add(std::make_unique<EarlyExitDrafter>(target, o.exit_agreement));
    if (o.draft_agreement >= 0) add_model(&parts);
    if (o.large_agreement >= 0) {
      auto model = hash_draft(o.large_agreement);
      HashBackend* large = model.get();
      if (o.large_us) large->on_pass = takes(options.large_us);
      parts.drafters.add(std::make_unique<ModelDrafter>(
          ModelDrafter::Options{.name = "large", .plane = 2, .max_context = o.draft_context},
          std::move(model)));
    }
    parts.max_context = o.max_context;
    parts.num_speculative_tokens = o.k;
    parts.speculation_tree = o.tree;
    parts.speculation_tree_nodes = o.tree_nodes;
    parts.draft_temperature = o.draft_temperature;
    parts.length = o.length;
    // As the loader says it: those that run no model cost next to nothing.
    if (parts.length.cost_ratios.empty())
      for (int32_t d = 0; d < parts.drafters.size(); ++d) {
        std::string name = parts.drafters[d].name();
        bool copies = name == "predicted" || name == "ngram" || name == "suffix";
        parts.length.cost_ratios.push_back(copies ? 0.002f : 0.1f);
      }
    parts.dynamic_alpha = o.dynamic_alpha;
    parts.has_policy = o.policy.has_value();
    if (o.policy) parts.policy = *o.policy;
    if (o.target_us) target->on_pass = takes(options.target_us);
    if (o.draft_us && draft != nullptr) draft->on_pass = takes(options.draft_us);
    step = std::make_unique<Step>(std::move(parts), clock, &inbox, &outbox);
  }

  std::unique_ptr<HashBackend> hash_draft(int32_t agreement, int32_t hard_agreement = -1) {
    const HarnessOptions& o = options;
    HashModel m = o.model;
    m.agreement = agreement;
    m.hard_agreement = hard_agreement;
    if (!o.vocabulary.empty()) {
      m.vocabulary = static_cast<int32_t>(o.vocabulary.to_target.size());
      m.known_as = options.vocabulary.to_target;
    }
    int32_t n_blocks = (o.draft_in_tables ? o.n_blocks : 0) + o.n_window_blocks;
    return std::make_unique<HashBackend>(m, n_blocks, o.block_tokens, o.draft_context);
  }
  void add_model(StepParts* parts) {
    const HarnessOptions& o = options;
    auto model = hash_draft(o.draft_agreement, o.hard_agreement);
    draft = model.get();
    if (o.cascade) {
      CascadeDrafter::Options c{"cascade", 1, o.draft_context, o.max_num_batched_tokens};
      std::unique_ptr<Drafter> cheap = std::make_unique<NgramDrafter>(1);
      if (o.inner_agreement >= 0) {
        auto inner = hash_draft(o.inner_agreement);
        HashBackend* judge = inside = inner.get();
        CascadeDrafter::Options below = c;
        below.plane = 2;
        cheap = std::make_unique<CascadeDrafter>(below, std::move(cheap), judge, std::move(inner));
      }
      std::unique_ptr<Backend> own;
      if (o.cascade_only) own = std::move(model);
      parts->drafters.add(
          std::make_unique<CascadeDrafter>(c, std::move(cheap), draft, std::move(own)));
    }
    if (o.cascade_only) return;
    ModelDrafter::Options d;
    d.name = "model";
    d.plane = o.draft_in_tables ? 1 : -1;
    d.max_context = o.draft_context;
    d.windows = {o.window_tokens, o.draft_in_tables ? o.n_blocks : 0, o.n_window_blocks,
                 o.block_tokens, o.prefix_caching};
    d.vocabulary = o.vocabulary;
    d.max_rows = o.max_num_batched_tokens;
    d.overlaps = o.overlaps;
    auto drafter = std::make_unique<ModelDrafter>(std::move(d), std::move(model));
    draft_model = drafter.get();
    parts->drafters.add(std::move(drafter));
  }

  std::unique_ptr<Request> request(std::vector<int32_t> prompt, int32_t max_new = 40) {
    auto r = std::make_unique<Request>();
    r->ticket = ++last_ticket;
    r->prompt = std::move(prompt);
    r->stop.max_new_tokens = max_new;
    r->arrival_us = clock.now_us();
    r->seed = 1000 + r->ticket;
    return r;
  }
  uint64_t submit(std::unique_ptr<Request> r) {
    uint64_t ticket = r->ticket;
    EXPECT_TRUE(inbox.try_push(std::move(r)));
    return ticket;
  }

  bool run_step() {
    bool ran = step->run();
    clock.advance_us(1000);
    collect();
    return ran;
  }
  // Until nothing is left; fails the test when that takes more than `limit` steps.
  void run(int limit = 20000) {
    do {
      run_step();
    } while (--limit > 0 && !(step->idle() && inbox.size() == 0));
    EXPECT_GT(limit, 0) << "the engine does not come to an end";
    step->check_integrity();
    EXPECT_EQ(step->kv().n_in_use(), 0);
    if (draft_model != nullptr && draft_model->windows() != nullptr) {
      draft_model->windows()->check_integrity();
      EXPECT_EQ(draft_model->windows()->n_blocks_in_use(), 0);
    }
  }
  void collect() {
    while (auto e = outbox.try_pop()) {
      Reply& r = replies[{e->ticket, e->index}];
      EXPECT_EQ(r.finish, FinishReason::kNone) << "an event behind the last one";
      ++r.n_events;
      auto append = [](auto& to, auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      append(r.tokens, e->tokens);
      append(r.origins, e->origins);
      append(r.logprobs, e->logprobs);
      append(r.prompt_logprobs, e->prompt_logprobs);
      r.finish = e->finish;
      if (e->has_prompt) {
        ++r.n_prompt_events;
        r.n_cached_tokens = e->n_cached_tokens;
      }
      for (const VerifiedRound& round : e->rounds) {
        r.speculation.add(round);
        auto depth = std::find(round.drafted_at.begin(), round.drafted_at.end(), 0);
        r.n_short_rounds += round.n_accepted < depth - round.drafted_at.begin();
      }
      for (float loss : e->losses) r.speculation.loss += loss;
    }
  }

  HarnessOptions options;
  Clock clock{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox;
  BoundedQueue<Event> outbox;
  std::unique_ptr<Step> step;
  HashBackend* target = nullptr;
  HashBackend* draft = nullptr;
  HashBackend* inside = nullptr;  // the model that filters first, of a cascade of three levels
  ModelDrafter* draft_model = nullptr;
  std::map<std::pair<uint64_t, int32_t>, Reply> replies;  // by ticket and index
  uint64_t last_ticket = 0;
};

// A prompt of n tokens, different for each seed; repetitive enough for n-grams to match.
inline std::vector<int32_t> prompt_of(int32_t n, uint32_t seed, int32_t vocabulary = 32) {
  std::vector<int32_t> p;
  for (int32_t i = 0; i < n; ++i) {
    bool copy = i > 12 && i % 16 < 8;
    PhiloxBlock b = philox(seed, {static_cast<uint32_t>(i), 1, 2, 3});
    p.push_back(copy ? p[static_cast<size_t>(i - 8)]
                     : static_cast<int32_t>(b[0] % static_cast<uint32_t>(vocabulary)));
  }
  return p;
}

}  // namespace pf
