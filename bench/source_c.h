#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/report.h"

namespace pf {

// A row of the table of source C (SOURCES.md): an A100 of 80 GB, a target of 7B, one sequence.
struct SweepClaim {
  enum class Draft { kNone, kSmall, kLarge, kSmallSharedKv, kHeads };
  const char* what;
  Draft draft;
  const char* ours;  // --drafters of the nearest thing that runs on a CPU; "" none
  int k;
  double tokens_per_s, first_token_ms;  // as claimed
};
std::span<const SweepClaim> sweep_claims();  // the plain row first
double claimed_speedup(const SweepClaim& claim);

// What a claim's step comes to by the roofline of our own launches (engine/estimate.h) on the
// claim's device: Qwen2.5 of 7B in FP16, drafts of 0.5B and 1.5B and three heads in INT4.
struct ClaimCosts {
  double plain_s = 0, verify_s = 0;  // a step with K = 0; the target's part of one with drafts
  double draft_s = 0;                // K proposals
  double draft_prompt_s = 0;  // for the draft to read the prompt, in place of the target's KV

  double c(int k) const { return k > 0 ? draft_s / (k * plain_s) : 0; }
  double v() const { return verify_s / plain_s; }
};

class SourceC {
 public:
  static constexpr int64_t kContext = 1024;  // the source does not say which
  static constexpr int kMostDrafted = 16;

  static Result<SourceC> estimate();

  const std::vector<ClaimCosts>& costs() const { return costs_; }  // by claim
  // Of a chain of k by the small draft, [k]; 0 up to kMostDrafted.
  const std::vector<ClaimCosts>& small() const { return small_; }
  // The k with the largest speed-up at an acceptance, and that speed-up over the best one's.
  int best_k(double acceptance) const;
  double speedup(double acceptance, int k) const;  // of the small draft
  // The acceptance at which a claim would hold; NaN: none. That of the small draft's row of K = 5
  // is one number that the other rows can be held against.
  double needs(size_t claim) const;
  int64_t prompt_tokens() const { return prompt_tokens_; }  // that the target reads in 280 ms

  // Sections "source C on an A100-80, on paper": each row as claimed and as it would be at
  // acceptances that are named with where they come from; "source C, best K"; and "source C, why":
  // a sentence where claim and roofline part.
  void add_to(Report* report) const;

 private:
  void add_row(size_t claim, double acceptance, const std::string& from, Report* report) const;
  std::vector<std::pair<std::string, std::string>> causes() const;

  std::vector<ClaimCosts> costs_, small_;
  int64_t prompt_tokens_ = 0;
  double layers_ratio_ = 0;  // of the small draft's over the target's
};

}  // namespace pf
