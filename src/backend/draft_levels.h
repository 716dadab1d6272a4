#pragma once

#include <algorithm>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/thread_pool.h"
#include "sampling/grown_tree.h"

namespace pf {

// Drafts that grow level by level on the host from a device's likeliest tokens: one pass over the
// committed tokens, then one pass per level over the last level's nodes of all drafts that go on.
class DraftLevels {
 public:
  struct Device {
    // One pass. `hidden` [T]: where the state lies that each row is made with; empty but for a
    // head.
    std::function<void(const Batch&, std::span<const HiddenRef> hidden)> forward;
    // The likeliest tokens of these logit rows (rising) of the last pass, as (token, logit) in any
    // order; nothing for a row that is not finite.
    std::function<void(std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out)>
        list;
    int64_t max_rows = 0;        // of a pass
    ThreadPool* pool = nullptr;  // grows the drafts of a level at once; null: this thread does
    // What is fed for a proposed token, where the device has a vocabulary of its own and its jobs'
    // `committed` are in it; empty: the token itself.
    std::span<const int32_t> fed_as = {};
  };
  explicit DraftLevels(Device device) : device_(std::move(device)) {}

  // Trees in the jobs' order, cleared first. As many jobs go together as a pass has room for; alone
  // or together gives the same bits.
  void grow(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);

  // Rows of the longest pass that a job needs.
  static int64_t rows_of(const ProposeJob& job) {
    int64_t fed = job.is_chain() ? 1 : job.n_draft;
    return std::max(fed, static_cast<int64_t>(job.committed.size()));
  }
  // How many of the jobs from `first` on have room in a pass.
  static size_t n_together(std::span<const ProposeJob> jobs, size_t first, int64_t max_rows);

 private:
  // One draft while it grows. Reused from call to call.
  struct Growth {
    size_t job = 0;
    std::vector<int32_t> open;  // nodes of the last level, one behind the other; {kRoot} at first
    std::vector<int32_t> next;  // those of the level that is added
    GrownTree grown;            // instead of both, where the job's tree grows
    int32_t n_fed = 0;          // nodes, level by level
    int32_t row_of_node_0 = 0;  // logit row of the present pass: that of node n is this + n
    size_t first_list = 0;      // of its open nodes in top_
    bool complete = false;
  };

  std::span<Growth> growing() { return std::span(growing_).first(n_growing_); }
  std::span<const int32_t> open(const Growth& g, const ProposeJob& job) const {
    return job.grown_levels > 0 ? g.grown.open() : std::span<const int32_t>(g.open);
  }
  void grow_together(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);
  void run_committed(std::span<const ProposeJob> jobs);
  void feed_level(std::span<const ProposeJob> jobs, std::span<const DraftTree> trees);
  void feed_one(const ProposeJob& job, const DraftTree& tree, Growth* g);
  void grow_level(std::span<const ProposeJob> jobs, std::span<DraftTree> trees, int32_t depth);
  void grow_one(const ProposeJob& job, Growth* g, int32_t depth, DraftTree* tree) const;
  void grow_best(const ProposeJob& job, Growth* g, DraftTree* tree) const;

  const Device device_;
  Batch batch_;
  std::vector<HiddenRef> hidden_;  // by row of the present pass
  std::vector<Growth> growing_;    // the first n_growing_ of them are
  size_t n_growing_ = 0;
  std::vector<int32_t> rows_;                       // logit rows of all open nodes
  std::vector<std::vector<TokenProbability>> top_;  // the same, their likeliest tokens
};

}  // namespace pf
