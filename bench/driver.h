#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/bounded_queue.h"
#include "base/clock.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/load.h"

namespace pf {

// How answers are asked for.
struct DriverAsk {
  int32_t n = 0;                 // most tokens of each answer
  int32_t k = -1;                // < 0: the server's own choice of drafts, 0: none, else so many
  std::vector<int32_t> end_ids;  // sorted; none: exactly n tokens
  float temperature = 0;         // > 0: drawn with `seed`, so the text is the same for every k
  uint64_t seed = 1;
  std::string salt;  // drafters that remember answers remember them under their salt
  // Of drafts, as in SpeculationParams: who may make them (none: all), trees, the text foretold.
  std::vector<std::string> drafters;
  std::vector<int32_t> tree;
  int32_t tree_nodes = 0;
  std::vector<int32_t> predicted;
};

// Token lists answered together, and how long that took.
struct DriverRun {
  std::vector<std::vector<int32_t>> tokens;  // generated, by prompt
  double prefill_s = 0;      // from the first step until every prompt has its first token
  double first_token_s = 0;  // until the last prompt's first token goes out: heads take in later
  double decode_s = 0;       // from the prefill to the last token
  int64_t n_steps = 0;       // after the prefill
  int64_t n_drafted = 0, n_accepted = 0;
  int64_t n_rounds = 0;                          // target passes behind the prompts, by sequence
  std::vector<int64_t> drafted_at, accepted_at;  // by depth, the first at index 0
  std::vector<int64_t> rounds_of;                // [n]: rounds with so many drafted tokens
  std::vector<int64_t> drafted_by;               // tokens by drafter
  // Of decode_s: the drafters' proposing by drafter, the target's passes, and what drafters need
  // besides: feeding what a plane lacks before it can draft, and taking in hidden states.
  std::vector<double> propose_s;
  double target_s = 0, catch_up_s = 0, absorb_s = 0;

  int64_t n_decoded() const;  // tokens behind the first ones
  double draft_s() const;     // all proposing
};

// The engine's step on the calling thread: no queueing, no text, no network. For measuring.
class Driver {
 public:
  // As the server would load it; a synthetic model (bench_model.h) by its name, which knows no
  // draft but "ngram". Prefix caching is off: a prompt that comes again is run again. The pool's
  // threads are pinned to `cpus` where there are enough.
  static Result<std::unique_ptr<Driver>> create(EngineOptions options, std::span<const int> cpus);

  // Greedy answers of exactly n tokens to prompts that begin together. k < 0: the server's own
  // choice of drafts, 0: none, else so many. Refuses what does not fit the context or the rows.
  Result<DriverRun> run(std::span<const std::vector<int32_t>> prompts, int32_t n, int32_t k);
  Result<DriverRun> run(std::span<const std::vector<int32_t>> prompts, const DriverAsk& ask);

  // As the server does before it is ready: what it measures, the server's choice of K begins with.
  Status self_test();

  Backend& target() { return step_->target(); }
  ThreadPool& pool() { return *pool_; }
  int64_t max_context() const { return max_context_; }
  // KV blocks that hold so many tokens, and all of them.
  int64_t n_kv_blocks(int64_t n_tokens) const {
    return (n_tokens + kv_.block_tokens - 1) / kv_.block_tokens;
  }
  int64_t n_kv_blocks() const { return kv_.n_blocks; }
  int32_t n_drafters() const { return static_cast<int32_t>(step_->draft_times().proposing.size()); }
  int32_t vocabulary_size() const {
    return static_cast<int32_t>(step_->target().info().vocabulary_size);
  }

 private:
  explicit Driver(EngineParts parts);
  Status check_prompts(std::span<const std::vector<int32_t>> prompts, int32_t n) const;
  void submit(const std::vector<int32_t>& prompt, const DriverAsk& ask);
  void collect(DriverRun* run, size_t* n_begun, size_t* n_ended);
  void take_times(double sign, DriverRun* run) const;

  std::unique_ptr<ThreadPool> pool_;
  Clock clock_;
  BoundedQueue<std::unique_ptr<Request>> inbox_{4096};
  BoundedQueue<Event> outbox_{1 << 16};
  int64_t max_context_;
  KvCache::Options kv_;
  int32_t max_num_seqs_;
  std::unique_ptr<Step> step_;
  uint64_t first_ticket_ = 1, next_ticket_ = 1;
};

}  // namespace pf
