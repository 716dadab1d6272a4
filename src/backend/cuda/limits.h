#pragma once

#include <algorithm>
#include <iterator>

#include "backend/cuda/cuda_backend.h"
#include "kernels/attention_plan.h"
#include "sampling/draft_tree.h"

namespace pf {

// What follows from the options alone, for the backend and for whoever plans it.

inline int32_t n_max_rows(const CudaOptions& o) { return std::max(o.max_rows, o.head_chunk_rows); }

// Whether a library may multiply, which it does not with 4-bit weights: then there is room for what
// its products leave unfinished, and for its workspace.
inline bool has_library(const CudaOptions& o) {
  return o.prefill_gemm == CudaOptions::PrefillGemm::kCublas && !o.int4;
}

// Whether q, k and v are turned and stored by a kernel of their own (kernels/rope_kv_write.h).
inline bool keeps_qkv(const CudaOptions& o) { return o.int8_kv || has_library(o); }

// Bytes of a key or value of one head as it is stored: numbers, and a scale behind int8.
inline int64_t kv_row_bytes(int64_t head_width, bool int8_kv) {
  return int8_kv ? head_width + 4 : 2 * head_width;
}

// Of BackendInfo.
inline const char* numbers_name(const CudaOptions& o) {
  return o.numbers == CudaOptions::Numbers::kF16 ? "fp16" : "bf16";
}
inline const char* weights_name(const CudaOptions& o) { return o.int4 ? "int4" : numbers_name(o); }
inline const char* kv_name(const CudaOptions& o) { return o.int8_kv ? "int8" : numbers_name(o); }

// Of passes and drafts (sharded_forward.h).
inline bool uses_graphs(const CudaOptions& o) { return o.graphs && o.n_devices == 1; }

// Rows that n are padded to, so that few shapes arise for graphs; 0: so many are launched one by
// one, since then the device has more to do than the host.
inline constexpr int32_t kMostGraphRows = 128;
inline int32_t padded_rows(int64_t n, int64_t max_rows) {
  // A product's smallest tile has 8 rows; beyond, steps of a third at most.
  constexpr int32_t kSizes[] = {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, kMostGraphRows};
  const auto* size = std::lower_bound(std::begin(kSizes), std::end(kSizes), n);
  if (size == std::end(kSizes)) return 0;
  return static_cast<int32_t>(std::min<int64_t>(*size, max_rows));
}

// Partial results of attention: the groups of one row at least, enough for a wide batch, and those
// of the largest pass that goes as a graph with every row at the longest context, since a pass that
// takes several plans of attention cannot be one (Pass::fixed). That is 8,320 for 128K tokens, 138
// MB of a model with 32 heads of 128; beyond kMostGraphParts, which are 128 rows of 262,144 tokens,
// what is longer and wider goes launch by launch.
inline constexpr int64_t kMostGraphParts = 16512;
inline int32_t n_attention_parts(const CudaOptions& o) {
  const int64_t groups = (o.max_context + kMaxTreeNodes) / kernels::kGroupTokens + 1,
                rows = std::min<int64_t>(kMostGraphRows, n_max_rows(o));
  const int64_t of_graphs = uses_graphs(o) ? std::min(rows * groups, kMostGraphParts) : 0;
  return static_cast<int32_t>(
      std::max<int64_t>({groups, 1024, 2 * int64_t{o.max_rows}, of_graphs}));
}

// Nodes of a backend's graphs, and what is set aside for one. The driver tells no figure, so it is
// an allowance: a kernel's arguments (4 KB at most, here some 200 bytes) and its launch. What
// graphs really take is measured at each capture (Graphs::taken_bytes), and the check on a device
// (scripts/device_check.sh) holds the allowance against it.
inline constexpr int64_t kGraphNodes = 16384, kGraphNodeBytes = 2048;

// What NCCL takes of each device for its channels: an allowance, nvidia-smi shows the truth.
inline constexpr int64_t kCollectiveBytes = int64_t{256} << 20;

inline constexpr int32_t kMaxListedTop = 32;  // log-probabilities of so many likeliest tokens
// Pinned rooms of the forward pass, the judge, the draft, the moves, a head's kept states and a
// rank's logit rows at their start.
inline constexpr size_t kForwardStaging = size_t{1} << 16, kJudgeStaging = size_t{1} << 16,
                        kDraftStaging = size_t{1} << 14, kMoveStaging = size_t{1} << 12,
                        kHiddenStaging = size_t{1} << 12, kRankStaging = size_t{1} << 12;

// Floats that a rank gets of all ranks at once: shares of a sum, or logits of their stretches of
// the vocabulary (head_rows each).
inline int64_t gathered_floats(int64_t width, int64_t head_rows, const CudaOptions& o) {
  return o.n_devices * std::max(n_max_rows(o) * width, o.head_chunk_rows * head_rows);
}

}  // namespace pf
