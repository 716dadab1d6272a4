#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/kv_plane.h"
#include "base/thread_pool.h"
#include "batch/batch.h"

namespace pf {

// Attention of all rows of a batch over paged K and V.
//
// A row's softmax is folded over the positions it sees, in tiles at absolute multiples of kKeyTile
// and splits at absolute multiples of kSplit: a split begins from an empty state, and the states of
// the splits are folded in order. Who computes a split, and beside whom, changes nothing: a row's
// bits depend on its own keys alone. Rows that see the same keys (a prompt's rows, verify branches,
// siblings, sequences with one prefix) stand in one unit of work, which reads those keys once for
// all. Splits are worked on in waves, so that the states kept are bounded whatever the context.
class Attention {
 public:
  static constexpr int64_t kSplit = 128;

  Attention(int64_t n_heads, int64_t n_kv_heads, int64_t head_width, int64_t sliding_window,
            int64_t max_rows, int64_t max_context, int n_threads);

  // Keys of positions before this do not exist; no row stands there.
  void set_first_position(int64_t position) { first_position_ = position; }

  // Which rows meet which keys; the same for all layers. One thread.
  void plan(const Batch& batch, const KvPlane& plane);
  // queries f32 [T, ldq], scaled; out f32 [T, H D], complete behind the next barrier. All threads;
  // `barrier` meets them.
  void run(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane, int64_t layer,
           const float* queries, int64_t ldq, float* out, int thread, SpinBarrier& barrier);
  // Keys (and as many values) that the present plan reads per layer and KV head. Where rows share
  // blocks that is less than what each of them sees.
  int64_t n_keys_read(const Batch& batch) const;
  int64_t bytes() const;
  // The same before it is made.
  static int64_t bytes_of(int64_t n_heads, int64_t head_width, int64_t max_rows,
                          int64_t max_context, int n_threads);

 private:
  // Rows of one split that read the positions [split begin, end) through the same blocks, each as
  // far as it sees; `end` is a whole tile or beyond all of them. What a row sees behind it is its
  // own.
  struct Unit {
    int64_t split;
    int32_t first_row, n_rows;  // into unit_rows_
    int64_t end;
  };
  // What a thread takes at once.
  struct Item {
    const Unit* unit;
    int64_t kv_head;
  };
  // What one thread hands to a kernel call.
  struct Work {
    std::vector<const void*> keys, values;            // [kSplit / 16]
    std::vector<const void*> next_keys, next_values;  // of the next item
    std::vector<const float*> queries;                // [rows of a unit, heads of a KV head]
    std::vector<int32_t> from, upto;
    std::vector<float*> states;
    Buffer gathered;  // [kSplit / 16][K, V] groups that do not lie as a kernel reads them
  };

  void plan_split(const Batch& batch, int64_t split);
  void add_to_unit(const Batch& batch, int64_t split, int32_t row);
  void attend_unit(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                   int64_t layer, Item item, const Item* next, const float* queries, int64_t ldq,
                   Work* work);
  void look_ahead(const Batch& batch, const KvPlane& plane, int64_t layer, const Item* next,
                  Work* work) const;
  void find_keys(const KvPlane& plane, const Batch& batch, int64_t layer, int64_t kv_head,
                 int32_t row, int64_t begin, int64_t end, Work* work) const;
  void fold(const Batch& batch, int64_t row, int64_t head, int64_t first_split, float* out) const;
  int64_t begin_of(const Batch& batch, int32_t row) const;
  float* state(int64_t row, int64_t split) const {
    return states_.as<float>() +
           (row * wave_splits_ + split % wave_splits_) * n_heads_ * state_width();
  }
  static int64_t state_width(int64_t head_width) { return head_width + kKeyGroup; }
  int64_t state_width() const { return state_width(head_width_); }  // aligned accumulators
  // (row, split) pairs of a wave
  static int64_t max_states(int64_t max_rows, int64_t max_context) {
    return 2 * std::max(max_rows, (max_context + kSplit) / kSplit);
  }

  int64_t n_heads_, n_kv_heads_, head_width_, sliding_window_;
  int64_t max_states_;  // (row, split) pairs of a wave
  int64_t first_position_ = 0;
  int64_t n_splits_ = 0;      // of the longest row of this batch
  int64_t wave_splits_ = 1;   // of a wave; waves begin at multiples of it
  int64_t block_tokens_ = 0;  // of the plane
  Buffer states_;             // f32 [T, splits of a wave, H, state]
  Buffer totals_;             // f32 [T, H, state]: of all waves so far
  WorkShare shares_[2];       // of every other wave; wound back between runs
  std::vector<Unit> units_;   // by split
  std::vector<int32_t> unit_rows_;
  std::vector<int32_t> order_;  // segments, those with the same first blocks of a split together
  std::vector<Work> work_;      // by thread
};

}  // namespace pf
