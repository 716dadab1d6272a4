// Where the step meets its controllers: what they are asked, what they are told, and the figures
// that come of it. They decide nothing by themselves; costs and acceptance go in as data.
#include <algorithm>

#include "engine/self_test.h"
#include "engine/step.h"
#include "speculation/model_drafter.h"
#include "speculation/utilisation.h"

namespace pf {

Result<SelfTested> Step::self_test() {
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
  return SelfTested{std::move(ratios), std::move(tested->skipped)};
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
  std::span<Sequence* const> running = scheduler_.running();
  wishes_.assign(running.size(), {});
  offers_.clear();
  offered_.clear();
  for (size_t i = 0; i < running.size(); ++i) add_offers(running[i], i, now_us);
  choose_drafters();
  length_.plan(outlook(), asks_);
  for (size_t i = 0; i < asks_.size(); ++i) {
    const DraftAsk& ask = asks_[i];
    wishes_[asked_[i]].n_draft = ask.shape.nodes(ask.depth);
  }
}

// Whoever has something to say for this sequence offers it.
void Step::add_offers(Sequence* s, size_t wish, int64_t now_us) {
  const SpeculationParams& p = s->request->speculation;
  s->drafter = DrafterChoice::kNobody;
  bool fixed = p.mode == SpeculationParams::Mode::kFixed;
  if (!speculates_ || p.mode == SpeculationParams::Mode::kOff || parts_.drafters.size() == 0)
    return;
  int32_t depth = chain_length(p);
  DraftAsk ask;
  ask.fixed = fixed;
  if (depth <= 0 && !fixed) return;
  if (s->request->deadline_us != kNever && s->first_token_us >= 0) {
    double pace_us =
        static_cast<double>(now_us - s->first_token_us) / static_cast<double>(s->n_generated());
    ask.weight = weight_of_slack(s->request->deadline_us - now_us,
                                 pace_us * static_cast<double>(n_allowed(*s)));
  }
  ask.n_left = n_allowed(*s);
  size_t first = offers_.size();
  for (ask.drafter = 0; ask.drafter < parts_.drafters.size(); ++ask.drafter) {
    ask.match = parts_.drafters.match(*s, ask.drafter);
    if (ask.match == 0) continue;
    Drafter& drafter = parts_.drafters[ask.drafter];
    ask.history = &s->drafts[static_cast<size_t>(ask.drafter)];
    ask.shape = shape_of(*s, ask.drafter);
    // The last token that may come is never drafted: the round ends with the target's own.
    ask.max_depth = static_cast<int32_t>(
        std::min<int64_t>({ask.shape.full_depth(depth), drafter.max_depth(), n_allowed(*s) - 1,
                           drafter.max_context() - s->n_tokens()}));
    if (ask.max_depth <= 0) continue;
    ask.lag = s->decoding() ? drafter.lag(*s) : 0;
    offers_.push_back(ask);
  }
  weigh_ease(s, std::span(offers_).subspan(first));
  if (offers_.size() > first) offered_.push_back({s, wish, first, offers_.size() - first});
}

// Models always have something to say, so their match is the whole text. Where there are several,
// what one of them meets on the text foretells what another one would.
void Step::weigh_ease(Sequence* s, std::span<DraftAsk> offers) {
  auto is_model = [&](const DraftAsk& o) { return o.match >= s->n_tokens(); };
  s->ease.counts = std::count_if(offers.begin(), offers.end(), is_model) > 1;
  for (DraftAsk& offer : offers)
    if (s->ease.counts && is_model(offer)) offer.text = &s->ease;
}

// A fixed number is wished at once; the others ask for it.
void Step::choose_drafters() {
  contests_.clear();
  asks_.clear();
  asked_.clear();
  for (const StepOffers& o : offered_)
    contests_.push_back({std::span(offers_).subspan(o.first, o.n), o.sequence->decoding()});
  choice_.choose(length_, contests_);
  for (size_t i = 0; i < offered_.size(); ++i) {
    const DraftAsk& pick = contests_[i].offers[contests_[i].picked];
    Sequence* s = offered_[i].sequence;
    Wish& wish = wishes_[offered_[i].wish];
    s->drafter = pick.drafter;
    s->draft_match = pick.match;
    wish.draft_lag = pick.lag;
    if (pick.fixed) {
      wish.n_draft = pick.shape.nodes(pick.max_depth);
    } else if (s->decoding()) {
      asks_.push_back(pick);
      asked_.push_back(offered_[i].wish);
    }
  }
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
    const bool is_model = s->draft_match >= row.n_before;
    rounds_.push_back({&s->drafts[d], s->drafter, s->draft_match, tree.depth(), result.n_accepted,
                       s->ease.counts && is_model ? &s->ease : nullptr});
    std::vector<int32_t>& passes = draft_passes_[d];
    // A level that was looked at and cut again was a pass too.
    auto n_passes = static_cast<size_t>(std::max(tree.depth(), tree.n_grown_levels));
    passes.resize(std::max(passes.size(), n_passes), 0);
    for (int32_t depth : tree.depths) ++passes[static_cast<size_t>(depth - 1)];
    for (size_t p = static_cast<size_t>(tree.depth()); p < n_passes; ++p) ++passes[p];
    if (tree.size() > 0) passes[0] += row.n_draft_fed - 1;
  }
  int64_t now_us = clock_.now_us();
  report.target_seconds = 1e-6 * static_cast<double>(at_us_.judged - at_us_.proposed);
  report.total_seconds = 1e-6 * static_cast<double>(now_us - at_us_.began);
  report.draft_seconds = drafter_seconds_;
  report.draft_passes = draft_passes_;
  length_.learn(rounds_, report);
  choice_.earn(report.n_sequences, report.total_seconds);
  double utilisation = utilisation_of(report.n_rows, length_.target_cost().knee());
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
