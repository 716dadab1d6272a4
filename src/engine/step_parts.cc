// The parts of the step that the page calls by name: what a request allows, how accepted tokens
// are written down, how completions begin and end.
#include <algorithm>

#include "base/check.h"
#include "engine/step.h"

namespace pf {
namespace {

DraftLengthOptions length_options(const StepParts& parts) {
  DraftLengthOptions options = parts.length;
  options.cost_ratios.resize(static_cast<size_t>(parts.drafters.size()), 0.1f);
  return options;
}

}  // namespace

Step::Step(StepParts parts, const Clock& clock, BoundedQueue<std::unique_ptr<Request>>* inbox,
           BoundedQueue<Event>* outbox)
    : parts_(std::move(parts)),
      clock_(clock),
      inbox_(inbox),
      emitter_(outbox),
      kv_(parts_.kv),
      scheduler_(parts_.scheduler),
      length_(length_options(parts_)),
      alpha_(parts_.alpha) {
  figures_.kv_blocks_total = kv_.n_blocks();
  draft_times_.proposing.assign(static_cast<size_t>(parts_.drafters.size()), 0);
  figures_.rounds_per_drafter.assign(static_cast<size_t>(parts_.drafters.size()), 0);
  publish(false);
}

int64_t Step::n_allowed(const Sequence& s) const {
  // The last row's token is given and not fed: a context of C positions gives C + 1 tokens.
  return std::min<int64_t>(s.request->stop.max_new_tokens - s.n_generated(),
                           parts_.max_context + 1 - s.n_tokens());
}

AcceptPolicy Step::policy_of(const Request& r) const {
  const SpeculationParams& p = r.speculation;
  using Rule = SpeculationParams::Rule;
  bool servers = p.rule == Rule::kServer && parts_.has_policy;
  if (servers || p.rule == Rule::kNamed) {
    AcceptPolicy policy = servers ? parts_.policy : p.policy;
    bool threshold =
        policy.rule == Acceptance::kThreshold || policy.rule == Acceptance::kThresholdLiteral;
    if (!threshold || p.has_alpha) return policy;
    policy.alpha = pinned_alpha_ ? *pinned_alpha_
                   : p.dynamic_alpha || parts_.dynamic_alpha
                       ? static_cast<float>(alpha_.alpha(accept_rate()))
                       : parts_.policy.alpha;
    return policy;
  }
  AcceptPolicy policy;  // greedy needs no name: at temperature 0 both exact rules keep the argmax
  policy.rule = r.has_seed && !r.sampling.greedy() ? Acceptance::kCoupled : Acceptance::kRejection;
  return policy;
}

// Levels that a draft may have where its shape does not say it.
int32_t Step::chain_length(const SpeculationParams& p) const {
  if (p.mode == SpeculationParams::Mode::kFixed) return p.n_draft_tokens;
  int32_t server = parts_.num_speculative_tokens;
  return p.n_draft_tokens >= 0 ? std::min(server, p.n_draft_tokens) : server;
}

DraftShape Step::shape_of(const Sequence& s, int32_t drafter) {
  const SpeculationParams& p = s.request->speculation;
  if (!p.tree.empty()) return {p.tree};
  if (p.tree_nodes > 0) return DraftShape::grown(p.tree_nodes, chain_length(p));
  if (p.mode == SpeculationParams::Mode::kFixed) return {};  // exactly so many, in a chain
  std::span<const int32_t> own = parts_.drafters[drafter].own_shape();
  if (!own.empty()) return {own};
  if (parts_.speculation_tree_nodes > 0)
    return DraftShape::grown(parts_.speculation_tree_nodes, chain_length(p));
  return {parts_.speculation_tree};
}

void Step::commit_catchup(const PlannedSequence& planned) {
  Sequence* s = planned.sequence;
  int32_t plane = parts_.drafters[s->drafter].plane();
  if (!parts_.drafters[s->drafter].uses_plane(s->n_tokens())) return;
  int64_t before = s->table.filled[static_cast<size_t>(plane)];
  int64_t filled = before + planned.n_draft_catchup;
  count_recomputed(before, filled, &s->draft_high[static_cast<size_t>(plane)],
                   &figures_.n_recomputed_draft);
  kv_.commit(&s->table, plane, s->tokens, filled, s->request->cache_salt);
}

void Step::add_score_jobs(Row* row, size_t first_logit_row) {
  // The row at position i scores prompt token i + 1, as far as that is not done.
  const Sequence& s = *row->plan.sequence;
  row->first_score = score_jobs_.size();
  for (int32_t i = 0; i < row->plan.n_rows; ++i) {
    int64_t token = s.kv_len + i + 1;
    if (token <= static_cast<int64_t>(row->live->prompt_logprobs.size()) || token >= s.n_prompt())
      continue;
    score_jobs_.push_back({static_cast<int32_t>(first_logit_row) + i,
                           s.request->prompt[static_cast<size_t>(token)],
                           s.request->output.n_top_logprobs});
  }
  row->n_scores = score_jobs_.size() - row->first_score;
}

void Step::append_scores(const Row& row) {
  for (size_t i = 0; i < row.n_scores; ++i)
    row.live->prompt_logprobs.push_back(std::move(scores_[row.first_score + i]));
}

void Step::place_accepted(Row* row) {
  Sequence* s = row->plan.sequence;
  const AcceptResult& result = results_[static_cast<size_t>(row->job)];
  const Segment& segment = batch_.segments[static_cast<size_t>(row->segment)];
  int64_t to = row->n_before;
  for (int32_t node : result.path) {
    int64_t from = segment.node_slot(node);
    if (from != to)
      moves_.push_back({segment.blocks, static_cast<int32_t>(from), static_cast<int32_t>(to)});
    ++to;
  }
  for (int32_t t : result.tokens) {
    s->tokens.push_back(t);
    if (s->counts) s->counts->add_output(t);
  }
  if (s->first_token_us < 0) s->first_token_us = clock_.now_us();
  row->finish = reason_to_end(*s, result);
}

// An accepted branch moves to its place in the plane of whoever proposed it, too.
void Step::settle() {
  for (int32_t d = 0; d < parts_.drafters.size(); ++d) {
    judged_.clear();
    task_rows_.clear();
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      const Sequence* s = row.plan.sequence;
      if (row.job < 0 || row.plan.n_draft == 0 || s->drafter != d) continue;
      judged_.push_back({s, &trees_[r], results_[static_cast<size_t>(row.job)].path, row.n_before});
      task_rows_.push_back(r);
    }
    if (judged_.empty()) continue;
    parts_.drafters[d].settle(judged_);
    for (size_t i = 0; i < judged_.size(); ++i)
      rows_[task_rows_[i]].draft_filled = judged_[i].filled;
  }
}

