// A block of 4 warps takes one item and KV head at a time. The queries of the item (its rows x the
// heads of the KV head) are the rows of m16n8k16 products; a tile of 64 keys and values at a time
// is in shared memory, the next one on its way. Up to 16 queries ("narrow") all warps share them:
// a warp scores a quarter of the tile's keys and then sums a quarter of the head width, so that few
// queries are not one warp's work. Up to 64 ("wide") a warp has 16 queries of its own and does all
// of it. Both add up the same numbers in the same order: a score runs over the head width upward,
// the sum of weights over the keys of a quarter and then the quarters, a value over the keys.
//
// A key that a row does not see has weight 0, and a tile in which it sees none leaves its state as
// it is, bit for bit. So it does not matter what else an item holds.
#include "base/cuda.h"
#include "kernels/attention.h"
#include "kernels/attention_blocks.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/common/kv_tiles.cuh"
#include "kernels/common/part_fold.cuh"

namespace pf::kernels {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = 32 * kWarps;
constexpr int kTile = kTileTokens;
constexpr int kQuarter = kTile / 4;  // keys
constexpr int kMaxRuns = kMaxRests + 1;

template <class T>
struct Params : PartFold<T> {
  const T* q;           // [T, H, D]
  const void* kv;       // T or int8 [N, 2, G, P, D]
  const float* scales;  // [N, 2, G, P] of int8
  AttentionWork work;
  int P, window;
  float scale;  // times log2 e
};

// Narrow only: what the warps tell each other.
template <class T>
struct Exchange {
  T weights[16 * kTile];
  float max[kWarps][16], sum[kWarps][16];
};

template <class T, int D, class S>
struct Shared : Exchange<T> {
  alignas(128) KvTiles<T, D, S, kThreads> tiles;
  int32_t places[2][kTile];  // of a tile's keys, in units of D; -1: nobody sees it
  AttentionRun runs[kMaxRuns];
  FoldLists lists;
};

// Walks the tiles of an item, run by run.
struct Cursor {
  int run = 0, tile = 0;  // position of its first key
  __device__ void start(const AttentionRun* runs) { tile = runs[0].begin / kTile * kTile; }
  __device__ void next(const AttentionRun* runs, int n_runs) {
    tile += kTile;
    if (tile >= runs[run].end && run + 1 < n_runs) tile = runs[++run].begin / kTile * kTile;
  }
};

template <class T>
__device__ int32_t place_of(const Params<T>& p, const AttentionRun& run, int position) {
  if (position < run.begin || position >= run.end) return -1;
  int slot = position;
  if (position >= run.visible) {  // the (position - visible)-th node of the path
    uint64_t mask = p.work.masks[run.path_row];
#pragma unroll 1
    for (int skip = position - run.visible; skip > 0; --skip) mask &= mask - 1;
    slot = run.visible + __ffsll(static_cast<long long>(mask)) - 1;
  }
  const int block = p.work.tables[run.table + slot / p.P];
  return block * 2 * p.G * p.P + slot % p.P;
}

// The queries of an item and KV head, on their way; none are zero.
template <class T, int D>
__device__ void load_queries(T* queries, const Params<T>& p, const AttentionItem& item, int kv_head,
                             int n) {
  constexpr int kPieces = D / 8;
  const int heads = p.H / p.G;
#pragma unroll 1
  for (int i = threadIdx.x; i < n * kPieces; i += kThreads) {
    const int m = i / kPieces, piece = i % kPieces, row = m / heads;
    const bool real = row < item.n_rows;
    const T* from = p.q;
    if (real)
      from += (int64_t(p.work.item_rows[item.first_row + row].row) * p.H + kv_head * heads +
               m % heads) *
                  D +
              piece * 8;
    copy_async_16(queries + swizzled<D>(m, piece), from, real);
  }
}

// What one warp holds of an item: 16 queries, and of each thread the two in rows lane / 4 and + 8.
template <class T, int D, bool kWide>
struct Work {
  static constexpr int kQuarters = kWide ? 4 : 1;        // of a tile, scored by this warp
  static constexpr int kSums = D / 8 / (kWide ? 1 : 4);  // 8-wide columns of D, summed by it

