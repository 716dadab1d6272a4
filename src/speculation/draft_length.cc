#include "speculation/draft_length.h"

#include <algorithm>

#include "batch/plan.h"
#include "sampling/draft_tree.h"

namespace pf {
namespace {

constexpr double kSlope = 0.005;         // assumed: of T(1), for each further row
constexpr double kProbeShare = 0.007;    // of all time, for asking again who drafts nothing
constexpr double kLeastRowPrice = 0.02;  // of T(1): where noise hides what a row costs
constexpr double kMostSaved = 0.5;       // steps' worth of it that can be saved up
constexpr int32_t kProbed = 8;           // sequences asked in one probe
constexpr int32_t kFirstPlainStep = 16;
constexpr int32_t kTrialDepth = 4;
constexpr double kLagRounds = 64;         // that pay for a lag together
constexpr double kMostLagRow = 1.0 / 16;  // of a draft pass, for a row of a long one

// What it costs to feed so many tokens that the plane lacks: the first pass takes longer, or a pass
// of its own. Far behind what is measured the curve is a guess, so it is held in bounds.
double lag_seconds(const CostCurve& draft, int64_t lag) {
  if (lag <= 1) return 0;
  auto n = static_cast<double>(lag);
  double pass = std::min(draft.at(n), draft.at(1) * (1 + n * kMostLagRow));
  return lag > kInlineCatchupTokens ? pass : std::max(0.0, pass - draft.at(1));
}

}  // namespace

float weight_of_slack(int64_t slack_us, double left_us) {
  if (slack_us <= 0 || left_us <= 0) return 1;
  double pressure = left_us / static_cast<double>(slack_us);  // 1: it will just do
  return static_cast<float>(std::clamp(4 * (pressure - 0.5), 1.0, 4.0));
}

DraftLength::DraftLength(const DraftLengthOptions& options)
    : options_(options),
      target_(1e-3, kSlope),
      acceptance_(static_cast<int32_t>(options.cost_ratios.size())) {
  for (float ratio : options_.cost_ratios) drafts_.emplace_back(1e-3 * ratio, kSlope);
}

void DraftLength::learn_target(int32_t n_rows, double seconds) {
  target_.observe(n_rows, seconds);
  for (size_t d = 0; d < drafts_.size(); ++d)
    drafts_[d].assume(options_.cost_ratios[d] * target_.at(1));
}

void DraftLength::learn_draft(int32_t drafter, int32_t n_rows, double seconds) {
  drafts_[static_cast<size_t>(drafter)].observe(n_rows, seconds);
}

void DraftLength::plan(const StepOutlook& outlook, std::span<DraftAsk> asks) {
  if (asks.empty()) return;
  if (options_.rule == LengthRule::kAdaptive) plan_adaptive(outlook, asks);
  for (DraftAsk& ask : asks) {
    if (options_.rule == LengthRule::kFixed) ask.depth = ask.max_depth;
    if (options_.rule == LengthRule::kWindow) ask.depth = std::min(window_.length(), ask.max_depth);
    if (options_.rule == LengthRule::kRate) ask.depth = std::min(rate_.length(), ask.max_depth);
  }
  if (plain_step_is_due(asks))
    for (DraftAsk& ask : asks) ask.depth = 0;
}

// The first one early, so that a young server knows its speed-up; fixed lengths wait for theirs.
bool DraftLength::plain_step_is_due(std::span<const DraftAsk> asks) {
  if (options_.probe_steps <= 0) return false;
  bool drafts = std::any_of(asks.begin(), asks.end(), [](auto& ask) { return ask.depth > 0; });
  if (!drafts) return n_drafted_ = 0, false;
  bool early = !probed_plain_ && options_.rule == LengthRule::kAdaptive;
  if (++n_drafted_ <
      (early ? std::min(kFirstPlainStep, options_.probe_steps) : options_.probe_steps))
    return false;
  n_drafted_ = 0;
  return probed_plain_ = true;
}

DepthCandidate DraftLength::candidate_of(const DraftAsk& ask, const DraftHistory& history) const {
  DepthCandidate c;
  c.drafter = ask.drafter;
  c.max_depth = std::min(ask.max_depth, kMaxDraftDepth);
  c.weight = ask.weight;
  acceptance_.estimate(history, ask.drafter, ask.match,
                       std::span(c.reach).first(static_cast<size_t>(std::max(0, c.max_depth))),
                       ask.text);
  float reach = 1;
  for (int32_t d = 0, total = 0; d < c.max_depth; ++d) {
    auto i = static_cast<size_t>(d);
    reach = c.reach[i] *= reach;
    const int32_t n = ask.shape.nodes(d + 1);
    c.n_nodes[i] = n - total;
    if ((total = n) > kMaxTreeNodes) c.max_depth = d;
  }
  return c;
}

DraftForecast DraftLength::forecast(const DraftAsk& ask, int32_t n_sequences) const {
  DraftHistory history = *ask.history;
  history.n_idle = 0;
  DepthCandidate c = candidate_of(ask, history);
  const CostCurve& draft = drafts_[static_cast<size_t>(ask.drafter)];
  int32_t given = ask.fixed || options_.rule == LengthRule::kFixed ? c.max_depth
                  : options_.rule == LengthRule::kWindow           ? window_.length()
                  : options_.rule == LengthRule::kRate             ? rate_.length()
                                                                   : 0;
  given = std::min(given, c.max_depth);
  DraftForecast best;
  best.lag_seconds = lag_seconds(draft, ask.lag);
  // Who has written so much without it is expected to go on for a while.
  double rounds = std::max(kLagRounds, 0.25 * static_cast<double>(ask.lag));
  best.lag_share =
      best.lag_seconds / std::clamp(0.5 * static_cast<double>(ask.n_left), 1.0, rounds);
  best.n_nodes = c.n_nodes;
  double draft_seconds = 0;
  float tokens = 1;
  for (int32_t d = 0, rows = n_sequences; d < c.max_depth; ++d) {
    auto i = static_cast<size_t>(d);
    tokens += c.reach[i];
    rows += n_sequences * c.n_nodes[i];
    draft_seconds += draft.at(n_sequences * c.n_nodes[i]);
    double speed = tokens / (draft_seconds + target_.at(rows) + best.lag_share * n_sequences);
    if (d < kTrialDepth) best.trial_depth = d + 1, best.trial_tokens = tokens;
    if (given > 0 ? d + 1 != given : speed <= best.speed) continue;
    best.speed = speed;
    best.depth = d + 1;
    best.tokens = tokens;
  }
  if (best.depth > best.trial_depth || given > 0)
    best.trial_depth = best.depth, best.trial_tokens = best.tokens;
  best.pays = best.speed * target_.at(n_sequences) > 1;
  return best;
}

void DraftLength::plan_adaptive(const StepOutlook& outlook, std::span<DraftAsk> asks) {
  candidates_.clear();
  DepthQuestion question{outlook.n_plain_rows, outlook.n_prompt_rows,
                         std::max(0, outlook.max_rows - outlook.n_plain_rows),
                         static_cast<float>(outlook.n_decoding)};
  for (const DraftAsk& ask : asks) {
    candidates_.push_back(candidate_of(ask, *ask.history));
    question.plain_tokens += ask.weight - 1;
    // A plane that lags far is caught up for what is known of its drafter, not on a doubt.
    if (ask.lag > kInlineCatchupTokens && !forecast(ask, std::max(1, outlook.n_decoding)).pays)
      candidates_.back().max_depth = 0;
  }
  DepthAnswer chosen = choose_depths(question, {&target_, drafts_}, candidates_);
  for (size_t i = 0; i < asks.size(); ++i)
    asks[i].depth =
        std::max(candidates_[i].depth, std::min(asks[i].least_depth, asks[i].max_depth));
  probe(outlook, chosen, asks);
}

// Those who draft nothing are asked again, one level deep, the longest idle first, as far as the
// savings reach. Where a plane lags far the step only catches up: the draft that was paid for comes
// once that is done, else answers could end before it is paid for twice, each time anew.
void DraftLength::probe(const StepOutlook& outlook, const DepthAnswer& chosen,
                        std::span<DraftAsk> asks) {
  idle_.clear();
  for (size_t i = 0; i < asks.size(); ++i) {
    DraftAsk& ask = asks[i];
    if (ask.depth > 0 || ask.max_depth <= 0) continue;
    if (!ask.history->owes_probe) {
      idle_.push_back(i);
      continue;
    }
    ask.depth = 1;
    ask.history->owes_probe = ask.lag > kInlineCatchupTokens;
  }
  if (idle_.empty() || savings_ <= 0) return;
  auto longer = [&](size_t a, size_t b) {
    return asks[a].history->n_idle > asks[b].history->n_idle;
  };
  size_t n = std::min<size_t>(idle_.size(), kProbed);
  std::partial_sort(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(n), idle_.end(),
                    longer);
  double rows = outlook.n_plain_rows + outlook.n_prompt_rows + chosen.n_nodes;
  for (size_t i = 0; i < n; ++i) {
    DraftAsk& ask = asks[idle_[i]];
    const CostCurve& draft = drafts_[static_cast<size_t>(ask.drafter)];
    int32_t n_nodes = candidates_[idle_[i]].n_nodes[0];
    auto n_before = static_cast<double>(i);
    double price = draft.at(n_before + 1) - draft.at(n_before);
    price += lag_seconds(draft, ask.lag);
    price += std::max(target_.at(rows + n_nodes) - target_.at(rows),
                      kLeastRowPrice * n_nodes * target_.at(1));
    if (price > savings_) {
      if (i == 0) saves_for_ = price;
      return;
    }
    savings_ -= price;
    rows += n_nodes;
    ask.depth = 1;
    ask.history->owes_probe = ask.lag > kInlineCatchupTokens;
  }
}

void DraftLength::learn(std::span<const DraftRound> rounds, const StepReport& report) {
  int64_t n_depth = 0, n_kept = 0;
  for (const DraftRound& r : rounds) {
    if (r.depth > 0) acceptance_.observe(r.drafter, r.match, r.depth, r.n_kept, r.history, r.text);
    r.history->n_idle = r.depth > 0 ? 0 : r.history->n_idle + 1;
    n_depth += r.depth, n_kept += r.n_kept;
  }
  if (n_depth > 0) {
    double rate = static_cast<double>(n_kept) / static_cast<double>(n_depth);
    window_.observe(rate);
    rate_.observe(rate);
  }
  double most = std::max(kMostSaved * report.target_seconds, saves_for_);
  savings_ = std::min(savings_ + kProbeShare * report.total_seconds, most);
  if (report.pure) learn_costs(report);
}

void DraftLength::learn_costs(const StepReport& report) {
  learn_target(report.n_rows, report.target_seconds);
  bool drafted = false;
  for (size_t d = 0; d < drafts_.size() && d < report.draft_passes.size(); ++d) {
    const std::vector<int32_t>& passes = report.draft_passes[d];
    if (passes.empty()) continue;
    drafted = true;
    double foretold = 0;
    for (int32_t rows : passes) foretold += drafts_[d].at(rows);
    if (!(foretold > 0)) continue;
    double ratio = report.draft_seconds[d] / foretold;
    for (int32_t rows : passes)
      drafts_[d].observe(rows, drafts_[d].at(rows) * ratio,
                         1.0 / static_cast<double>(passes.size()));
  }
  if (report.n_sequences > 0)
    meter_.observe(report.n_sequences, report.n_tokens, drafted, target_.at(report.n_sequences),
                   report.total_seconds);
}

}  // namespace pf
