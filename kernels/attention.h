#pragma once

#include "base/view.h"
#include "kernels/attention_plan.h"
#include "kernels/kv_plane.h"

namespace pf::kernels {

// A plan on the device: the spans of AttentionPlan, and what rows a step has. The counts are read
// by the kernels, so that a captured launch serves every plan that fits its arrays.
struct AttentionWork {
  struct Counts {
    int32_t n_items = 0, unit_tokens = kSplitTokens;
    int32_t first_item = 0;      // of `items`
    int32_t first_position = 0;  // AttentionLimits::first_position
  };
  const Counts* counts = nullptr;
  const AttentionItem* items = nullptr;
  const AttentionRun* runs = nullptr;
  const AttentionItemRow* item_rows = nullptr;
  const AttentionRowParts* row_parts = nullptr;  // [rows planned]
  const int32_t* tables = nullptr;
  const int32_t* positions = nullptr;  // [T] of the step
  const uint64_t* masks = nullptr;     // [T]; a draft's own tree may write them on the device
  int32_t first_row = 0;               // of the step: the first that is planned
};

// Partial results, until the last block to come folds them (common/part_fold.cuh).
struct AttentionParts {
  float* values = nullptr;      // [max_parts, H, D]
  float* states = nullptr;      // [max_parts, H, 2]: max and sum (common/softmax_state.cuh)
  uint32_t* tickets = nullptr;  // [2, max_parts, G]: 0 before and after
  int64_t max_parts = 0;
};

// out[t, h] = sum over the keys s that row t sees of softmax_s(scale q[t, h] . k[s]) v[s], of KV
// head h / (H / G). Decode, verification of chains and trees and prompt chunks are the same rows.
//
//   q     T [rows of the step, H, D]   turned (rope_kv_write.h)
//   kv    one layer (KvPlane::layer), the step's own keys written. Values must be finite:
//         one that a row does not see has weight 0 there, and 0 times infinity is NaN. One of int8
//         gives the bits that a plane of T with the numbers T(q * scale) gives
//   out   T [rows planned, H, D]       row i is row `first_row + i` of the step; a row without
//                                      parts (padding) becomes zero
//
// T is f16 or bf16, D 64 or 128, H / G <= 64, scale > 0; 16-byte aligned. Parts are folded in the
// order of attention_plan.h by the block that comes last, and so a row has the same bits whatever
// rows, branches, chunks or neighbours share the step, and whoever comes last. The weights
// 2^(score - max) are rounded to T for their product with v; sums are float. What the parts hold
// afterwards: units, the first one of a group the group where it was folded for a row of several.
//
// `n_blocks` blocks of threads share the items: as many as are resident at once, one to three per
// multiprocessor (attention_blocks.h). Loads each item's keys and values once: n unique tokens x
// 4 G D bytes (int8: 2 G (D + 4)) where rows fit one item, which has room for 64 queries of a KV
// head, of any sequences and branches. Further items over the same blocks run beside it and are
// served by the L2 (AttentionItem). Bandwidth-bound up to 16 queries a KV head, beyond by the
// matrix units.
template <class T>
void attention(View<T, 3> out, AttentionParts parts, View<const T, 3> q, KvPlane<T> kv,
               const AttentionWork& work, int32_t sliding_window, float scale, int32_t n_blocks,
               cudaStream_t stream);

}  // namespace pf::kernels