  uint32_t query[D / 16][4];  // A fragments
  float value[kSums][4] = {};
  float max[2] = {-INFINITY, -INFINITY};
  float sum[kQuarters][2] = {};             // of this thread's keys
  SoftmaxState total[2];                    // of the splits that are closed; their values:
  float closed[kWide ? 1 : kSums][4] = {};  // narrow; a wide warp has no room and folds in memory
  // The two rows: the item's row, the query head, the part, the positions [first, last] it sees.
  int row[2], head[2], part[2], first[2], last[2];

  __device__ void start(const Params<T>& p, const AttentionItem& item, int kv_head);
  __device__ void load_query(const T* queries);
  __device__ void score(const T* keys, float (&s)[kQuarters][2][4]) const;
  __device__ void see(const Params<T>& p, const AttentionRun& run, int tile,
                      float (&s)[kQuarters][2][4], Exchange<T>& shared);
  __device__ void add_values(const T* values, const float (&s)[kQuarters][2][4],
                             Exchange<T>& shared);
  __device__ void close_split(const Params<T>& p, const AttentionRun* run, Exchange<T>& shared);
  __device__ void finish(const Params<T>& p) const;

  // Which quarter a narrow warp scores, and which quarter of D it sums.
  __device__ static int part_of_warp() { return kWide ? 0 : threadIdx.x / 32; }
  // This thread's first value of a row's part.
  __device__ float* value_of(const Params<T>& p, int h) const {
    return p.values + (int64_t(part[h]) * p.H + head[h]) * D + part_of_warp() * kSums * 8 +
           threadIdx.x % 4 * 2;
  }
  __device__ bool in_run(const AttentionRun& run, int h) const {
    return row[h] >= run.first && row[h] < run.first + run.n;
  }
};

template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::start(const Params<T>& p, const AttentionItem& item,
                                         int kv_head) {
  const int lane = threadIdx.x % 32, heads = p.H / p.G;
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int m = (kWide ? threadIdx.x / 32 * 16 : 0) + lane / 4 + 8 * h;
    row[h] = m / heads;
    last[h] = -1;
    first[h] = part[h] = head[h] = 0;
    if (row[h] < item.n_rows) {
      const AttentionItemRow at = p.work.item_rows[item.first_row + row[h]];
      head[h] = kv_head * heads + m % heads;
      part[h] = at.part;
      last[h] = p.work.positions[at.row];
      first[h] = p.work.counts->first_position;
      if (p.window > 0) first[h] = ::max(first[h], last[h] + 1 - p.window);
    }
  }
}

template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::load_query(const T* queries) {
  const int lane = threadIdx.x % 32, m = (kWide ? threadIdx.x / 32 * 16 : 0) + (lane & 15);
#pragma unroll
  for (int k = 0; k < D / 16; ++k)
    load_matrices(query[k], queries + swizzled<D>(m, 2 * k + (lane >> 4)));
}

// s = q . k of this warp's keys.
template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::score(const T* keys, float (&s)[kQuarters][2][4]) const {
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int c = 0; c < kQuarters; ++c) {
    const int key = (part_of_warp() + c) * kQuarter + (lane & 7) + ((lane >> 4) << 3);
#pragma unroll
    for (int i = 0; i < 4; ++i) s[c][0][i] = s[c][1][i] = 0;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      uint32_t b[4];
      load_matrices(b, keys + swizzled<D>(key, 2 * k + ((lane >> 3) & 1)));
      multiply_add<T>(s[c][0], query[k], b[0], b[1]);
      multiply_add<T>(s[c][1], query[k], b[2], b[3]);
    }
  }
}

// Scores to weights: s = 2^(scale s - max), 0 where a row does not see the key; the state follows.
template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::see(const Params<T>& p, const AttentionRun& run, int tile,
                                       float (&s)[kQuarters][2][4], Exchange<T>& shared) {
  const int lane = threadIdx.x % 32;
  float now[2] = {max[0], max[1]};
#pragma unroll
  for (int c = 0; c < kQuarters; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int h = (i >> 1) & 1;
      const int key =
          tile + (part_of_warp() + c) * kQuarter + (i >> 2) * 8 + lane % 4 * 2 + (i & 1);
      float& x = s[c][i >> 2][i & 3];
      const bool seen = key >= first[h] && key <= last[h] && in_run(run, h);
      x = seen ? __fmul_rn(x, p.scale) : -INFINITY;
      now[h] = fmaxf(now[h], x);
    }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    now[h] = fmaxf(now[h], __shfl_xor_sync(~0u, now[h], 1));
    now[h] = fmaxf(now[h], __shfl_xor_sync(~0u, now[h], 2));
  }
  if constexpr (!kWide) {
    if (lane % 4 == 0)
      for (int h = 0; h < 2; ++h) shared.max[part_of_warp()][lane / 4 + 8 * h] = now[h];
    __syncthreads();
    for (int h = 0; h < 2; ++h)
      for (int w = 0; w < kWarps; ++w) now[h] = fmaxf(now[h], shared.max[w][lane / 4 + 8 * h]);
  }
  float base[2];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    base[h] = now[h] == -INFINITY ? 0 : now[h];
    const float keep = exp2_approx(__fsub_rn(max[h], base[h]));  // exactly 1 when max stays
    max[h] = now[h];
