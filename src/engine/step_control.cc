// Where the step meets its controllers: what they are asked, what they are told, and the figures
// that come of it. They decide nothing by themselves; costs and acceptance go in as data.
#include <algorithm>

#include "engine/self_test.h"
#include "engine/step.h"
#include "speculation/model_drafter.h"

namespace pf {

Result<std::vector<double>> Step::self_test() {
  SelfTestInput in{parts_.target.get(),
                   {},
                   kv_.block_tokens(),
                   kv_.n_blocks(),
                   parts_.scheduler.max_num_batched_tokens,
                   parts_.max_context};
  std::vector<int32_t> drafters;
  for (int32_t d = 0; d < parts_.drafters.size(); ++d)
    if (auto* model = dynamic_cast<ModelDrafter*>(&parts_.drafters[d]);
        model != nullptr && model->room_tokens() >= SelfTestInput::kDraftTokens) {
      in.drafts.push_back(&model->backend());
      drafters.push_back(d);
    }
  Result<SelfTestReport> tested = pf::self_test(in, clock_);
  if (!tested.ok()) return tested.status();
  for (auto [n_rows, seconds] : tested->target_passes) length_.learn_target(n_rows, seconds);
  std::vector<double> ratios(static_cast<size_t>(parts_.drafters.size()), 0);
  double step_seconds = tested->target_step_seconds();
  for (size_t i = 0; i < tested->draft_seconds.size(); ++i) {
    double seconds = tested->draft_seconds[i];
    length_.learn_draft(drafters[i], 1, seconds);
    if (step_seconds > 0) ratios[static_cast<size_t>(drafters[i])] = seconds / step_seconds;
  }
  return ratios;
}

void Step::set_policy(const EnginePolicy& policy) {
  speculates_ = policy.speculation;
  pinned_alpha_ = policy.pinned_alpha;
  parts_.dynamic_alpha = policy.dynamic_alpha;
  parts_.policy.alpha = policy.alpha;
  parts_.num_speculative_tokens = policy.num_draft_tokens;
  parts_.drafters.allow(policy.drafters);
  length_.set_rule(policy.draft_length);
}

void Step::wish(int64_t now_us) {
  wishes_.clear();
  asks_.clear();
  asked_.clear();
  for (Sequence* s : scheduler_.running()) wishes_.push_back(wish_for(s, now_us));
  length_.plan(outlook(), asks_);
  for (size_t i = 0; i < asks_.size(); ++i) {
    const DraftAsk& ask = asks_[i];
    wishes_[asked_[i]].n_draft = ask.widths.empty() ? ask.depth : tree_nodes(ask.widths, ask.depth);
  }
}

// A fixed number is wished at once; the others ask for it.
Wish Step::wish_for(Sequence* s, int64_t now_us) {
  const SpeculationParams& p = s->request->speculation;
  s->drafter = DrafterChoice::kNobody;
  Wish wish;
  bool fixed = p.mode == SpeculationParams::Mode::kFixed;
  int32_t server = parts_.num_speculative_tokens;
  if (!speculates_ || p.mode == SpeculationParams::Mode::kOff || parts_.drafters.size() == 0)
    return wish;
  int32_t depth = fixed                   ? p.n_draft_tokens
                  : p.n_draft_tokens >= 0 ? std::min(server, p.n_draft_tokens)
                                          : server;
  std::span<const int32_t> widths = widths_of(*s);
  if (!widths.empty() && (fixed || depth > 0)) depth = static_cast<int32_t>(widths.size());
  // The last token that may come is never drafted: the round ends with the target's own.
  depth = static_cast<int32_t>(std::min<int64_t>(depth, n_allowed(*s) - 1));
  if (depth <= 0) return wish;
  s->drafter = parts_.drafters.choose(*s);
  if (s->drafter == DrafterChoice::kNobody) return wish;
  Drafter& drafter = parts_.drafters[s->drafter];
  int64_t room = drafter.max_context() - s->n_tokens();
  depth = static_cast<int32_t>(std::min<int64_t>(depth, room));
  if (s->decoding()) wish.draft_lag = drafter.lag(*s);
  s->draft_match = drafter.match_length(*s);
  if (fixed) {
    wish.n_draft = widths.empty() ? depth : tree_nodes(widths, depth);
  } else if (s->decoding()) {
    DraftAsk ask;
    ask.history = &s->drafts[static_cast<size_t>(s->drafter)];
    ask.drafter = s->drafter;
    ask.match = s->draft_match;
    ask.max_depth = depth;
    ask.widths = widths;
    ask.lag = wish.draft_lag;
    if (s->request->deadline_us != kNever && s->first_token_us >= 0) {
      double pace_us =
          static_cast<double>(now_us - s->first_token_us) / static_cast<double>(s->n_generated());
      ask.weight = weight_of_slack(s->request->deadline_us - now_us,
                                   pace_us * static_cast<double>(n_allowed(*s)));
    }
    asks_.push_back(ask);
    asked_.push_back(wishes_.size());
  }
  return wish;
}

StepOutlook Step::outlook() const {
  StepOutlook o;
  o.max_rows = parts_.scheduler.max_num_batched_tokens;
  std::span<Sequence* const> running = scheduler_.running();
  int64_t prompts = 0;
  for (size_t i = 0; i < running.size(); ++i) {
    if (running[i]->decoding()) {
      ++o.n_decoding;
      o.n_plain_rows += 1 + wishes_[i].n_draft;  // only fixed ones are known yet
    } else {
      prompts += running[i]->n_pending();
    }
  }
  o.n_prompt_rows =
      static_cast<int32_t>(std::min<int64_t>(prompts, std::max(0, o.max_rows - o.n_plain_rows)));
  return o;
}

void Step::learn_costs() {
  rounds_.clear();
  draft_passes_.resize(static_cast<size_t>(parts_.drafters.size()));
  for (auto& passes : draft_passes_) passes.clear();
  StepReport report;
  report.n_rows = batch_.n_rows();
  for (size_t r = 0; r < rows_.size(); ++r) {
    const Row& row = rows_[r];
    Sequence* s = row.plan.sequence;
    bool decoded = row.plan.n_rows == 1 && row.n_before > s->n_prompt();
    report.pure &= decoded && row.plan.n_draft_catchup == 0;
    if (!decoded || row.job < 0) continue;
    const AcceptResult& result = results_[static_cast<size_t>(row.job)];
    const DraftTree& tree = trees_[r];
    ++report.n_sequences;
    report.n_tokens += static_cast<int64_t>(result.tokens.size());
    if (s->drafter == DrafterChoice::kNobody) continue;
    auto d = static_cast<size_t>(s->drafter);
    rounds_.push_back({&s->drafts[d], s->drafter, s->draft_match, tree.depth(), result.n_accepted});
    std::vector<int32_t>& passes = draft_passes_[d];
    passes.resize(std::max(passes.size(), static_cast<size_t>(tree.depth())), 0);
    for (int32_t depth : tree.depths) ++passes[static_cast<size_t>(depth - 1)];
  }
  int64_t now_us = clock_.now_us();
  report.target_seconds = 1e-6 * static_cast<double>(at_us_.judged - at_us_.proposed);
  report.total_seconds = 1e-6 * static_cast<double>(now_us - at_us_.began);
  report.draft_seconds = drafter_seconds_;
  report.draft_passes = draft_passes_;
  length_.learn(rounds_, report);
  double knee = length_.target_cost().knee();
  double utilisation = std::min(100.0, 100 * report.n_rows / knee);
  if (parts_.utilisation) utilisation = parts_.utilisation(now_us).value_or(utilisation);
  alpha_.observe(utilisation);
}

void Step::count_step() {
  auto seconds = [](int64_t from, int64_t to) { return 1e-6 * static_cast<double>(to - from); };
  int64_t now_us = clock_.now_us();
  Snapshot& f = figures_;
  f.draft_seconds += seconds(at_us_.planned, at_us_.proposed);
  f.target_seconds += seconds(at_us_.proposed, at_us_.judged);
  f.other_seconds += seconds(at_us_.began, at_us_.planned) + seconds(at_us_.judged, now_us);
  f.plan_times.add(seconds(at_us_.began, at_us_.planned));
  if (std::any_of(rows_.begin(), rows_.end(), [](auto& row) { return row.plan.n_draft > 0; }))
    f.draft_times.add(seconds(at_us_.planned, at_us_.proposed));
  f.verify_times.add(seconds(at_us_.proposed, at_us_.judged));
  f.commit_times.add(seconds(at_us_.judged, now_us));
  f.rows.add(batch_.n_rows());
  ++f.n_steps;
  f.speedup = length_.speedup();
  f.utilisation = alpha_.utilisation();
  for (const Row& row : rows_)
    if (row.policy.rule == Acceptance::kThreshold ||
        row.policy.rule == Acceptance::kThresholdLiteral)
      f.alpha = row.policy.alpha;
  f.alpha_busy_term = alpha_.busy_term();
  f.alpha_acceptance_term = alpha_.acceptance_term(accept_rate());
  f.dead_drafters = 0;
  for (int32_t d = 0; d < std::min(parts_.drafters.size(), 64); ++d)
    f.dead_drafters |= uint64_t{length_.acceptance().dead(d)} << d;
}

void Step::count_recomputed(int64_t from, int64_t to, int64_t* high, int64_t* total) const {
  *total += std::max<int64_t>(0, std::min(to, *high) - from);
  *high = std::max(*high, to);
}

}  // namespace pf