// Drafters that live on the target's hidden states take in what it has computed and the tokens
// keep.
void Step::absorb() {
  for (int32_t d = 0; d < parts_.drafters.size(); ++d) {
    Drafter& drafter = parts_.drafters[d];
    if (!drafter.absorbs()) continue;
    absorbed_.clear();
    absorbed_rows_.clear();
    target_rows_.resize(std::max(target_rows_.size(), rows_.size()));
    for (size_t r = 0; r < rows_.size(); ++r) {
      const Row& row = rows_[r];
      if (row.plan.n_rows == 0 || row.finish == FinishReason::kCorrupted) continue;
      Sequence* s = row.plan.sequence;
      const Segment& segment = batch_.segments[static_cast<size_t>(row.segment)];
      std::vector<int32_t>& rows = target_rows_[r];
      rows.clear();
      for (int32_t i = 0; i < row.plan.n_rows; ++i) rows.push_back(segment.first_row + i);
      if (row.job >= 0)
        for (int32_t node : results_[static_cast<size_t>(row.job)].path)
          rows.push_back(segment.first_row + segment.n_plain + node);
      rows.resize(static_cast<size_t>(computed_after(row) - s->kv_len));
      int64_t filled =
          drafter.plane() < 0 ? 0 : s->table.filled[static_cast<size_t>(drafter.plane())];
      if (s->drafter == d) filled = std::max(filled, row.draft_filled);
      absorbed_.push_back({s, s->kv_len, rows, filled});
      absorbed_rows_.push_back(r);
    }
    int64_t began_us = clock_.now_us();
    drafter.absorb(absorbed_);
    draft_times_.absorbing += 1e-6 * static_cast<double>(clock_.now_us() - began_us);
    for (size_t i = 0; drafter.plane() >= 0 && i < absorbed_.size(); ++i) {
      Sequence* s = rows_[absorbed_rows_[i]].plan.sequence;
      kv_.commit(&s->table, drafter.plane(), s->tokens, absorbed_[i].filled,
                 s->request->cache_salt);
    }
  }
}