#pragma unroll
    for (int c = 0; c < kQuarters; ++c) sum[c][h] = __fmul_rn(sum[c][h], keep);
#pragma unroll
    for (int n = 0; n < kSums; ++n) {
      value[n][2 * h] = __fmul_rn(value[n][2 * h], keep);
      value[n][2 * h + 1] = __fmul_rn(value[n][2 * h + 1], keep);
    }
  }
#pragma unroll
  for (int c = 0; c < kQuarters; ++c)
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      float& x = s[c][i >> 2][i & 3];
      const int h = (i >> 1) & 1;
      x = exp2_approx(__fsub_rn(x, base[h]));
      sum[c][h] = __fadd_rn(sum[c][h], x);
    }
}

// value += weights . v, over the tile's keys upward.
template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::add_values(const T* values, const float (&s)[kQuarters][2][4],
                                              Exchange<T>& shared) {
  const int lane = threadIdx.x % 32;
  if constexpr (!kWide) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // i: 8-wide column i / 2 of this quarter, row half i % 2
      const int r = lane / 4 + (i & 1) * 8, piece = part_of_warp() * 2 + (i >> 1);
      const float* x = &s[0][i >> 1][(i & 1) * 2];
      *reinterpret_cast<uint32_t*>(shared.weights + swizzled<kTile>(r, piece) + lane % 4 * 2) =
          pair_of<T>(x[0], x[1]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int k = 0; k < kTile / 16; ++k) {
    uint32_t a[4];
    if constexpr (kWide) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[i] = pair_of<T>(s[k][i >> 1][(i & 1) * 2], s[k][i >> 1][(i & 1) * 2 + 1]);
    } else {
      load_matrices(a, shared.weights + swizzled<kTile>(lane & 15, 2 * k + (lane >> 4)));
    }
#pragma unroll
    for (int n = 0; n < kSums; n += 2) {
      uint32_t b[4];
      const int piece = part_of_warp() * kSums + n + (lane >> 4);
      load_matrices_transposed(b, values + swizzled<D>(k * 16 + (lane & 15), piece));
      multiply_add<T>(value[n], a, b[0], b[1]);
      multiply_add<T>(value[n + 1], a, b[2], b[3]);
    }
  }
}

// Folds the open split of the rows in `run` (null: of all) into what is closed; a new one begins.
template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::close_split(const Params<T>& p, const AttentionRun* run,
                                               Exchange<T>& shared) {
  const int lane = threadIdx.x % 32;
  float quarters[4][2];
#pragma unroll
  for (int c = 0; c < kQuarters; ++c)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float x = sum[c][h];
      x = __fadd_rn(x, __shfl_xor_sync(~0u, x, 1));
      quarters[c][h] = __fadd_rn(x, __shfl_xor_sync(~0u, x, 2));
    }
  if constexpr (!kWide) {
    __syncthreads();  // the last sums have been read
    if (lane % 4 == 0)
      for (int h = 0; h < 2; ++h) shared.sum[part_of_warp()][lane / 4 + 8 * h] = quarters[0][h];
    __syncthreads();
    for (int w = 0; w < kWarps; ++w)
      for (int h = 0; h < 2; ++h) quarters[w][h] = shared.sum[w][lane / 4 + 8 * h];
  }
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (last[h] < 0 || (run != nullptr && !in_run(*run, h))) continue;
    SoftmaxState split;
    split.max = max[h];
    split.sum = __fadd_rn(__fadd_rn(__fadd_rn(quarters[0][h], quarters[1][h]), quarters[2][h]),
                          quarters[3][h]);
    if (!split.empty()) {
      const bool fresh = total[h].empty();
      const FoldWeights w = fold(total[h], split);
#pragma unroll
      for (int n = 0; n < kSums; ++n) {
        float* mine = &value[n][2 * h];
        if constexpr (kWide) {
          float2* pair = reinterpret_cast<float2*>(value_of(p, h) + n * 8);
          const float2 old = fresh ? make_float2(0, 0) : *pair;
          *pair = make_float2(w(old.x, mine[0]), w(old.y, mine[1]));
        } else {
          float* old = &closed[n][2 * h];
          old[0] = w(old[0], mine[0]), old[1] = w(old[1], mine[1]);
        }
        value[n][2 * h] = value[n][2 * h + 1] = 0;
      }
    }
    max[h] = -INFINITY;
