#pragma once

#include <cstdint>
#include <vector>

#include "backend/cpu/buffer.h"
#include "backend/cpu/kernels.h"
#include "base/thread_pool.h"
#include "batch/batch.h"

namespace pf {

// K and V of one model: [layer][block][K, V][G][P][D] in bf16 or f32.
class KvPlane {
 public:
  KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
          int64_t head_width, bool f32);

  // Where one head's key (which = 0) or value (1) of one token lies.
  std::byte* at(int64_t layer, BlockId block, int which, int64_t kv_head, int64_t offset) const {
    int64_t tokens =
        (((layer * n_blocks_ + block) * 2 + which) * n_kv_heads_ + kv_head) * block_tokens_;
    return data_.as() + (tokens + offset) * head_width_ * element_bytes_;
  }
  std::byte* slot(int64_t layer, const Segment& s, int64_t logical, int which,
                  int64_t kv_head) const {
    return at(layer, s.blocks[static_cast<size_t>(logical / block_tokens_)], which, kv_head,
              logical % block_tokens_);
  }

  // Where keys and values of positions [begin, end) lie, as this row sees them.
  void find(int64_t layer, int64_t kv_head, const Batch& batch, int32_t row, int64_t begin,
            int64_t end, const void** keys, const void** values) const;

  void copy_block(BlockCopy copy);
  void move_slot(const Segment& s, int64_t from, int64_t to);

  bool f32() const { return element_bytes_ == 4; }
  int64_t bytes() const { return static_cast<int64_t>(data_.bytes()); }
  int64_t block_tokens() const { return block_tokens_; }

 private:
  int64_t n_layers_, n_blocks_, n_kv_heads_, block_tokens_, head_width_, element_bytes_;
  Buffer data_;
};

// Attention of all rows of a batch over paged K and V.
//
// A row's softmax is folded over the positions it sees, in tiles at absolute multiples of kKeyTile
// and splits at absolute multiples of kSplit: a split begins from an empty state, and the states of
// the splits are folded in order. Who computes a split, and beside whom, changes nothing: a row's
// bits depend on its own keys alone. Rows that see the same keys (verify branches, siblings,
// sequences with one prefix) stand in one unit of work, which reads those keys once for all.
class Attention {
 public:
  static constexpr int64_t kSplit = 256;

  Attention(int64_t n_heads, int64_t n_kv_heads, int64_t head_width, int64_t sliding_window,
            int64_t max_rows, int64_t max_context, int n_threads);

  // Keys of positions before this do not exist; no row stands there.
  void set_first_position(int64_t position) { first_position_ = position; }

  // Which rows meet which keys; the same for all layers. One thread.
  void plan(const Batch& batch, const KvPlane& plane);
  // queries f32 [T, ldq], scaled; out f32 [T, H D]. All threads; `barrier` meets them.
  void run(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane, int64_t layer,
           const float* queries, int64_t ldq, float* out, int thread, SpinBarrier& barrier);
  int64_t bytes() const { return static_cast<int64_t>(states_.bytes()); }

 private:
  // Rows of one split that all see positions [common_begin, common_end), whole tiles, through the
  // same blocks; what a row sees before and behind them is its own.
  struct Unit {
    int64_t split;
    int32_t first_row, n_rows;  // into unit_rows_
    int64_t common_begin, common_end;
  };
  // Where one thread gathers the pointers of a kernel call.
  struct Pointers {
    std::vector<const void*> keys, values;  // [kSplit]
    std::vector<const float*> queries;      // [rows of a unit, heads of a KV head]
    std::vector<float*> states;
  };

  void plan_split(const Batch& batch, int64_t split);
  void add_to_unit(const Batch& batch, int64_t split, int32_t row);
  void attend_unit(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                   int64_t layer, const Unit& unit, int64_t kv_head, const float* queries,
                   int64_t ldq, Pointers* at);
  void fold(const Batch& batch, int64_t row, float* out) const;
  int64_t begin_of(const Batch& batch, int32_t row) const;
  float* state(int64_t row, int64_t split) const {
    return states_.as<float>() + (row * n_splits_ + split) * n_heads_ * (head_width_ + 2);
  }

  int64_t n_heads_, n_kv_heads_, head_width_, sliding_window_;
  int64_t first_position_ = 0;
  int64_t n_splits_ = 0;      // of the longest row of this batch
  int64_t block_tokens_ = 0;  // of the plane
  Buffer states_;             // f32 [T, splits, H, D + 2]; touched as far as a batch needs it
  std::vector<Unit> units_;
  std::vector<int32_t> unit_rows_;
  std::vector<int32_t> order_;  // segments, those with the same first blocks of a split together
  std::vector<Pointers> pointers_;  // by thread
};

}  // namespace pf
