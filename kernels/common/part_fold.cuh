#pragma once

// What a row's parts become (attention.h), made by whichever block of threads comes last: a block
// that has written a part of a group counts itself there, and the last one folds the group; of the
// groups of a row, whoever ends the last one folds them all. So a long row's work is spread over
// the blocks that end its groups, and no block waits for another. Who comes last depends on the
// hour; what is folded, and in which order, does not.

#include "kernels/attention_plan.h"
#include "kernels/common/half.cuh"
#include "kernels/common/softmax_state.cuh"

namespace pf::kernels {

template <class T>
struct PartFold {
  T* out;             // [rows planned, H, D]
  float* values;      // [n_parts, H, D]
  float2* states;     // [n_parts, H]
  uint32_t* tickets;  // [2, n_parts, G]: of a group and of a row, at the first part of either
  const AttentionRowParts* row_parts;  // [rows planned]
  int64_t n_parts;
  int first_row, n_rows, H, G;
};

// A piece of a row and head by one warp: lane l holds elements kN l, kN l + 1, ...
template <int kN>
struct Piece : SoftmaxState {
  float v[kN] = {};
  __device__ void add(const Piece& part) {
    if (part.empty()) return;
    const FoldWeights w = fold(*this, part);
#pragma unroll
    for (int i = 0; i < kN; ++i) v[i] = w(v[i], part.v[i]);
  }
};

// Parts that are folded in order: slot(0) .. slot(n - 1).
struct PartList {
  int32_t row;  // of `out`
  int32_t n;    // 0: nothing is folded here
  int32_t first, next, step;
  int32_t ends;  // of groups. 1: the first one is a single unit, 2: the last one is; and of a
                 // group, not 0: it is all of its row
  __device__ int slot(int i) const { return i == 0 ? first : next + (i - 1) * step; }
  __device__ bool is_single(int i) const {
    return step == 1 || (i == 0 && (ends & 1)) || (i == n - 1 && (ends & 2));
  }
};

// What the threads of a block tell each other: of each row of an item, a list. Fields apart, so
// that neither a thread to each nor one for all meets a bank twice.
struct FoldLists {
  int32_t n_rows;  // of the item; no register holds it and first_row while tiles are walked
  int32_t row[kItemQueries], n[kItemQueries], first[kItemQueries], next[kItemQueries],
      step[kItemQueries], ends[kItemQueries];
  int32_t first_row;
  __device__ void set(int r, const PartList& l) {
    row[r] = l.row, n[r] = l.n, first[r] = l.first, next[r] = l.next, step[r] = l.step;
    ends[r] = l.ends;
  }
  __device__ PartList get(int r) const {
    return {row[r], n[r], first[r], next[r], step[r], ends[r]};
  }
};

// Whether the caller is the last of n: then what the others wrote is there for __ldcg. A barrier
// stands between a block's writing and the call of one of its threads. The ticket is 0 before the
// first and after the last.
__device__ inline bool comes_last(uint32_t* ticket, int n) {
  if (n == 1) return true;
  __threadfence();
  const uint32_t last = static_cast<uint32_t>(n) - 1;
  const bool is_last = atomicInc(ticket, last) == last;
  __threadfence();
  return is_last;
}

template <int kN>
__device__ void load_fresh(float (&to)[kN], const float* from) {
  if constexpr (kN == 4) {
    const float4 v = __ldcg(reinterpret_cast<const float4*>(from));
    to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w;
  } else {
    static_assert(kN == 2);
    const float2 v = __ldcg(reinterpret_cast<const float2*>(from));
    to[0] = v.x, to[1] = v.y;
  }
}

// f(part, i) for the parts of a list in order, and for empty ones behind them. Several are on their
// way at once: a warp that waited for each would wait longer than for a launch.
template <int D, class T, class F>
__device__ void each_part(const PartFold<T>& p, const PartList& list, int head, F f) {
  constexpr int kN = D / 32, kAtOnce = 4;
#pragma unroll 1
  for (int first = 0; first < list.n; first += kAtOnce) {
    Piece<kN> parts[kAtOnce];
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i >= list.n) continue;
      const float2 state = __ldcg(p.states + int64_t(list.slot(first + i)) * p.H + head);
      parts[i].max = state.x, parts[i].sum = state.y;
    }
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i)
      if (!parts[i].empty())  // else its values were not written
        load_fresh<kN>(parts[i].v, p.values + (int64_t(list.slot(first + i)) * p.H + head) * D +
                                       threadIdx.x % 32 * kN);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) f(parts[i], first + i);
  }
}

