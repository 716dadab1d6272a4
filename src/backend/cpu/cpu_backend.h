#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "backend/backend.h"
#include "backend/footprint.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "base/view.h"
#include "model/model.h"

namespace pf {

struct CpuOptions {
  enum class Weights { kF32, kBf16, kInt8, kInt4 };  // of the matrices
  Weights weights = Weights::kBf16;
  bool int8_kv = false;  // KV in int8 with a scale per token and head; else f32 with kF32, or bf16
  int32_t n_blocks = 0;
  int32_t block_tokens = 16;
  int32_t max_rows = 512;  // T of a forward pass
  int64_t max_context = 0;
  int32_t head_chunk_rows = 65;  // logit rows that are on hand at once: a tree and its root
  int32_t draft_top_n = 128;     // tokens that a draft's q ranges over
  bool keep_hidden = false;      // of every row, for Backend::hidden_states
  // Which of them: the residual stream in front of these layers; empty: behind the final norm.
  std::vector<int32_t> tap_layers = {};
  HiddenStates hidden_of = {};       // a head's: those of its target, which outlives it
  Progress* progress = nullptr;      // counts Footprint::read_bytes while the weights are packed
  const char* instruction_set = "";  // "portable", "avx2", "avx512"; "": the best there is
  // For tests: sees the residual stream [T, E] behind the embedding (layer -1) and each layer.
  std::function<void(int64_t layer, View<const float, 2>)> tap;
};

// Of BackendInfo.
inline const char* weights_name(CpuOptions::Weights w) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8", "int4"};
  return kNames[static_cast<int>(w)];
}

// A model on the CPU. Weights are packed once, with all threads of the pool; `model` may go away
// afterwards. `embedding_of` is the target whose embedding a draft uses, null else. `pool` outlives
// the backend. Refuses weights that cannot be quantised as asked, and unknown instruction sets.
Result<std::unique_ptr<Backend>> make_cpu_backend(const Model& model, const Model* embedding_of,
                                                  const CpuOptions& options, ThreadPool& pool);

// What that takes, with a pool of n_threads. Reads shapes only.
Footprint cpu_footprint(const Model& model, const Model* embedding_of, const CpuOptions& options,
                        int n_threads);

}  // namespace pf
