#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "proto/pilotfish/v1/inference.pb.h"

namespace pf {

// What speculation gained for one prompt: the same answer made with it and without.
struct GenerateStats {
  uint32_t n_tokens = 0, n_prompt = 0;
  double tokens_per_s = 0, plain_tokens_per_s = 0;  // behind the first token
  uint32_t rounds = 0, drafted = 0, accepted = 0;
  std::vector<uint32_t> drafted_at, accepted_at;            // by position
  std::vector<std::pair<std::string, uint32_t>> rounds_of;  // by drafter
  bool same_text = false;

  // Only where something was drafted, and there is a token behind the first: else both ways did the
  // same work, and their ratio says how steady the machine is.
  bool has_speedup() const { return drafted > 0 && tokens_per_s > 0 && plain_tokens_per_s > 0; }
  // Requires: has_speedup().
  double speedup() const { return tokens_per_s / plain_tokens_per_s; }
  // Tokens per target pass, the bonus token included.
  double accepted_length() const {
    return rounds > 0 && n_tokens > 0 ? double(n_tokens - 1) / rounds : 0;
  }
  uint32_t drafting_rounds() const {
    uint32_t n = 0;
    for (const auto& [name, rounds] : rounds_of) n += rounds;
    return n;
  }
  // K as it was chosen, mean over the rounds that drafted; nodes where the drafts were trees.
  double draft_length() const {
    return drafting_rounds() > 0 ? double(drafted) / drafting_rounds() : 0;
  }
  double acceptance() const { return drafted > 0 ? double(accepted) / drafted : 0; }
};

// Requires: both with timing.
GenerateStats stats_of(const pilotfish::v1::Completion& with,
                       const pilotfish::v1::Completion& without);

std::string plain_text(const GenerateStats& stats);
std::string json_text(const GenerateStats& stats);

}  // namespace pf
