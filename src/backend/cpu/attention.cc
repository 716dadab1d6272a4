#include "backend/cpu/attention.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "sampling/fast_math.h"

namespace pf {
namespace {

// Rows of one unit: beyond this the keys of a tile no longer stay beside the rows in the cache.
// Where that leaves too few items for threads to end together (one KV head of a unit is an item),
// units are smaller, but not so small that reading keys would outweigh what is done with them.
constexpr int32_t kUnitRows = 32, kFewUnitRows = 4, kItemsPerThread = 4;

int32_t most_unit_rows(int64_t n_splits, int32_t n_rows, int64_t n_kv_heads, size_t n_threads) {
  int32_t most = kUnitRows;
  const int64_t wanted = n_threads > 1 ? kItemsPerThread * static_cast<int64_t>(n_threads) : 0;
  while (most > kFewUnitRows && n_splits * n_kv_heads * ((n_rows + most - 1) / most) < wanted)
    most /= 2;
  return most;
}

int64_t round_down(int64_t x, int64_t unit) { return x / unit * unit; }

const Segment& segment_of(const Batch& batch, int32_t row) {
  return batch.segments[static_cast<size_t>(batch.row_segment[static_cast<size_t>(row)])];
}
int64_t end_of(const Batch& batch, int32_t row) {
  return batch.positions[static_cast<size_t>(row)] + 1;
}

// Positions [0, plain) of a row lie in the slots of the same number: all that it sees, unless it is
// a tree node whose ancestors are not nodes 0, 1, 2... as in a chain.
int64_t plain_of(const Batch& batch, int32_t row) {
  uint64_t mask = batch.masks[static_cast<size_t>(row)];
  bool chain = (mask & (mask + 1)) == 0;
  return chain ? end_of(batch, row) : batch.visible[static_cast<size_t>(row)];
}

// The slot of a position of a tree row: the committed ones, then its ancestors in order.
int64_t slot_of(const Batch& batch, const Segment& s, int32_t row, int64_t position) {
  size_t r = static_cast<size_t>(row);
  if (position < batch.visible[r]) return position;
  uint64_t mask = batch.masks[r];
  for (int64_t skip = position - batch.visible[r]; skip > 0; --skip) mask &= mask - 1;
  return s.node_slot(std::countr_zero(mask));
}

}  // namespace

Attention::Attention(int64_t n_heads, int64_t n_kv_heads, int64_t head_width,
                     int64_t sliding_window, int64_t max_rows, int64_t max_context, int n_threads)
    : n_heads_(n_heads),
      n_kv_heads_(n_kv_heads),
      head_width_(head_width),
      sliding_window_(sliding_window),
      max_states_(max_states(max_rows, max_context)),
      states_(static_cast<size_t>(max_states_ * n_heads * state_width() * 4)),
      totals_(static_cast<size_t>(max_rows * n_heads * state_width() * 4)),
      shares_{WorkShare(n_threads), WorkShare(n_threads)},
      work_(static_cast<size_t>(n_threads)) {
  size_t n_queries = static_cast<size_t>(kUnitRows * (n_heads / n_kv_heads));
  for (Work& w : work_) {
    w.keys.resize(kSplit / kKeyGroup);
    w.values.resize(kSplit / kKeyGroup);
    w.next_keys.resize(kSplit / kKeyGroup);
    w.next_values.resize(kSplit / kKeyGroup);
    w.queries.resize(n_queries);
    w.from.resize(n_queries);
    w.upto.resize(n_queries);
    w.states.resize(n_queries);
    w.gathered = Buffer(static_cast<size_t>(2 * kSplit * head_width * 4));
  }
}

int64_t Attention::bytes() const {
  size_t total = states_.bytes() + totals_.bytes();
  for (const Work& w : work_) total += w.gathered.bytes();
  return static_cast<int64_t>(total);
}

int64_t Attention::bytes_of(int64_t n_heads, int64_t head_width, int64_t max_rows,
                            int64_t max_context, int n_threads) {
  int64_t states = max_states(max_rows, max_context) + max_rows;
  return states * n_heads * state_width(head_width) * 4 + n_threads * 2 * kSplit * head_width * 4;
}

int64_t Attention::begin_of(const Batch& batch, int32_t row) const {
  if (sliding_window_ <= 0) return first_position_;
  return std::max<int64_t>(first_position_, end_of(batch, row) - sliding_window_);
}

void Attention::plan(const Batch& batch, const KvPlane& plane) {
  units_.clear();
  unit_rows_.clear();
  int64_t last = 0;
  for (int32_t p : batch.positions) last = std::max<int64_t>(last, p);
  n_splits_ = last / kSplit + 1;
  wave_splits_ =
      std::min(n_splits_, std::max<int64_t>(1, max_states_ / std::max(1, batch.n_rows())));
  block_tokens_ = plane.block_tokens();
  for (int64_t split = 0; split < n_splits_; ++split) plan_split(batch, split);
}

void Attention::plan_split(const Batch& batch, int64_t split) {
  size_t first_block = static_cast<size_t>(split * kSplit / block_tokens_);
  size_t end_block = static_cast<size_t>(((split + 1) * kSplit - 1) / block_tokens_) + 1;
  order_.clear();
  for (size_t s = 0; s < batch.segments.size(); ++s) {
    const Segment& segment = batch.segments[s];
    int32_t last = segment.first_row + segment.n_rows - 1;  // no row of it lies further
    if (batch.slots[static_cast<size_t>(last)] >= split * kSplit)
      order_.push_back(static_cast<int32_t>(s));
  }
  auto blocks = [&](int32_t s) {
    std::span<const BlockId> all = batch.segments[static_cast<size_t>(s)].blocks;
    size_t from = std::min(first_block, all.size()), to = std::min(end_block, all.size());
    return all.subspan(from, to - from);
  };
  std::sort(order_.begin(), order_.end(), [&](int32_t a, int32_t b) {
    auto x = blocks(a), y = blocks(b);
    auto order = std::lexicographical_compare_three_way(x.begin(), x.end(), y.begin(), y.end());
    return order != 0 ? order < 0 : a < b;
  });
  for (int32_t s : order_) {
    const Segment& segment = batch.segments[static_cast<size_t>(s)];
    for (int32_t r = segment.first_row; r < segment.first_row + segment.n_rows; ++r)
      if (begin_of(batch, r) < (split + 1) * kSplit && end_of(batch, r) > split * kSplit)
        add_to_unit(batch, split, r);
  }
}

// Joins the last unit when fewer keys are read that way than beside it, else begins a new one.
void Attention::add_to_unit(const Batch& batch, int64_t split, int32_t row) {
  const Segment& mine = segment_of(batch, row);
  int64_t begin = split * kSplit, end = begin + kSplit, plain = plain_of(batch, row);
  if (plain < std::min(end, end_of(batch, row)))  // its last tile lies in scattered slots
    end = std::max(begin, round_down(plain, kKeyTile));
  const int32_t most = most_unit_rows(n_splits_, batch.n_rows(), n_kv_heads_, work_.size());
  if (!units_.empty() && units_.back().split == split && units_.back().n_rows < most) {
    Unit& u = units_.back();
    const Segment& other = segment_of(batch, unit_rows_[static_cast<size_t>(u.first_row)]);
    int64_t common_end = std::min(end, u.end);
    if (&mine != &other) {
      size_t block = static_cast<size_t>(begin / block_tokens_);
      size_t n = std::min(mine.blocks.size(), other.blocks.size());
      while (block < n && mine.blocks[block] == other.blocks[block]) ++block;
      common_end =
          std::min(common_end, round_down(static_cast<int64_t>(block) * block_tokens_, kKeyTile));
    }
    // n rows read `common` once, and what it shrinks by n times; the new row would read all of its
    // own: together costs less when (n + 1 - 1) common' > (n - 1) common.
    int64_t n = u.n_rows, now = u.end - begin, then = common_end - begin;
    if (then > 0 && n * then > (n - 1) * now) {
      u.end = common_end;
      ++u.n_rows;
      unit_rows_.push_back(row);
      return;
    }
  }
  units_.push_back({split, static_cast<int32_t>(unit_rows_.size()), 1, end});
  unit_rows_.push_back(row);
}

int64_t Attention::n_keys_read(const Batch& batch) const {
  int64_t n = 0;
  for (const Unit& u : units_) {
    const int64_t begin = u.split * kSplit;
    int64_t furthest = begin;
    for (int32_t i = 0; i < u.n_rows; ++i) {
      const int64_t end = end_of(batch, unit_rows_[static_cast<size_t>(u.first_row + i)]);
      furthest = std::max(furthest, std::min(u.end, end));
      n += std::max<int64_t>(0, std::min(begin + kSplit, end) - u.end);  // its own
    }
    n += furthest - begin;
  }
  return n;
}

// Groups of keys and values of positions [begin, end), as this row sees them; `begin` starts a
// tile.
void Attention::find_keys(const KvPlane& plane, const Batch& batch, int64_t layer, int64_t kv_head,
                          int32_t row, int64_t begin, int64_t end, Work* work) const {
  const Segment& s = segment_of(batch, row);
  int64_t plain = plain_of(batch, row);
  for (int64_t p = begin; p < end; p += kKeyGroup) {
    size_t g = static_cast<size_t>((p - begin) / kKeyGroup);
    int64_t stop = std::min(end, p + kKeyGroup);
    if (plane.in_groups() && stop <= plain) {
      work->keys[g] = plane.group(layer, s, p, 0, kv_head);
      work->values[g] = plane.group(layer, s, p, 1, kv_head);
      continue;
    }
    std::byte* keys = work->gathered.as() + static_cast<int64_t>(2 * g) * plane.group_bytes();
    std::byte* values = keys + plane.group_bytes();
    for (int64_t i = p; i < stop; ++i)
      plane.gather(layer, s, i < plain ? i : slot_of(batch, s, row, i), kv_head, i - p, keys,
                   values);
    work->keys[g] = keys;
    work->values[g] = values;
  }
}

// Where the next item lies, beside the keys and values of this one. Those of this one fill the
// rest: they are on their way.
void Attention::look_ahead(const Batch& batch, const KvPlane& plane, int64_t layer,
                           const Item* next, Work* work) const {
  work->next_keys = work->keys;
  work->next_values = work->values;
  if (next == nullptr || !plane.in_groups()) return;
  const int64_t begin = next->unit->split * kSplit;
  const int32_t row = unit_rows_[static_cast<size_t>(next->unit->first_row)];
  const int64_t end = std::min({begin + kSplit, next->unit->end, plain_of(batch, row)});
  const Segment& s = segment_of(batch, row);
  for (int64_t p = begin; p < end; p += kKeyGroup) {
    const size_t g = static_cast<size_t>((p - begin) / kKeyGroup);
    work->next_keys[g] = plane.group(layer, s, p, 0, next->kv_head);
    work->next_values[g] = plane.group(layer, s, p, 1, next->kv_head);
  }
}

void Attention::attend_unit(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                            int64_t layer, Item item, const Item* next, const float* queries,
                            int64_t ldq, Work* work) {
  const Unit& unit = *item.unit;
  const int64_t kv_head = item.kv_head;
  auto attend = kernels.attend[static_cast<int>(plane.type())];
  int64_t heads = n_heads_ / n_kv_heads_, head = kv_head * heads;
  int64_t begin = unit.split * kSplit, furthest = begin;
  std::span<const int32_t> rows(&unit_rows_[static_cast<size_t>(unit.first_row)],
                                static_cast<size_t>(unit.n_rows));
  // The keys of row i in [first, end), counted from `first`, for its queries of this KV head.
  auto set_range = [&](size_t i, int64_t first, int64_t end) {
    for (int64_t h = 0; h < heads; ++h) {
      size_t q = i * static_cast<size_t>(heads) + static_cast<size_t>(h);
      work->from[q] = static_cast<int32_t>(std::max<int64_t>(0, begin_of(batch, rows[i]) - first));
      work->upto[q] = static_cast<int32_t>(std::min(end, end_of(batch, rows[i])) - first);
    }
  };
  // Rows [i, i + n) of the unit meet positions [first, end) as `row` sees them.
  auto meet = [&](size_t i, size_t n, int32_t row, int64_t first, int64_t end) {
    find_keys(plane, batch, layer, kv_head, row, first, end, work);
    look_ahead(batch, plane, layer, first == begin ? next : nullptr, work);
    size_t q = i * static_cast<size_t>(heads);
    attend({work->queries.data() + q, work->from.data() + q, work->upto.data() + q,
            work->states.data() + q, static_cast<int64_t>(n) * heads, head_width_,
            work->keys.data(), work->values.data(), end - first, work->next_keys.data(),
            work->next_values.data()});
  };
  int32_t widest = rows[0];
  for (size_t i = 0; i < rows.size(); ++i) {
    for (int64_t h = 0; h < heads; ++h) {
      size_t q = i * static_cast<size_t>(heads) + static_cast<size_t>(h);
      work->queries[q] = queries + rows[i] * ldq + (head + h) * head_width_;
      float* s = state(rows[i], unit.split) + (head + h) * state_width();
      std::fill(s, s + head_width_ + 2, 0.0f);
      s[head_width_] = -INFINITY;
      work->states[q] = s;
    }
    set_range(i, begin, unit.end);
    int64_t end = std::min(unit.end, end_of(batch, rows[i]));
    if (end <= furthest) continue;
    furthest = end;
    widest = rows[i];
  }
  if (furthest > begin) meet(0, rows.size(), widest, begin, furthest);
  for (size_t i = 0; i < rows.size(); ++i) {  // what lies behind the common blocks
    int64_t end = std::min(begin + kSplit, end_of(batch, rows[i]));
    if (end <= unit.end) continue;
    set_range(i, unit.end, end);
    meet(i, 1, rows[i], unit.end, end);
  }
}

// Splits of the wave that begins at `first_split`, in order, onto those of the waves before.
void Attention::fold(const Batch& batch, int64_t row, int64_t head, int64_t first_split,
                     float* out) const {
  int32_t r = static_cast<int32_t>(row);
  int64_t first = begin_of(batch, r) / kSplit, last = (end_of(batch, r) - 1) / kSplit;
  int64_t split = std::max(first, first_split);
  int64_t end = std::min(last + 1, first_split + wave_splits_);
  if (split >= end) return;
  auto part = [&](int64_t s) { return state(row, s) + head * state_width(); };
  int64_t D = head_width_;
  float* kept = totals_.as<float>() + (row * n_heads_ + head) * state_width();
  float* total = split == first ? part(split++) : kept;
  for (; split < end; ++split) {
    const float* p = part(split);
    float max = std::max(total[D], p[D]);
    float a = exp_nonpositive(total[D] - max), b = exp_nonpositive(p[D] - max);
    for (int64_t i = 0; i < D; ++i) total[i] = total[i] * a + p[i] * b;
    total[D] = max;
    total[D + 1] = total[D + 1] * a + p[D + 1] * b;
  }
  if (end <= last) {
    if (total != kept) std::copy(total, total + D + 2, kept);
    return;
  }
  float scale = 1.0f / total[D + 1];
  for (int64_t d = 0; d < D; ++d) out[d] = total[d] * scale;
}

void Attention::run(const CpuKernels& kernels, const Batch& batch, const KvPlane& plane,
                    int64_t layer, const float* queries, int64_t ldq, float* out, int thread,
                    SpinBarrier& barrier) {
  Work* work = &work_[static_cast<size_t>(thread)];
  Range heads = split_range(batch.n_rows() * n_heads_, 1, static_cast<int>(work_.size()), thread);
  size_t begin = 0;
  int wave = 0;
  for (int64_t first = 0; first < n_splits_; first += wave_splits_, ++wave) {
    if (first > 0) barrier.wait();  // the states of the last wave are folded
    size_t end = begin;
    while (end < units_.size() && units_[end].split < first + wave_splits_) ++end;
    int64_t n_items = static_cast<int64_t>(end - begin) * n_kv_heads_;
    WorkShare& share = shares_[wave % 2];
    auto item = [&](int64_t i) {
      return Item{&units_[begin + static_cast<size_t>(i / n_kv_heads_)], i % n_kv_heads_};
    };
    for (Range r; (r = share.take(n_items, 1, thread)).begin < r.end;) {
      Item next = item(std::min(r.end, n_items - 1));  // most likely
      attend_unit(kernels, batch, plane, layer, item(r.begin), r.end < n_items ? &next : nullptr,
                  queries, ldq, work);
    }
    barrier.wait();
    if (thread == 0) share.reset();  // it is used again behind two barriers
    for (int64_t i = heads.begin; i < heads.end; ++i)
      fold(batch, i / n_heads_, i % n_heads_, first, out + i * head_width_);
    begin = end;
  }
}

}  // namespace pf
