#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/limits.h"

namespace pf {

// What the CUDA backend does to draft chains, in order: written once, for whoever issues it
// (CudaDraft) and for whoever wants to know what would be issued (LaunchList), as passes.h is for a
// pass.

// Drafts that grow together, those that want most first: at each depth the chains that go on are
// the first rows.
class DraftJobs {
 public:
  // The jobs outlive this.
  void set(std::span<const ProposeJob> jobs) {
    jobs_ = jobs;
    order_.clear();
    for (size_t j = 0; j < jobs.size(); ++j)
      if (jobs[j].n_draft > 0) order_.push_back(j);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](size_t a, size_t b) { return jobs[a].n_draft > jobs[b].n_draft; });
  }
  std::span<const size_t> order() const { return order_; }  // jobs that draft
  int64_t n() const { return static_cast<int64_t>(order_.size()); }
  // The i-th of those. Requires: i < n().
  const ProposeJob& operator[](size_t i) const { return jobs_[order_[i]]; }
  // Of chains: the longest, and how many go on at a depth.
  int32_t n_levels() const { return order_.empty() ? 0 : jobs_[order_[0]].n_draft; }
  int64_t n_rows(int32_t depth) const {
    auto ended = [&](size_t j) { return jobs_[j].n_draft < depth; };
    return std::find_if(order_.begin(), order_.end(), ended) - order_.begin();
  }

  // The committed tokens of all jobs; a logit row of each that drafts, in their order. `hidden`: of
  // each row, for a head; empty else.
  void committed(Batch* batch, std::vector<HiddenRef>* hidden) const {
    batch->clear();
    hidden->clear();
    auto add = [&](const ProposeJob& job, Batch::Logits logits) {
      batch->add(job.committed, job.base, nullptr, job.blocks, logits);
      hidden->insert(hidden->end(), job.hidden.begin(), job.hidden.end());
    };
    for (size_t j : order_) add(jobs_[j], Batch::Logits::kLast);
    for (const ProposeJob& job : jobs_)
      if (job.n_draft == 0) add(job, Batch::Logits::kNone);
  }
  // One row per chain that goes on at a depth >= 2: what the level above has drawn, on the device.
  void level(int32_t depth, Batch* batch, std::vector<HiddenRef>* hidden) const {
    static constexpr int32_t kOnDevice = 0;
    batch->clear();
    hidden->clear();
    for (size_t j : order_) {
      const ProposeJob& job = jobs_[j];
      if (job.n_draft < depth) break;
      hidden->push_back({HiddenRef::In::kOwn, batch->n_rows()});  // said of the level above
      batch->add({&kOnDevice, 1}, job.base + static_cast<int64_t>(job.committed.size()) + depth - 2,
                 nullptr, job.blocks, Batch::Logits::kLast);
    }
  }

 private:
  std::span<const ProposeJob> jobs_;
  std::vector<size_t> order_;
};

// One pass over what is committed, with room for `padded` logit rows; then, in one copy each, what
// the levels read, the levels, and what came of them. padded: rows that the levels are launched
// with, so that a graph can hold them; 0: those that there are.
template <class Ops>
void draft_chains(Ops& ops, const DraftJobs& jobs, int64_t max_rows, bool graphs) {
  const int64_t padded = graphs && jobs.n() > 0 ? padded_rows(jobs.n(), max_rows) : 0;
  ops.run_committed(padded);
  if (jobs.n() == 0) return;
  ops.stage_levels(padded);
  ops.run_levels(padded);
  ops.fetch();
}

// The levels: each feeds what the one above has drawn and lists what follows, a head's worth of
// rows at a time.
template <class Ops>
void issue_levels(Ops& ops, const DraftJobs& jobs, int64_t padded, int32_t chunk_rows) {
  ops.clear_trees();
  for (int32_t depth = 1; depth <= jobs.n_levels(); ++depth) {
    const int64_t n = padded > 0 ? padded : jobs.n_rows(depth);
    if (depth > 1) ops.feed(depth, n);
    for (int64_t first = 0; first < n; first += chunk_rows)
      ops.list(depth, first, std::min<int64_t>(chunk_rows, n - first));
    ops.grow(depth, n);
  }
}

}  // namespace pf
