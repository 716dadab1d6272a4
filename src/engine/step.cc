// The whole program on one page. Decode is verify with no draft; a prompt is rows without drafts;
// greedy is temperature 0: one forward path, one accept path, no modes.
#include "engine/step.h"

#include <algorithm>

#include "base/check.h"

namespace pf {

bool Step::run() {
  at_us_.began = clock_.now_us();
  admit(at_us_.began);  // requests become sequences; cancel flags and deadlines are read here only
  if (scheduler_.idle()) return publish(false), false;
  wish(at_us_.began);  // who would draft, and how much
  scheduler_.plan(at_us_.began, wishes_, &kv_, &plan_);
  // From here on the set of sequences in the step is fixed and their KV blocks are reserved.
  at_us_.planned = clock_.now_us();
  propose();  // trees of tokens with their q
  at_us_.proposed = clock_.now_us();
  flatten();  // rows: token, position, slot, what each may see; which rows want logits
  if (batch_.n_rows() > 0) parts_.target->forward(batch_);
  prepare();  // what drafters on other devices may do meanwhile
  judge();    // 1..K+1 tokens per sequence
  at_us_.judged = clock_.now_us();
  keep();    // they become the sequence's own
  emit();    // token ids go out: nobody waits for the rest
  commit();  // K, V lengths; an accepted branch moves to its place; heads take in hidden states
  learn();   // what the round says about the drafts
  finish();  // what is finished leaves
  count_step();
  publish(!scheduler_.idle());
  return !rows_.empty();
}

void Step::propose() {
  rows_.clear();
  for (const PlannedSequence& planned : plan_.sequences) {
    Row row;
    row.plan = planned;
    row.live = &live_.at(planned.sequence->request->ticket);
    row.policy = policy_of(*planned.sequence->request);
    row.n_before = planned.sequence->n_tokens();
    rows_.push_back(row);
  }
  drafter_seconds_.assign(static_cast<size_t>(parts_.drafters.size()), 0);
  trees_.resize(std::max(trees_.size(), rows_.size()));
  for (DraftTree& tree : trees_) tree.clear();
  for (int32_t d = 0; d < parts_.drafters.size(); ++d) propose_with(d);
}

void Step::propose_with(int32_t drafter) {
  tasks_.clear();
  task_rows_.clear();
  draft_params_.clear();
  draft_params_.reserve(rows_.size());  // tasks point into it
  for (size_t r = 0; r < rows_.size(); ++r) {
    const PlannedSequence& planned = rows_[r].plan;
    if (planned.sequence->drafter != drafter) continue;
    if (planned.n_draft == 0 && planned.n_draft_catchup == 0) continue;
    const SamplingParams* params = &planned.sequence->request->sampling;
    if (parts_.draft_temperature >= 0) {
      draft_params_.push_back(*params);
      draft_params_.back().temperature = parts_.draft_temperature;
      params = &draft_params_.back();
    }
    Drafter& d = parts_.drafters[drafter];
    if (planned.n_draft > 0)
      rows_[r].n_draft_fed = static_cast<int32_t>(std::max<int64_t>(1, d.lag(*planned.sequence)));
    DraftTask task;
    task.sequence = planned.sequence;
    task.n_draft = planned.n_draft;
    task.n_catchup = planned.n_draft_catchup;
    task.deepest =
        static_cast<int32_t>(std::min<int64_t>({kMaxTreeNodes, n_allowed(*planned.sequence) - 1,
                                                d.max_context() - planned.sequence->n_tokens()}));
    if (task.n_draft > 0) task.shape = shape_of(*planned.sequence, drafter);
    task.policy = rows_[r].policy;
    task.params = params;
    tasks_.push_back(task);
    task_rows_.push_back(r);
  }
  if (tasks_.empty()) return;
  proposed_.resize(std::max(proposed_.size(), tasks_.size()));
  int64_t began_us = clock_.now_us();
  parts_.drafters[drafter].propose(tasks_, std::span(proposed_).first(tasks_.size()));
  double seconds = 1e-6 * static_cast<double>(clock_.now_us() - began_us);
  drafter_seconds_[static_cast<size_t>(drafter)] = seconds;
  bool drafts = std::any_of(tasks_.begin(), tasks_.end(), [](auto& t) { return t.n_draft > 0; });
  (drafts ? draft_times_.proposing[static_cast<size_t>(drafter)] : draft_times_.catching_up) +=
      seconds;
  for (size_t t = 0; t < tasks_.size(); ++t) {
    std::swap(trees_[task_rows_[t]], proposed_[t]);
    if (tasks_[t].n_draft == 0) commit_catchup(rows_[task_rows_[t]].plan);
  }
}

void Step::prepare() {
  for (int32_t d = 0; d < parts_.drafters.size(); ++d) parts_.drafters[d].prepare();
}

void Step::flatten() {
  batch_.clear();
  score_jobs_.clear();
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    const Sequence& s = *row.plan.sequence;
    if (row.plan.n_rows == 0) continue;  // catches up in a draft plane only
    auto pending = std::span(s.tokens).subspan(static_cast<size_t>(s.kv_len),
                                               static_cast<size_t>(row.plan.n_rows));
    bool scores = s.index == 0 && row.live->wants_prompt_scores();
    size_t first_logit_row = batch_.logit_rows.size();
    batch_.add(pending, s.kv_len, &trees_[r], s.table.blocks,
               scores                  ? Batch::Logits::kAll
               : row.plan.wants_logits ? Batch::Logits::kLast
                                       : Batch::Logits::kNone);
    row.segment = static_cast<int32_t>(batch_.segments.size()) - 1;
    if (scores) add_score_jobs(&row, first_logit_row);
  }
}