#pragma unroll
    for (int c = 0; c < kQuarters; ++c) sum[c][h] = 0;
  }
}

template <class T, int D, bool kWide>
__device__ void Work<T, D, kWide>::finish(const Params<T>& p) const {
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    if (last[h] < 0) continue;
    if constexpr (!kWide)
      for (int n = 0; n < kSums; ++n)
        *reinterpret_cast<float2*>(value_of(p, h) + n * 8) =
            make_float2(closed[n][2 * h], closed[n][2 * h + 1]);
    if (threadIdx.x % 4 == 0 && (kWide || threadIdx.x < 32))
      p.states[int64_t(part[h]) * p.H + head[h]] = make_float2(total[h].max, total[h].sum);
  }
}

template <class T, int D, class S, bool kWide>
__device__ void attend(const Params<T>& p, const AttentionItem& item, int kv_head,
                       Shared<T, D, S>& shared) {
  const KvHead<S> kv{static_cast<const S*>(p.kv) + int64_t(kv_head) * p.P * D,
                     p.scales + kv_head * p.P, int64_t(p.G) * p.P * D, p.G * p.P};
  auto& tiles = shared.tiles;

  // 1. queries (where the second tile will be), runs, the first two tiles' places, the first tile
  __syncthreads();  // the item before is done with shared memory
  load_queries<T, D>(tiles.queries(), p, item, kv_head, kWide ? kItemQueries : 16);
  commit_copies();
  if (threadIdx.x == 0) shared.lists.n_rows = item.n_rows, shared.lists.first_row = item.first_row;
  if (threadIdx.x < item.n_runs)
    shared.runs[threadIdx.x] = p.work.runs[item.first_run + threadIdx.x];
  Work<T, D, kWide> work;
  work.start(p, item, kv_head);
  __syncthreads();
  int n_tiles = 0;
#pragma unroll 1
  for (int i = 0; i < item.n_runs; ++i)
    n_tiles += (shared.runs[i].end - 1) / kTile - shared.runs[i].begin / kTile + 1;
  Cursor here, ahead;
  here.start(shared.runs);
  ahead.start(shared.runs);
#pragma unroll 1
  for (int t = 0; t < 2; ++t, ahead.next(shared.runs, item.n_runs))
    if (t < n_tiles && threadIdx.x < kTile)
      shared.places[t][threadIdx.x] = place_of(p, shared.runs[ahead.run], ahead.tile + threadIdx.x);
  __syncthreads();
  tiles.keep(0, tiles.load(0, kv, shared.places[0]));
  commit_copies();
  wait_copies<1>();
  __syncthreads();
  work.load_query(tiles.queries());

#pragma unroll 1
  for (int t = 0; t < n_tiles; ++t) {
    // 2. this tile is here, the next is on its way, the places of the one behind it are looked up
    wait_copies<0>();
    __syncthreads();
    const int now = t & 1, next = now ^ 1;
    float scale = 0;
    if (t + 1 < n_tiles) scale = tiles.load(next, kv, shared.places[next]);
    commit_copies();
    int32_t place = -1;
    if (t + 2 < n_tiles && threadIdx.x < kTile)
      place = place_of(p, shared.runs[ahead.run], ahead.tile + threadIdx.x);
    ahead.next(shared.runs, item.n_runs);
    tiles.unpack(now);

    // 3. scores, weights, values; a wide warp whose rows see nothing here has nothing to do
    const AttentionRun& run = shared.runs[here.run];
    bool any = false;
    for (int h = 0; h < 2; ++h)
      any |= work.in_run(run, h) && work.last[h] >= here.tile && work.first[h] < here.tile + kTile;
    if (!kWide || __any_sync(~0u, any)) {
      float s[Work<T, D, kWide>::kQuarters][2][4];
      work.score(tiles.keys(now), s);
      work.see(p, run, here.tile, s, shared);
      work.add_values(tiles.values(now), s, shared);
    }
    const bool is_last = t + 1 == n_tiles;
    if (is_last || (here.tile + kTile) % kSplitTokens == 0)
      work.close_split(p, is_last ? nullptr : &run, shared);
    if (threadIdx.x < kTile) shared.places[now][threadIdx.x] = place;
    tiles.keep(next, scale);
    here.next(shared.runs, item.n_runs);
  }
  work.finish(p);
}