// How far the target's K and V of a row's sequence reach behind this step. The last token of the
// round is not fed: it stays pending, also where an end cut a run behind an accepted node.
int64_t Step::computed_after(const Row& row) const {
  const Sequence& s = *row.plan.sequence;
  int64_t n_path =
      row.job < 0 ? 0 : static_cast<int64_t>(results_[static_cast<size_t>(row.job)].path.size());
  return std::min(s.kv_len + row.plan.n_rows + n_path, std::max(row.n_before, s.n_tokens() - 1));
}

void Step::commit_planes(Row* row) {
  Sequence* s = row->plan.sequence;
  const std::string& salt = s->request->cache_salt;
  if (row->finish == FinishReason::kCorrupted) return;  // nobody shall find this K and V again
  if (row->job >= 0 && row->plan.n_draft > 0) {
    Drafter& drafter = parts_.drafters[s->drafter];
    const int64_t most = s->n_tokens() - 1;  // the last one is not fed, also where an end cut it
    if (drafter.uses_plane(row->n_before)) {
      count_recomputed(s->table.filled[static_cast<size_t>(drafter.plane())], row->n_before,
                       &s->draft_high[static_cast<size_t>(drafter.plane())],
                       &figures_.n_recomputed_draft);
      kv_.commit(&s->table, drafter.plane(), s->tokens, std::min(row->draft_filled, most), salt);
    }
    for (Drafter* d = &drafter; d->inner() != nullptr; d = d->inner())
      if (d->inner()->plane() >= 0 && !d->inner()->absorbs())
        kv_.commit(&s->table, d->inner()->plane(), s->tokens, std::min(d->filled_inside(*s), most),
                   salt);
  }
  if (row->plan.n_rows == 0) return;
  const int64_t computed = computed_after(*row), of_prompt = std::min(computed, s->n_prompt());
  if (s->index == 0) figures_.n_prompt_tokens += of_prompt - std::min(s->target_high, of_prompt);
  count_recomputed(s->kv_len, s->kv_len + row->plan.n_rows, &s->target_high,
                   &figures_.n_recomputed_target);
  s->kv_len = computed;
  kv_.commit(&s->table, kTargetPlane, s->tokens, s->kv_len, salt);
}

FinishReason Step::reason_to_end(const Sequence& s, const AcceptResult& result) const {
  if (!result.finite) return FinishReason::kCorrupted;
  if (result.ended) return FinishReason::kEndToken;
  if (s.n_generated() >= s.request->stop.max_new_tokens) return FinishReason::kLength;
  if (s.n_tokens() > parts_.max_context) return FinishReason::kContextFull;
  return FinishReason::kNone;
}

// In the plane of a drafter that lives on hidden states the copied block holds the slot of the
// prompt's last token too, and nobody could compute it again for the sibling, which begins behind
// the state that it is made of.
void Step::fork_planes(const Sequence& leader, Sequence* s, bool has_copy) {
  for (int32_t d = 0; d < parts_.drafters.size(); ++d) {
    Drafter& drafter = parts_.drafters[d];
    if (!drafter.absorbs() || drafter.plane() < 0 || !has_copy) continue;
    int64_t filled = leader.table.filled[static_cast<size_t>(drafter.plane())];
    kv_.commit(&s->table, drafter.plane(), s->tokens, std::min(filled, leader.n_prompt()),
               s->request->cache_salt);
  }
}

void Step::fork_siblings(Live* live) {
  Sequence* leader = live->sequences[0].get();
  int64_t shared = leader->n_prompt() - 1;
  if (leader->kv_len < shared) return;
  live->forked = true;
  for (size_t i = 1; i < live->sequences.size(); ++i) {
    Sequence* s = live->sequences[i].get();
    if (s == nullptr) continue;
    KvCache::Fork fork = kv_.fork(leader->table, shared, &s->table);
    if (fork.ok)
      s->kv_len = shared;  // else it finds the prompt in the prefix index, or computes it
    if (fork.has_copy) copies_.push_back(fork.copy);
    if (fork.ok) fork_planes(*leader, s, fork.has_copy);
    s->n_cached_tokens = s->kv_len;
    s->waits_for_leader = false;
  }
}