void Step::judge() {
  jobs_.clear();
  for (size_t r = 0; r < rows_.size(); ++r) {
    Row& row = rows_[r];
    Sequence* s = row.plan.sequence;
    if (!row.plan.wants_logits || n_allowed(*s) <= 0) continue;
    row.job = static_cast<int32_t>(jobs_.size());
    AcceptJob job;
    job.segment = row.segment;
    AcceptInput& in = job.input;
    in.tree = &trees_[r];
    in.params = &s->request->sampling;
    in.stop = &s->request->stop;
    in.policy = row.policy;
    in.key = {s->request->seed, static_cast<uint32_t>(s->index)};
    in.position = s->n_tokens();
    in.n_generated = static_cast<int32_t>(s->n_generated());
    in.counts = s->counts.get();
    in.loss_spent = s->loss_spent;
    in.want_logprobs = s->request->output.logprobs || s->request->output.n_top_logprobs > 0;
    in.n_top_logprobs = s->request->output.n_top_logprobs;
    in.max_tokens = static_cast<int32_t>(std::min<int64_t>(n_allowed(*s), INT32_MAX));
    if (trees_[r].size() > 0) in.watched = parts_.drafters[s->drafter].watched(*s);
    jobs_.push_back(job);
  }
  results_.resize(std::max(results_.size(), jobs_.size()));
  if (!jobs_.empty()) parts_.target->accept(jobs_, std::span(results_).first(jobs_.size()));
  scores_.resize(score_jobs_.size());
  if (!score_jobs_.empty()) parts_.target->score(score_jobs_, scores_);
}

void Step::keep() {
  moves_.clear();
  for (Row& row : rows_) {
    append_scores(row);
    if (row.job >= 0) {
      place_accepted(&row);
      count_round(&row);
    } else if (row.plan.wants_logits) {
      row.finish = FinishReason::kLength;  // max_new_tokens is 0
    }
  }
}

void Step::emit() {
  for (const Row& row : rows_)
    if (row.job >= 0 && row.finish == FinishReason::kNone) say(row.plan.sequence, event_of(row));
  emitter_.flush();
}

void Step::commit() {
  if (!moves_.empty()) parts_.target->move_slots(moves_);
  settle();
  absorb();
  // The target's plane last: a block that becomes full may give way to an equal one in the index,
  // and what is then said of the table is said of that block.
  for (Row& row : rows_) commit_planes(&row);
  for (Row& row : rows_)
    if (!row.live->forked) fork_siblings(row.live);
  if (!copies_.empty()) {
    parts_.target->copy_blocks(copies_);
    for (int32_t d = 0; d < parts_.drafters.size(); ++d) parts_.drafters[d].copy_blocks(copies_);
    copies_.clear();
  }
}

void Step::learn() {
  for (const Row& row : rows_) {
    if (row.job < 0) continue;
    const AcceptResult& result = results_[static_cast<size_t>(row.job)];
    const Sequence& s = *row.plan.sequence;
    if (!result.argmax.empty())
      parts_.drafters[s.drafter].see(s, result.argmax, s.n_tokens() - row.n_before);
  }
  learn_costs();
}

void Step::finish() {
  for (const Row& row : rows_)
    if (row.finish != FinishReason::kNone) end(row.plan.sequence, row.finish, event_of(row));
  emitter_.flush();
}

}  // namespace pf
