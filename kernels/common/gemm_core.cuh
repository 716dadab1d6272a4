#pragma once

// y = x w^T for weights of any storage, T rows of x against N features (rows of w).
//
// Features are the 16 rows of mma's A operand and rows of x its 8 columns, so that 1 row costs no
// more than 8. The smallest piece of work is a warp's: a unit of 32 features (two A tiles) times
// 8 kN rows, along k in steps of 64. Lane 4 g + c holds of each row the features 4 g .. 4 g + 3,
// because tile m, row g + 8 h of the A operand is feature 4 g + 2 m + h: it stores them at once.
//
// One order of summation: k is cut into slices of whole steps, Weights::kSlices of them; a slice is
// summed upward from 0 in mma's k16 order, the slices are added from the first. The number of rows
// does not appear. A split tiling walks the slices by one warp each, with private stages and no
// block barrier until the fold; the others walk them one after the other and share the stages.

#include <cstdint>

#include "kernels/common/async_copy.cuh"
#include "kernels/common/gemm_store.cuh"
#include "kernels/common/matrix.cuh"
#include "kernels/common/row_norm.cuh"

namespace pf::kernels {

constexpr int kUnit = 32;       // features
constexpr int kStep = 64;       // k: 128 bytes of a row of x
constexpr int kStepChunks = 8;  // of 16 bytes

// kF x kT warps over features and rows, 8 kN rows each; or, split, one warp per slice. With kNorm
// the output has a norm behind it: a kernel of its own, since its loops cost the others' main loop
// instructions.
template <class Weights_, int kF_, int kT_, int kN_, bool kSplit_, bool kNorm_ = false>
struct Tile {
  using Weights = Weights_;
  static constexpr int kF = kF_, kT = kT_, kN = kN_;
  static constexpr bool kSplit = kSplit_, kNorm = kNorm_;
  static constexpr int kSlices = Weights::kSlices;
  static_assert(!kSplit || (kF == 1 && kT == 1));
  static constexpr int kRows = 8 * kN * kT;
  static constexpr int kThreads = 32 * (kSplit ? kSlices : kF * kT);
  static constexpr int kLoaders = kSplit ? 32 : kThreads;  // threads that fill one stage
  static constexpr int kWalks = kSplit ? kSlices : 1;      // walks along k, each with its stages
  static constexpr int kStageBytes = kF * Weights::kUnitBytes + kRows * 2 * kStep;
  // As many as hide the memory's latency: a split block is alone on its multiprocessor when N is
  // small. 96 KB is what a block may have on every architecture from sm_80 on.
  static constexpr int kFit = (96 << 10) / (kWalks * kStageBytes), kMost = kSplit ? 8 : 4;
  static constexpr int kStages = kFit < kMost ? kFit : kMost;
  static_assert(kStages >= 2);
  static constexpr int kSharedBytes = kWalks * kStages * kStageBytes;
  // Floats from row to row of the sums: 4 rows of 4 lanes meet no bank twice.
  static constexpr int kFoldStride = kUnit * kF + 4;
  static_assert(kRows * kFoldStride * 4 <= kStages * kStageBytes);
};

// Rows [first, first + n_rows) of one step of x: [n_rows][8 chunks], chunk c of row r at c ^ (r %
// 8), so that neither the copies nor ldmatrix meet a bank twice. Zeros behind T and K.
template <int n_rows, int n_threads, class A>
__device__ void load_rows(unsigned char* to, const GemmParams<A>& p, int first, int step,
                          int thread) {
  static_assert(n_threads % kStepChunks == 0 && n_rows * kStepChunks % n_threads == 0);
  constexpr int kPass = n_threads / kStepChunks;  // rows
  const auto* x = reinterpret_cast<const unsigned char*>(p.x);
  const int chunk = thread % kStepChunks, k = step * kStep + chunk * 8;
  const int n_left = k < p.K ? static_cast<int>(p.T) - first : 0;
  const unsigned char* from = x + (int64_t(first + thread / kStepChunks) * p.K + k) * 2;
#pragma unroll(n_rows / kPass < 4 ? n_rows / kPass : 4)
  for (int i = 0; i < n_rows / kPass; ++i) {
    const int row = i * kPass + thread / kStepChunks;
    const bool valid = row < n_left;
    copy_async_16(to + row * 128 + (chunk ^ row % 8) * 16, valid ? from : x, valid);
    from += int64_t(kPass) * p.K * 2;
  }
}

// What mma wants as B of the 8 rows at `rows`, k = 32 half .. 32 half + 31: {b0, b1} of two k16.
__device__ inline void row_fragment(uint32_t (&b)[4], const unsigned char* rows, int half,
                                    int lane) {
  const int row = lane % 8, chunk = 4 * half + lane / 8;
  load_matrices(b, rows + row * 128 + (chunk ^ row) * 16);
}

// The four features of lane 4 g + c in row 2 c + e of row tile j.
template <int kN>
__device__ Pack<float, 4> features(const float (&sum)[2][kN][4], int j, int e) {
  return {sum[0][j][e], sum[0][j][2 + e], sum[1][j][e], sum[1][j][2 + e]};
}

// Weights: kSlices; kUnitBytes of shared memory per unit and step; load<n_units, n_threads>(to,
// unit, step, thread) starts the copies of a step; multiply(sum, unit_bytes, rows, lane) adds one.
//
// grid (ceil(T / Tile::kRows), ceil(N / (32 Tile::kF))), block (Tile::kThreads)
template <class Tile>
__global__ void __launch_bounds__(Tile::kThreads, 1)
    gemm_kernel(const __grid_constant__ typename Tile::Weights w,
                const __grid_constant__ GemmParams<typename Tile::Weights::Activation> p) {
  using A = typename Tile::Weights::Activation;
  extern __shared__ __align__(128) unsigned char shared[];
  constexpr int kUnitBytes = Tile::Weights::kUnitBytes, kN = Tile::kN, kStages = Tile::kStages,
                kBytes = Tile::kStageBytes;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int loader = Tile::kSplit ? lane : threadIdx.x;
  const int my_unit = Tile::kSplit ? 0 : warp % Tile::kF,
            my_rows = Tile::kSplit ? 0 : warp / Tile::kF;
  const auto slice_begin = [](int slice, int n_steps) { return slice * n_steps / Tile::kSlices; };
  const int first_row = blockIdx.x * Tile::kRows;
  const int first_unit = blockIdx.y * Tile::kF, n_steps = (p.K + kStep - 1) / kStep;

  // 1. the first stages of what this warp (split) or block walks
  const int begin = Tile::kSplit ? slice_begin(warp, n_steps) : 0;
  const int end = Tile::kSplit ? slice_begin(warp + 1, n_steps) : n_steps;
  unsigned char* stages = shared + (Tile::kSplit ? warp * kStages * kBytes : 0);
  int filled = 0, used = 0;  // stages, in turn
  const auto next = [](int stage) { return stage + 1 < kStages ? stage + 1 : 0; };
  const auto load = [&](int step) {
    if (step < end) {
      unsigned char* to = stages + filled * kBytes;
      filled = next(filled);
      w.template load<Tile::kF, Tile::kLoaders>(to, first_unit, step, loader);
      load_rows<Tile::kRows, Tile::kLoaders>(to + kUnitBytes * Tile::kF, p, first_row, step,
                                             loader);
    }
    commit_copies();
  };
  for (int i = 0; i < kStages - 1; ++i) load(begin + i);

  // 2. multiply a stage while the next ones arrive
  float total[2][kN][4] = {}, sum[2][kN][4] = {};
  int slice = 0;
  for (int step = begin; step < end; ++step) {
    wait_copies<kStages - 2>();
    if constexpr (Tile::kSplit)
      __syncwarp();
    else
      __syncthreads();
    load(step + kStages - 1);  // into the stage that everybody has left
    const unsigned char* from = stages + used * kBytes;
    used = next(used);
    w.multiply(sum, from + my_unit * kUnitBytes,
               from + kUnitBytes * Tile::kF + my_rows * kN * 8 * 128, lane);
    if constexpr (!Tile::kSplit) {
      while (slice_begin(slice + 1, n_steps) <= step) ++slice;
      if (slice_begin(slice + 1, n_steps) != step + 1) continue;
      for (int j = 0; j < 2 * kN; ++j)
        for (int i = 0; i < 4; ++i) {
          total[j / kN][j % kN][i] += sum[j / kN][j % kN][i];
          sum[j / kN][j % kN][i] = 0;
        }
    }
  }

  // 3. the sums to shared memory, where the stages were: [rows][kFoldStride] floats of each walk
  wait_copies<0>();
  if constexpr (Tile::kSplit)
    __syncwarp();
  else
    __syncthreads();
  const auto& mine = Tile::kSplit ? sum : total;
  float* const to = reinterpret_cast<float*>(stages) +
                    (my_rows * kN * 8 + lane % 4 * 2) * Tile::kFoldStride + my_unit * kUnit +
                    lane / 4 * 4;
#pragma unroll
  for (int j = 0; j < kN; ++j)
    for (int e = 0; e < 2; ++e)
      store_shared_pack(to + (8 * j + e) * Tile::kFoldStride, features(mine, j, e));
  __syncthreads();

  // 4. the walks folded and stored, four neighbours at a time
  constexpr int kPacks = kUnit * Tile::kF / 4;  // of a row
  constexpr int kAll = Tile::kRows * kPacks, kTrips = (kAll + Tile::kThreads - 1) / Tile::kThreads;
#pragma unroll(kTrips < 2 ? kTrips : 2)
  for (int trip = 0; trip < kTrips; ++trip) {
    const int at = trip * Tile::kThreads + threadIdx.x;
    if (kAll % Tile::kThreads != 0 && at >= kAll) break;
    const int row = at / kPacks, n = at % kPacks * 4;
    const float* from = reinterpret_cast<const float*>(shared) + row * Tile::kFoldStride + n;
    Pack<float, 4> v{};
    for (int w = 0; w < Tile::kWalks; ++w) {
      const auto part = load_shared_pack(from + w * kStages * kBytes / 4);
      for (int i = 0; i < 4; ++i) v.v[i] += part.v[i];
    }
    const int t = first_row + row, feature = first_unit * kUnit + n;
    if constexpr (!Tile::kNorm)
      store(p, t, feature, v);
    else if (t < p.T && feature < p.N)
      store_whole<float>(p, t, feature, v);
  }

  // 5. the norm of what has become whole
  if constexpr (Tile::kNorm) {
    const RowNorm<A>& norm = p.out.norm;
    if (!is_last_block(norm.counter, gridDim.y)) return;
    for (int t = threadIdx.x / 32; t < static_cast<int>(p.T); t += Tile::kThreads / 32) {
      const int64_t row = int64_t(t) * p.N;
      norm_fresh_row(norm.y + row, static_cast<const float*>(p.out.y) + row, norm.w, p.N,
                     norm.epsilon);
    }
  }
}

}  // namespace pf::kernels
