#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/engine.h"
#include "sampling/draft_tree.h"
#include "server/text_size.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace pf {

// What one request may ask for at most. GetModelInfo publishes them.
inline constexpr int32_t kMaxN = 16;
inline constexpr int32_t kMaxStopStrings = 16, kMaxStopStringBytes = 256, kMaxStopTokenIds = 64;
inline constexpr int32_t kMaxLogitBias = 300, kMaxTopLogprobs = 20, kMaxDraftTokens = 16;
inline constexpr int32_t kMaxRequestIdBytes = 128, kMaxCacheSaltBytes = 64;
inline constexpr int32_t kMaxMinChunkTokens = 1024, kMaxMinChunkMs = 10000;
inline constexpr int32_t kDefaultMaxNewTokens = 256;
inline constexpr int32_t kMaxRequestBytes = 4 << 20;

// What the makers of the model advise; a request overrides each.
struct SamplingDefaults {
  std::optional<float> temperature, top_p, min_p, repetition_penalty;
  std::optional<int32_t> top_k, max_new_tokens;
};

// The model that is served, as requests see it. Immutable once the server is ready.
struct ServedModel {
  std::string name;
  EngineInfo info;
  Tokenizer tokenizer;
  std::optional<ChatTemplate> chat;  // nullopt: `messages` are refused
  SamplingDefaults defaults;
  TokenBytes token_bytes = {};
  uint64_t seed = 0;  // of requests without one; 0: drawn from the system
  int32_t max_num_seqs = 0, max_num_batched_tokens = 0, max_queue = 0;

  // A tree and its root are rows of one step.
  int32_t max_tree_nodes() const { return std::min(kMaxTreeNodes, max_num_batched_tokens - 1); }
  int32_t default_max_new_tokens() const {
    return defaults.max_new_tokens.value_or(kDefaultMaxNewTokens);
  }
};

}  // namespace pf