// grid (n_blocks), block (kThreads): block b takes every n_blocks-th pair of item and KV head
template <class T, int D, class S>
__global__ void __launch_bounds__(kThreads, D == 64 && sizeof(S) == sizeof(T) ? 3 : 2)
    attention_kernel(const __grid_constant__ Params<T> p) {
  extern __shared__ __align__(128) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<T, D, S>*>(memory);
  const int n = p.work.counts->n_items * p.G, heads = p.H / p.G;
  for (int i = blockIdx.x; i < n; i += gridDim.x) {
    const AttentionItem item = p.work.items[p.work.counts->first_item + i / p.G];
    if (item.n_rows * heads <= 16)
      attend<T, D, S, false>(p, item, i % p.G, shared);
    else
      attend<T, D, S, true>(p, item, i % p.G, shared);
    fold_parts<D, T>(p, p.work.item_rows, i % p.G, kGroupTokens / p.work.counts->unit_tokens,
                     shared.lists);
  }
  clear_padding<D, T>(p);
}

template <class T, int D, class S>
void launch(const Params<T>& p, int32_t n_blocks, cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<T, D, S>);
  static_assert(kBytes == attention_shared_bytes(D, sizeof(S) == 1));
  auto kernel = attention_kernel<T, D, S>;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes));
  kernel<<<static_cast<unsigned>(n_blocks), kThreads, kBytes, stream>>>(p);
  cuda_check(cudaGetLastError());
}

}  // namespace

template <class T>
void attention(View<T, 3> out, AttentionParts parts, View<const T, 3> q, KvPlane<T> kv,
               const AttentionWork& work, int32_t sliding_window, float scale, int32_t n_blocks,
               cudaStream_t stream) {
  const auto [n_rows, H, D] = q.shape;
  const int64_t G = kv.n_kv_heads, n_planned = out.shape[0];
  check(D == 64 || D == 128, "attention: the head width must be 64 or 128");
  check(kv.head_width == D && kv.n_layers == 1 && G > 0 && H % G == 0 && H / G <= kItemQueries,
        "attention: the shapes of q and the KV plane do not fit each other");
  check(kv.n_blocks * kv.block_tokens * 2 * G < 1ll << 31 && parts.max_parts < 1ll << 31,
        "attention: too many KV blocks");
  check(out.shape[1] == H && out.shape[2] == D && work.first_row + n_planned <= n_rows,
        "attention: the shapes of q and out do not fit each other");
  check_aligned({out.data, q.data, kv.bytes(), kv.scales, parts.values, parts.states});
  check(scale > 0 && n_blocks > 0, "attention: a scale and blocks of threads are needed");
  if (n_planned == 0) return;

  constexpr double kLog2E = 1.4426950408889634;
  Params<T> p{{out.data, parts.values, reinterpret_cast<float2*>(parts.states), parts.tickets,
               work.row_parts, parts.max_parts, work.first_row, static_cast<int>(n_planned),
               static_cast<int>(H), static_cast<int>(G)},
              q.data,
              kv.bytes(),
              kv.scales,
              work,
              static_cast<int>(kv.block_tokens),
              sliding_window,
              static_cast<float>(scale * kLog2E)};
  if (kv.int8 != nullptr)
    return D == 64 ? launch<T, 64, int8_t>(p, n_blocks, stream)
                   : launch<T, 128, int8_t>(p, n_blocks, stream);
  D == 64 ? launch<T, 64, T>(p, n_blocks, stream) : launch<T, 128, T>(p, n_blocks, stream);
}

template void attention(View<f16, 3>, AttentionParts, View<const f16, 3>, KvPlane<f16>,
                        const AttentionWork&, int32_t, float, int32_t, cudaStream_t);
template void attention(View<bf16, 3>, AttentionParts, View<const bf16, 3>, KvPlane<bf16>,
                        const AttentionWork&, int32_t, float, int32_t, cudaStream_t);

}  // namespace pf::kernels
