#pragma once

#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace pf {

// Drafts that grow level by level on the host from a device's likeliest tokens: one pass over the
// committed tokens, then one pass per level over all drafts that go on.
class DraftLevels {
 public:
  struct Device {
    std::function<void(const Batch&)> forward;
    // The likeliest tokens of n logit rows of the last pass, from `first` on, as (token, logit) in
    // any order; nothing for a row that is not finite.
    std::function<void(int32_t first, int32_t n, std::span<std::vector<TokenProbability>> out)>
        list;
    // What is fed for a proposed token, where the device has a vocabulary of its own and its jobs'
    // `committed` are in it; empty: the token itself.
    std::span<const int32_t> fed_as = {};
  };

  // Trees in the jobs' order, cleared first. Alone or together gives the same bits.
  // Requires: every pass fits the device (rows_of).
  void grow(const Device& device, std::span<const ProposeJob> jobs, std::span<DraftTree> trees);

  // Rows of the longest pass that a job needs.
  static int64_t rows_of(const ProposeJob& job) {
    int64_t fed = job.widths.empty() ? 1 : 1 + job.n_draft;
    return std::max(fed, static_cast<int64_t>(job.committed.size()));
  }

 private:
  struct Growth {
    size_t job;
    std::vector<int32_t> open;  // nodes of the last level; {kRoot} at first
    int32_t first_logit_row;    // of the present pass
  };

  void feed_level(const Device& device, std::span<const ProposeJob> jobs,
                  std::span<const DraftTree> trees, int32_t depth);
  bool grow_one(const ProposeJob& job, Growth* g, int32_t depth, DraftTree* tree);

  Batch batch_;
  std::vector<Growth> growing_;
  std::vector<std::vector<TokenProbability>> top_;  // by open node of one draft
};

}  // namespace pf