// In the place of a part that this warp has read.
template <int D, class T>
__device__ void store_part(const PartFold<T>& p, int slot, int head, const Piece<D / 32>& piece) {
  constexpr int kN = D / 32;
  const int64_t at = int64_t(slot) * p.H + head;
  Pack<float, kN> v;
  for (int i = 0; i < kN; ++i) v.v[i] = piece.v[i];
  store_pack(p.values + at * D + threadIdx.x % 32 * kN, v);
  __syncwarp();  // every lane has read the state
  if (threadIdx.x % 32 == 0) p.states[at] = make_float2(piece.max, piece.sum);
}

template <int D, class T>
__device__ void store_row(const PartFold<T>& p, int row, int head, const Piece<D / 32>& total) {
  constexpr int kN = D / 32;
  const float scale = __frcp_rn(total.sum);
  Pack<T, kN> v;
  for (int i = 0; i < kN; ++i) v.v[i] = narrow<T>(__fmul_rn(total.v[i], scale));
  store_pack(p.out + (int64_t(row) * p.H + head) * D + threadIdx.x % 32 * kN, v);
}

// Counts the parts of an item and KV head, and folds what is whole with them. Every thread calls;
// `lists` in shared memory, with the item's rows. per_group: units of a group.
template <int D, class T>
__device__ void fold_parts(const PartFold<T>& p, const AttentionItemRow* item_rows, int kv_head,
                           int per_group, FoldLists& lists) {
  __syncthreads();  // the parts are written
  const int heads = p.H / p.G, n_warps = blockDim.x / 32, r = threadIdx.x, n_rows = lists.n_rows;
  AttentionRowParts all;
  int n_groups = 0;  // of this thread's row; 0: it has none, or waits for the rest of the group

  // 1. groups whose last unit this is
  if (r < n_rows) {
    const AttentionItemRow at = item_rows[lists.first_row + r];
    all = p.row_parts[at.row - p.first_row];
    const int group = (all.unit + at.part - all.first) / per_group * per_group;
    const int begin = max(group, all.unit), end = min(group + per_group, all.unit + all.n);
    const int first = all.first + begin - all.unit, n = end - begin;
    if (comes_last(p.tickets + int64_t(first) * p.G + kv_head, n))
      n_groups = (all.unit + all.n - 1) / per_group - all.unit / per_group + 1;
    const bool folds = n_groups == 1 || (n_groups > 1 && n > 1);
    lists.set(r, {at.row - p.first_row, folds ? n : 0, first, first + 1, 1, n_groups == 1});
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < n_rows * heads; i += n_warps) {
    const PartList list = lists.get(i / heads);
    if (list.n == 0) continue;
    const int head = kv_head * heads + i % heads;
    Piece<D / 32> group, total;
    each_part<D>(p, list, head, [&](const Piece<D / 32>& part, int) { group.add(part); });
    if (list.ends == 0) {
      store_part<D>(p, list.first, head, group);
      continue;
    }
    total.add(group);
    store_row<D>(p, list.row, head, total);
  }
  __syncthreads();  // the groups are written

  // 2. rows whose last group this was
  if (r < n_rows) {
    const bool ends_row =
        n_groups > 1 && comes_last(p.tickets + (p.n_parts + all.first) * p.G + kv_head, n_groups);
    lists.n[r] = ends_row ? n_groups : 0;
    if (ends_row) {
      const int into = all.unit % per_group, beyond = (all.unit + all.n) % per_group;
      lists.first[r] = all.first;
      lists.next[r] = all.first - into + per_group;
      lists.step[r] = per_group;
      lists.ends[r] = (into == per_group - 1 ? 1 : 0) | (beyond == 1 ? 2 : 0);
    }
  }
  __syncthreads();
#pragma unroll 1
  for (int i = threadIdx.x / 32; i < n_rows * heads; i += n_warps) {
    const PartList list = lists.get(i / heads);
    if (list.n == 0) continue;
    const int head = kv_head * heads + i % heads;
    Piece<D / 32> total;
    each_part<D>(p, list, head, [&](const Piece<D / 32>& part, int at) {
      Piece<D / 32> group = part;
      if (list.is_single(at)) group = {}, group.add(part);
      total.add(group);
    });
    store_row<D>(p, list.row, head, total);
  }
}

// Rows that have no parts are zero.
template <int D, class T>
__device__ void clear_padding(const PartFold<T>& p) {
  for (int row = gridDim.x - 1 - blockIdx.x; row < p.n_rows; row += gridDim.x)
    if (p.row_parts[row].n == 0)
      for (int i = threadIdx.x * 8; i < p.H * D; i += blockDim.x * 8)
        store_pack(p.out + int64_t(row) * p.H * D + i, Pack<T, 8>{});
}

}  // namespace pf::kernels