void Step::count_round(Row* row) {
  Sequence* s = row->plan.sequence;
  const AcceptResult& result = results_[static_cast<size_t>(row->job)];
  const DraftTree& tree = trees_[static_cast<size_t>(row - rows_.data())];
  figures_.n_generated_tokens += static_cast<int64_t>(result.tokens.size());
  if (row->n_before == s->n_prompt() && tree.size() == 0)
    return;  // the prompt's own token: no round of decoding
  ++figures_.n_rounds;
  s->loss_spent += result.loss();
  figures_.loss_spent += result.loss();
  row->round = VerifiedRound::of(tree, s->drafter, result.n_accepted, row->policy.alpha);
  if (tree.size() == 0) return;
  ++figures_.rounds_per_drafter[static_cast<size_t>(s->drafter)];
  ++figures_.n_draft_rounds;
  figures_.n_drafted += tree.size();
  figures_.n_accepted += result.n_accepted;
  figures_.n_fallbacks += result.n_accepted == 0;
  row->round->count_depths(&figures_.drafted_at, &figures_.accepted_at);
}

// What a row's completion hears of this step.
Event Step::event_of(const Row& row) const {
  Event event;
  if (row.job < 0) return event;
  const AcceptResult& result = results_[static_cast<size_t>(row.job)];
  event.tokens = result.tokens;
  event.origins = result.origins;
  event.losses = result.losses;
  if (row.round) event.rounds.push_back(*row.round);
  event.logprobs = result.logprobs;
  return event;
}

void Step::say(Sequence* s, Event event) {
  Live& live = live_.at(s->request->ticket);
  event.ticket = s->request->ticket;
  event.index = s->index;
  if (!live.prompt_reported) {
    live.prompt_reported = true;
    event.has_prompt = true;
    event.n_prompt_tokens = s->n_prompt();
    event.n_cached_tokens = s->n_cached_tokens;
    event.prompt_logprobs = std::move(live.prompt_logprobs);
  }
  emitter_.emit(std::move(event));
}

void Step::end(Sequence* s, FinishReason reason, Event event) {
  event.finish = reason;
  event.acceptance = policy_of(*s->request).rule;
  event.times = {s->request->arrival_us, s->first_scheduled_us, s->first_token_us, clock_.now_us()};
  say(s, std::move(event));
  s->state = Sequence::State::kFinished;
  s->finish = reason;
  scheduler_.remove(s, &kv_);
  parts_.drafters.forget(*s);
  auto it = live_.find(s->request->ticket);
  Live& live = it->second;
  int32_t index = s->index;
  // Siblings that waited for a leader that left go on by themselves.
  if (index == 0 && !live.forked) {
    live.forked = true;
    for (auto& sibling : live.sequences)
      if (sibling != nullptr) sibling->waits_for_leader = false;
  }
  live.sequences[static_cast<size_t>(index)].reset();
  if (--live.n_open > 0) return;
  deadlines_.remove(it->first, std::min(live.request->deadline_us, live.request->time_limit_us));
  live_.erase(it);
}

void Step::publish(bool stepping) {
  Snapshot& f = figures_;
  f.n_running = static_cast<int32_t>(scheduler_.running().size());
  f.n_waiting = static_cast<int32_t>(scheduler_.waiting().size());
  f.kv_blocks_in_use = kv_.n_in_use();
  f.kv_blocks_cached = kv_.n_cached();
  f.n_prefix_queried_tokens = kv_.prefix_stats().n_queried_tokens;
  f.n_prefix_hit_tokens = kv_.prefix_stats().n_hit_tokens;
  f.n_preemptions += static_cast<int64_t>(plan_.preempted.size());
  plan_.preempted.clear();
  f.last_step_end_us = clock_.now_us();
  f.stepping = stepping;
  n_waiting_.store(f.n_waiting, std::memory_order_relaxed);
  std::lock_guard lock(snapshot_mutex_);
  snapshot_ = f;
}

Snapshot Step::snapshot() const {
  std::lock_guard lock(snapshot_mutex_);
  return snapshot_;
}

void Step::check_integrity() const {
  std::vector<const BlockTable*> tables;
  for (const auto& [ticket, live] : live_)
    for (const auto& s : live.sequences)
      if (s != nullptr) tables.push_back(&s->table);
  kv_.check_integrity(tables);
}

}  // namespace pf
