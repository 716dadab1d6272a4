#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "sampling/params.h"

namespace pf {

inline constexpr int64_t kNever = INT64_MAX;

// What a client wants drafted. Names and ranges as on the wire.
struct SpeculationParams {
  enum class Mode { kServer, kAuto, kOff, kFixed };
  Mode mode = Mode::kServer;
  std::vector<std::string> drafters;  // empty: the server's choice; names are known ones
  int32_t n_draft_tokens = -1;        // -1: the server's; kAuto: the upper limit
  std::vector<int32_t> tree;          // widths per depth; empty: a chain, or
  int32_t tree_nodes = 0;             // > 0: a tree of at most so many nodes that grows by gain
  enum class Rule { kServer, kAuto, kNamed };  // kAuto: greedy, coupled with a seed, else rejection
  Rule rule = Rule::kServer;
  AcceptPolicy policy;  // when kNamed
  // Threshold rules: policy.alpha, or one that follows load and acceptance; neither: the server's.
  bool has_alpha = false, dynamic_alpha = false;
  std::vector<int32_t> predicted;  // the caller's predicted text, as tokens
};

struct OutputParams {
  bool logprobs = false;
  int32_t n_top_logprobs = 0;
  bool prompt_logprobs = false;
};

// One call, checked at the border. The engine never refuses it for what it says.
struct Request {
  uint64_t ticket = 0;          // the server's name for it
  std::vector<int32_t> prompt;  // >= 1 token, shorter than or equal to the context
  SamplingParams sampling;
  StopParams stop;  // max_new_tokens 0: only the prompt is run
  SpeculationParams speculation;
  OutputParams output;
  int32_t n = 1;  // completions
  bool has_seed = false;
  uint64_t seed = 0;     // set in any case; drawn by the server without a seed
  int32_t priority = 0;  // lower runs first
  int64_t arrival_us = 0;
  int64_t deadline_us = kNever;    // then DEADLINE_EXCEEDED
  int64_t time_limit_us = kNever;  // absolute; then TIME_LIMIT with what there is
  std::string cache_salt;
  // Bit i ends completion i, all bits end all; who raises one tells the engine (Engine::cancelled).
  // Outlives the request's last event; null: never.
  const std::atomic<uint32_t>* cancel = nullptr;
};

enum class FinishReason : uint8_t {
  kNone,
  kLength,
  kContextFull,
  kEndToken,
  kTimeLimit,
  kAborted,
  kShutdown,
  kCancelled,
  kDeadline,   // no reply is owed
  kCorrupted,  // non-finite logits: INTERNAL
};

}  // namespace pf
