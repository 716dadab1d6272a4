#pragma once

// Where a list that was sorted by falling value (lower index first) would be cut, without sorting:
// histograms narrow the place down, first over the value on a linear scale (logits lie spread over
// tens of units, so its bins fill evenly), then over the bits of the value, then, among equal
// values that are only partly kept, over the index. Weights are integers, so no order of addition
// shows. There are as many bins as threads, and a round reads the row once: with 1024 of them 4
// rounds are usual and 8 the most (1 linear, 1 for the ends of its bin, 4 over 32 bits, 2 over 2^18
// indices).

#include "base/fast_math.h"
#include "kernels/common/block.cuh"

namespace pf::kernels {

using Weight = unsigned long long;

constexpr int kBins = 1024;         // room for as many as a block can have threads
constexpr float kCoarseSpan = 128;  // the first round's scale reaches so far below the top

// Kept: larger values, and at the value itself the indices up to `index`.
struct Cut {
  float value;
  int32_t index;

  __device__ bool keeps(float v, int32_t i) const {
    return v > value || (v == value && i <= index);
  }
};

// Unsigned order = falling order of floats (no NaN); -0 equals +0.
__device__ inline uint32_t falling_key(float v) {
  const uint32_t bits = __float_as_uint(v + 0.0f);
  return bits & 0x80000000u ? bits : ~(bits | 0x80000000u);
}
__device__ inline float value_of_falling_key(uint32_t key) {
  return __uint_as_float(key & 0x80000000u ? key : ~key & 0x7fffffffu);
}

// Probability mass as an integer: multiples of 2^-45, so that 2^18 tokens of mass 1 fit.
__device__ inline Weight mass_of(float e) { return static_cast<Weight>(e * 0x1p45f); }

struct Bin {
  int index;
  Weight before, weight;  // of all smaller bins, and its own
};

// The first bin at which the running weight reaches `goal`; every thread gets it. Requires that it
// is reached, and barriers between the filling and this call, and before the next one.
__device__ inline Bin find_bin(const Weight* bins, Weight goal) {
  __shared__ Bin found;
  const Weight own = bins[threadIdx.x], upto = block_scan(own), before = upto - own;
  if (before < goal && goal <= upto) found = {static_cast<int>(threadIdx.x), before, own};
  __syncthreads();
  return found;
}

// A row of n values as select_prefix sees it: the elements with in(value(i), i), of weight
// weigh(value(i)).
template <class Value, class In, class Weigh>
struct Row {
  int n;
  Value value;
  In in;
  Weigh weigh;
};

// Adds the weight of each element into its bin, bin_of(value, i) (-1: none). A barrier stands at
// either end.
template <class R, class BinOf>
__device__ void fill_bins(const R& row, Weight* bins, BinOf bin_of) {
  __syncthreads();
  bins[threadIdx.x] = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < row.n; i += blockDim.x) {
    const float v = row.value(i);
    const int b = bin_of(v, i);
    if (b < 0 || !row.in(v, i)) continue;
    if (const Weight weight = row.weigh(v); weight > 0) atomicAdd(&bins[b], weight);
  }
  __syncthreads();
}

// How far low..high must be shifted to fit the bins.
__device__ inline int bin_shift(uint32_t low, uint32_t high) {
  const int bin_bits = 31 - __clz(static_cast<int>(blockDim.x));
  const int width = 32 - __clz(static_cast<int>(high - low));
  return width > bin_bits ? width - bin_bits : 0;
}

// The cut behind the shortest prefix of the row's elements, by falling value and rising i, whose
// weights add up to goal_of(the sum of all), which lies in [1, that sum]; where it is that sum, a
// cut that keeps everything. Requires values <= top, bins in shared memory, [kBins]. Every thread
// calls and gets the result.
template <class Value, class In, class Weigh, class GoalOf>
__device__ Cut select_prefix(const Row<Value, In, Weigh>& row, float top, GoalOf goal_of,
                             Weight* bins) {
  // 1. a linear scale below the top
  const int last_bin = static_cast<int>(blockDim.x) - 1;
  const float per_unit = static_cast<float>(blockDim.x) / kCoarseSpan;
  auto coarse = [&](float v, int) {
    const float d = sub_rn(top, v);
    return d < kCoarseSpan ? static_cast<int>(d * per_unit) : last_bin;
  };
  fill_bins(row, bins, coarse);
  const Weight total = block_reduce(bins[threadIdx.x], Sum{});
  Weight goal = goal_of(total);
  if (goal >= total) return {-INFINITY, row.n - 1};
  Bin bin = find_bin(bins, goal);
  goal -= bin.before;

  // 2. the bits of the values in that bin: keys low..high
  uint32_t not_low = 0, high = 0;
  for (int i = threadIdx.x; i < row.n; i += blockDim.x) {
    const float v = row.value(i);
    if (coarse(v, i) != bin.index || !row.in(v, i)) continue;
    not_low = Max{}(not_low, ~falling_key(v));
    high = Max{}(high, falling_key(v));
  }
  uint32_t low = ~block_reduce(not_low, Max{});
  high = block_reduce(high, Max{});
  while (low < high) {
    const int shift = bin_shift(low, high);
    fill_bins(row, bins, [&](float v, int) {
      const uint32_t key = falling_key(v);
      return key >= low && key <= high ? static_cast<int>((key - low) >> shift) : -1;
    });
    bin = find_bin(bins, goal);
    goal -= bin.before;
    low += static_cast<uint32_t>(bin.index) << shift;
    high = min(high, low + ((1u << shift) - 1));
  }

  // 3. equal values, of which a part is kept: the index
  const float v = value_of_falling_key(low);
  if (bin.weight - goal < row.weigh(v)) return {v, row.n - 1};
  int first = 0, last = row.n - 1;
  while (first < last) {
    const int shift = bin_shift(first, last);
    fill_bins(row, bins, [&](float u, int i) {
      return u == v && i >= first && i <= last ? (i - first) >> shift : -1;
    });
    bin = find_bin(bins, goal);
    goal -= bin.before;
    first += bin.index << shift;
    last = min(last, first + ((1 << shift) - 1));
  }
  return {v, first};
}

// The n_wanted elements that go first, sorted, by the threads of a block: emit(rank, value, i).
// Requires 1 <= n_wanted <= min(n, kMaxListed); list in shared memory, [kMaxListed].
constexpr int kMaxListed = 256;
struct Listed {
  float value;
  int32_t index;
};
template <class Value, class Emit>
__device__ void list_first(int n, float top, Value value, int n_wanted, Weight* bins, Listed* list,
                           Emit emit) {
  __shared__ int n_listed;
  auto all = [](float, int) { return true; };
  auto one = [](float) { return Weight{1}; };
  auto wanted = [&](Weight) { return static_cast<Weight>(n_wanted); };
  const Cut cut = select_prefix(Row<Value, decltype(all), decltype(one)>{n, value, all, one}, top,
                                wanted, bins);
  if (threadIdx.x == 0) n_listed = 0;
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const float v = value(i);
    if (cut.keeps(v, i)) list[atomicAdd(&n_listed, 1)] = {v, i};
  }
  __syncthreads();
  for (int j = threadIdx.x; j < n_wanted; j += blockDim.x) {
    const Listed own = list[j];
    int rank = 0;
    for (int k = 0; k < n_wanted; ++k)
      rank +=
          list[k].value > own.value || (list[k].value == own.value && list[k].index < own.index);
    emit(rank, own.value, own.index);
  }
  __syncthreads();
}

}  // namespace pf::kernels
