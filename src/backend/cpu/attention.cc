#include "backend/cpu/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "sampling/fast_math.h"

namespace pf {
namespace {

// Rows of one unit: beyond this the keys of a tile no longer stay beside the rows in the cache.
constexpr int32_t kUnitRows = 32;

int64_t round_down(int64_t x, int64_t unit) { return x / unit * unit; }

// The slot of a position of a tree row: the committed ones, then its ancestors in order.
int64_t slot_of(const Batch& batch, const Segment& s, int32_t row, int64_t position) {
  size_t r = static_cast<size_t>(row);
  if (position < batch.visible[r]) return position;
  uint64_t mask = batch.masks[r];
  for (int64_t skip = position - batch.visible[r]; skip > 0; --skip) mask &= mask - 1;
  return s.node_slot(std::countr_zero(mask));
}

}  // namespace

KvPlane::KvPlane(int64_t n_layers, int32_t n_blocks, int64_t n_kv_heads, int32_t block_tokens,
                 int64_t head_width, bool f32)
    : n_layers_(n_layers),
      n_blocks_(n_blocks),
      n_kv_heads_(n_kv_heads),
      block_tokens_(block_tokens),
      head_width_(head_width),
      element_bytes_(f32 ? 4 : 2),
      data_(static_cast<size_t>(n_layers * n_blocks * 2 * n_kv_heads * block_tokens * head_width *
                                element_bytes_)) {}

void KvPlane::copy_block(BlockCopy copy) {
  size_t bytes =
      static_cast<size_t>(2 * n_kv_heads_ * block_tokens_ * head_width_ * element_bytes_);
  for (int64_t l = 0; l < n_layers_; ++l)
    std::memcpy(at(l, copy.to, 0, 0, 0), at(l, copy.from, 0, 0, 0), bytes);
}

void KvPlane::move_slot(const Segment& s, int64_t from, int64_t to) {
  size_t bytes = static_cast<size_t>(head_width_ * element_bytes_);
  for (int64_t l = 0; l < n_layers_; ++l)
    for (int which = 0; which < 2; ++which)
      for (int64_t g = 0; g < n_kv_heads_; ++g)
        std::memcpy(slot(l, s, to, which, g), slot(l, s, from, which, g), bytes);
}

Attention::Attention(int64_t n_heads, int64_t n_kv_heads, int64_t head_width,
                     int64_t sliding_window, int64_t max_rows, int64_t max_context, int n_threads)
    : n_heads_(n_heads),
      n_kv_heads_(n_kv_heads),
      head_width_(head_width),
      sliding_window_(sliding_window),
      states_(static_cast<size_t>(max_rows * ((max_context + kSplit) / kSplit) * n_heads *
                                  (head_width + 2) * 4)),
      key_pointers_(static_cast<size_t>(n_threads), std::vector<const void*>(kSplit)),
      value_pointers_(key_pointers_),
      query_pointers_(static_cast<size_t>(n_threads), std::vector<const float*>(kUnitRows)),
      state_pointers_(static_cast<size_t>(n_threads), std::vector<float*>(kUnitRows)) {}

int64_t Attention::begin_of(const Batch& batch, int32_t row) const {
  if (sliding_window_ <= 0) return 0;
  return std::max<int64_t>(0, batch.positions[static_cast<size_t>(row)] + 1 - sliding_window_);
}

void Attention::plan(const Batch& batch, const KvPlane& plane) {
  units_.clear();
  unit_rows_.clear();
  int64_t last = 0;
  for (int32_t p : batch.positions) last = std::max<int64_t>(last, p);
  n_splits_ = last / kSplit + 1;
  block_tokens_ = plane.block_tokens();
  for (int64_t split = 0; split < n_splits_; ++split) plan_split(batch, split);
}

void Attention::plan_split(const Batch& batch, int64_t split) {
  int64_t first = split * kSplit, end = first + kSplit;
  // Rows that see the whole split and nothing of a tree in it can stand beside rows of others.
  auto whole = [&](int32_t r) {
    return begin_of(batch, r) <= first && batch.visible[static_cast<size_t>(r)] >= end;
  };
  auto blocks = [&](int32_t r) {
    const Segment& s =
        batch.segments[static_cast<size_t>(batch.row_segment[static_cast<size_t>(r)])];
    size_t from = static_cast<size_t>(first / block_tokens_),
           to = static_cast<size_t>((end - 1) / block_tokens_) + 1;
    return s.blocks.subspan(from, to - from);
  };
  order_.clear();
  for (int32_t r = 0; r < batch.n_rows(); ++r)
    if (begin_of(batch, r) < end && batch.positions[static_cast<size_t>(r)] >= first)
      order_.push_back(r);
  auto same_segment = [&](int32_t a, int32_t b) {
    return batch.row_segment[static_cast<size_t>(a)] == batch.row_segment[static_cast<size_t>(b)];
  };
  auto less = [&](int32_t a, int32_t b) {
    if (whole(a) != whole(b)) return whole(a);
    if (!whole(a) || same_segment(a, b)) return a < b;
    auto x = blocks(a), y = blocks(b);
    int order = std::memcmp(x.data(), y.data(), x.size_bytes());
    return order != 0 ? order < 0 : a < b;
  };
  if (batch.segments.size() > 1) std::sort(order_.begin(), order_.end(), less);
  for (int32_t r : order_) {
    int64_t begin = std::max(first, begin_of(batch, r));
    if (!units_.empty()) {
      Unit& u = units_.back();
      int32_t other = unit_rows_[static_cast<size_t>(u.first_row)];
      bool together = u.split == split && u.begin == begin && u.n_rows < kUnitRows &&
                      (same_segment(r, other) ||
                       (whole(r) && whole(other) && std::ranges::equal(blocks(r), blocks(other))));
      if (together) {
        unit_rows_.push_back(r);
        ++u.n_rows;
        continue;
      }
    }
    units_.push_back({split, static_cast<int32_t>(unit_rows_.size()), 1, begin});
    unit_rows_.push_back(r);
  }
}

void Attention::attend_unit(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                            int64_t layer, const Unit& unit, int64_t kv_head, const float* queries,
                            int64_t ldq, int thread) {
  auto t = static_cast<size_t>(thread);
  auto attend = plane.f32() ? kernels.attend_f32 : kernels.attend_bf16;
  int64_t heads = n_heads_ / n_kv_heads_, head = kv_head * heads, state_width = head_width_ + 2;
  int64_t split_end = (unit.split + 1) * kSplit;
  std::span<const int32_t> rows(&unit_rows_[static_cast<size_t>(unit.first_row)],
                                static_cast<size_t>(unit.n_rows));
  // What all rows see through one table, in whole tiles; the rest is each row's own.
  int64_t common = split_end;
  for (size_t i = 0; i < rows.size(); ++i) {
    size_t r = static_cast<size_t>(rows[i]);
    common = std::min<int64_t>(common, batch.visible[r]);
    query_pointers_[t][i] = queries + rows[i] * ldq + head * head_width_;
    state_pointers_[t][i] = state(rows[i], unit.split) + head * state_width;
    for (int64_t h = 0; h < heads; ++h) {
      float* s = state_pointers_[t][i] + h * state_width;
      std::fill(s, s + state_width, 0.0f);
      s[0] = -INFINITY;
    }
  }
  // Tiles start at unit.begin when a window opens inside one: the rows of a unit agree on that.
  common = unit.begin + round_down(std::max<int64_t>(0, common - unit.begin), kKeyTile);
  auto run = [&](int32_t row, int64_t begin, int64_t end, size_t first_row, size_t n_rows) {
    if (begin >= end) return;
    const Segment& s =
        batch.segments[static_cast<size_t>(batch.row_segment[static_cast<size_t>(row)])];
    for (int64_t p = begin; p < end; ++p) {
      int64_t slot = slot_of(batch, s, row, p);
      key_pointers_[t][static_cast<size_t>(p - begin)] = plane.slot(layer, s, slot, 0, kv_head);
      value_pointers_[t][static_cast<size_t>(p - begin)] = plane.slot(layer, s, slot, 1, kv_head);
    }
    attend({query_pointers_[t].data() + first_row, static_cast<int64_t>(n_rows), heads, head_width_,
            key_pointers_[t].data(), value_pointers_[t].data(), end - begin,
            state_pointers_[t].data() + first_row});
  };
  run(rows[0], unit.begin, common, 0, rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    int64_t end = std::min<int64_t>(split_end, batch.positions[static_cast<size_t>(rows[i])] + 1);
    run(rows[i], common, end, i, 1);
  }
}

void Attention::fold(const Batch& batch, int64_t row, float* out) const {
  int64_t first = begin_of(batch, static_cast<int32_t>(row)) / kSplit;
  int64_t last = batch.positions[static_cast<size_t>(row)] / kSplit;
  for (int64_t h = 0; h < n_heads_; ++h) {
    float* total = state(row, first) + h * (head_width_ + 2);
    for (int64_t split = first + 1; split <= last; ++split) {
      const float* part = state(row, split) + h * (head_width_ + 2);
      float max = std::max(total[0], part[0]);
      float a = exp_nonpositive(total[0] - max), b = exp_nonpositive(part[0] - max);
      total[0] = max;
      for (int64_t i = 1; i < head_width_ + 2; ++i) total[i] = total[i] * a + part[i] * b;
    }
    float scale = 1.0f / total[1];
    for (int64_t d = 0; d < head_width_; ++d) out[h * head_width_ + d] = total[2 + d] * scale;
  }
}

void Attention::run(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                    int64_t layer, const float* queries, int64_t ldq, float* out, int thread,
                    SpinBarrier& barrier) {
  int n_threads = static_cast<int>(key_pointers_.size());
  int64_t n_items = static_cast<int64_t>(units_.size()) * n_kv_heads_;
  for (int64_t i = thread; i < n_items; i += n_threads)
    attend_unit(kernels, batch, plane, layer, units_[static_cast<size_t>(i / n_kv_heads_)],
                i % n_kv_heads_, queries, ldq, thread);
  barrier.wait();
  Range rows = split_range(batch.n_rows(), 1, n_threads, thread);
  for (int64_t r = rows.begin; r < rows.end; ++r) fold(batch, r, out + r * n_heads_ * head_width_);
}

}  // namespace pf
