#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "batch/batch.h"
#include "batch/plan.h"
#include "engine/cancels.h"
#include "engine/live.h"
#include "engine/policy.h"
#include "engine/self_tested.h"
#include "engine/step_parts.h"
#include "engine/step_row.h"
#include "scheduler/deadlines.h"

namespace pf {

// All mutable state of the engine and the one step that changes it. One thread; no locks but the
// one around the snapshot.
class Step {
 public:
  Step(StepParts parts, const Clock& clock, BoundedQueue<std::unique_ptr<Request>>* inbox,
       BoundedQueue<Event>* outbox);

  // See Engine::self_test; teaches the controllers what it measured.
  Result<SelfTested> self_test();

  // One step, top to bottom; false when there was nothing to run.
  bool run();
  void set_policy(const EnginePolicy& policy);
  void take(std::unique_ptr<Request> request);  // into the waiting line, as admit does
  void cancelled(uint64_t ticket) { cancels_.raise(ticket); }  // any thread; see Engine
  void finish_everything(FinishReason reason);
  bool idle() const { return live_.empty() && emitter_.empty(); }
  Snapshot snapshot() const;
  int32_t n_waiting() const { return n_waiting_.load(std::memory_order_relaxed); }
  void check_integrity() const;
  Backend& target() { return *parts_.target; }
  const KvCache& kv() const { return kv_; }
  const DraftTimes& draft_times() const { return draft_times_; }

 private:
  using Row = StepRow;
  void admit(int64_t now_us);
  void wish(int64_t now_us);
  void propose();
  void flatten();
  void prepare();
  void judge();
  void keep();
  void emit();
  void commit();
  void learn();
  void finish();
  void publish(bool stepping);
  void add_offers(Sequence* s, size_t wish, int64_t now_us);
  static void weigh_ease(Sequence* s, std::span<DraftAsk> offers);
  void choose_drafters();
  StepOutlook outlook() const;
  void learn_costs();
  void count_step();
  void count_recomputed(int64_t from, int64_t to, int64_t* high, int64_t* total) const;
  AcceptPolicy policy_of(const Request& r) const;
  double accept_rate() const { return length_.acceptance().rate(); }
  int32_t chain_length(const SpeculationParams& params) const;
  DraftShape shape_of(const Sequence& s, int32_t drafter);
  int64_t n_allowed(const Sequence& s) const;  // tokens that request and context still allow
  void check_limits(int64_t now_us);
  void end_all(const Live& live, uint32_t bits, FinishReason reason);
  void propose_with(int32_t drafter);
  void commit_catchup(const PlannedSequence& planned);
  void add_score_jobs(Row* row, size_t first_logit_row);
  void append_scores(const Row& row);
  void place_accepted(Row* row);
  void settle();
  void absorb();
  int64_t computed_after(const Row& row) const;
  void commit_planes(Row* row);
  FinishReason reason_to_end(const Sequence& s, const AcceptResult& result) const;
  void fork_siblings(Live* live);
  void fork_planes(const Sequence& leader, Sequence* s, bool has_copy);
  void count_round(Row* row);
  Event event_of(const Row& row) const;
  void say(Sequence* s, Event event);
  void end(Sequence* s, FinishReason reason, Event event);

  StepParts parts_;
  const Clock& clock_;
  BoundedQueue<std::unique_ptr<Request>>* inbox_;
  Emitter emitter_;
  KvCache kv_;
  Scheduler scheduler_;
  std::unordered_map<uint64_t, Live> live_;  // by ticket
  Cancels cancels_;
  Deadlines deadlines_;  // of live_
  uint64_t next_order_ = 0;
  DraftLength length_;
  MeasuredChoice choice_;
  AlphaControl alpha_;
  bool speculates_ = true;  // operators' word, like the next one
  std::optional<float> pinned_alpha_;

  // Of the present step; kept to reuse their memory.
  std::vector<uint64_t> cancelled_;
  Plan plan_;
  Batch batch_;
  std::vector<Wish> wishes_;
  std::vector<DraftAsk> offers_;       // of all sequences, one after another
  std::vector<StepOffers> offered_;    // whose they are
  std::vector<DraftOffers> contests_;  // by entry of offered_
  std::vector<DraftAsk> asks_;
  std::vector<size_t> asked_;  // by ask: whose wish, of wishes_
  std::vector<Row> rows_;
  std::vector<DraftTree> trees_;   // by row
  std::vector<DraftTask> tasks_;   // of one drafter
  std::vector<size_t> task_rows_;  // by task, or by judged draft
  std::vector<SamplingParams> draft_params_;
  std::vector<DraftTree> proposed_;  // by task
  std::vector<AcceptJob> jobs_;
  std::vector<AcceptResult> results_;  // by job
  std::vector<ScoreJob> score_jobs_;
  std::vector<TokenLogprob> scores_;
  std::vector<SlotMove> moves_;
  std::vector<JudgedDraft> judged_;   // of one drafter
  std::vector<AbsorbTask> absorbed_;  // of one drafter
  std::vector<size_t> absorbed_rows_;
  std::vector<std::vector<int32_t>> target_rows_;  // by row: its committed rows of the batch
  std::vector<BlockCopy> copies_;                  // of forks
  std::vector<std::pair<Sequence*, FinishReason>> ended_;
  std::vector<DraftRound> rounds_;
  std::vector<double> drafter_seconds_;  // by drafter
  DraftTimes draft_times_;
  std::vector<std::vector<int32_t>> draft_passes_;  // [drafter]: rows of each pass
  struct {
    int64_t began = 0, planned = 0, proposed = 0, judged = 0;
  } at_us_;

  Snapshot figures_;  // totals so far, engine thread only
  mutable std::mutex snapshot_mutex_;
  Snapshot snapshot_;  // guarded by snapshot_mutex_
  std::atomic<int32_t> n_waiting_{0};
};

}  // namespace pf
