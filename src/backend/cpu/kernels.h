#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace pf {

// What one instruction set offers to the CPU backend. Three files fill this table (portable, AVX2,
// AVX-512 with BF16 and VNNI); the best that the machine has is chosen once.
//
// Weights lie in tiles of 16 output rows, each tile one contiguous stream along k:
//   kF32   per k:           16 floats
//   kBf16  per 2 k:         16 pairs (W[r][k], W[r][k+1])
//   kInt8  per 32 k:        8 lines of 16 quads (W[r][4q..4q+3] + 128, unsigned), 16 f16 scales
//   kInt4  per 32 k:        4 lines of 16 quads of nibble pairs (low: k = 8q + b, high: 8q + 4 + b,
//                           b = 0..3), 16 f16 scales d, 16 f16 minimums m; w = d q + m
//   kInt4Wide  per 128 k:   the 4 lines of kInt4 four times, then d and m of all 128
// Activations are packed in chunks of M rows (chunk_rows below), so that a step reads what it
// broadcasts in one line:
//   kF32   [K][M] floats;  kBf16  [K / 2][M] pairs
//   ints   per step: [step / 4][M] quads of int8, [M] float scales s, [M] what the weights' offset
//          adds: kInt8 int32 -128 sum(quads), kInt4 and kInt4Wide float s sum(quads)
//
// One element of the product is one accumulator that walks k upward, whatever the number of tiles
// and rows computed beside it; so a row has the same bits in every batch (invariant 7).
// Within a step the sums of ints are exact, so nothing depends on their order; kInt4Wide has a
// scale of the activations for 128 of them, too, so that it leaves the integers a quarter as often.
enum class WeightFormat { kF32, kBf16, kInt8, kInt4, kInt4Wide };
inline constexpr int kFormats = 5;

inline constexpr int kTileRows = 16;
inline constexpr int kMaxChunkRows = 16;
inline constexpr int kMaxTiles = 3;
inline constexpr int kGroup = 32;

constexpr bool is_float(WeightFormat f) {
  return f == WeightFormat::kF32 || f == WeightFormat::kBf16;
}
constexpr bool is_int4(WeightFormat f) {
  return f == WeightFormat::kInt4 || f == WeightFormat::kInt4Wide;
}
constexpr int64_t step_width(WeightFormat f) {  // k per step
  return f == WeightFormat::kF32        ? 1
         : f == WeightFormat::kBf16     ? 2
         : f == WeightFormat::kInt4Wide ? 4 * kGroup
                                        : kGroup;
}
constexpr int64_t n_blocks(WeightFormat f) { return step_width(f) / kGroup; }     // ints, a step
constexpr int64_t block_bytes(WeightFormat f) { return is_int4(f) ? 256 : 512; }  // of 32 k
constexpr int64_t step_bytes(WeightFormat f) {                                    // of one tile
  return is_float(f) ? 64 : n_blocks(f) * block_bytes(f) + (is_int4(f) ? 64 : 32);
}
constexpr int64_t row_step_bytes(WeightFormat f) {  // of one activation row
  return is_float(f) ? 4 : step_width(f) + 8;
}

struct GemmArgs {
  const std::byte* weights;  // first tile
  int64_t tile_bytes;        // from tile to tile
  const std::byte* rows;     // one packed chunk
  int64_t n_steps;
  float* out;  // row m of tile r: out + m * out_row + 16 r
  int64_t out_row;
  bool add;  // to what stands there
};
using GemmKernel = void (*)(const GemmArgs&);

// What keys and values are held in. kInt8: a row of one token and KV head is d = q * scale, q in
// -127..127, scale = max |d| / 127.
enum class KvType { kF32, kBf16, kInt8 };

// Queries of one KV head over keys that lie in groups of 16, the first of them at an absolute
// multiple of kKeyTile.
struct AttendArgs {
  const float* const* queries;  // [n_queries]: each D values, scaled
  const int32_t *from, *upto;   // [n_queries]: the query sees keys [from, upto) of these
  float* const* states;         // [n_queries]: acc[D], max, sum; continued
  int64_t n_queries;
  int64_t head_width;  // D, a multiple of 16 up to 256
  // [groups]: [D][16] floats, [D / 2][16] pairs of bf16, or [D / 4][16] quads of int8 and behind
  // them f32 scales [16]
  const void* const* keys;
  const void* const* values;  // [groups]: [16][D], with int8 f32 scales [16] behind
  int64_t n_keys;             // what stands beyond it in the last group is read and left out
  // [groups]: what is read next, to be asked for line by line while the keys are read. A group that
  // lies alone takes the memory longer to find than to deliver.
  const void *const *next_keys, *const *next_values;
};
inline constexpr int64_t kKeyTile = 64;  // keys whose softmax is folded at once
inline constexpr int64_t kKeyGroup = 16;

struct CpuKernels {
  const char* name;
  // [format][tiles - 1][M - 1]; null beyond the registers: the caller takes fewer tiles.
  GemmKernel gemm[kFormats][kMaxTiles][kMaxChunkRows];
  // [format] Up to few_rows rows are one chunk, and one tile at a time meets them: a single stream
  // of weights runs at the memory's speed. More rows stand in chunks of many_rows, and several
  // tiles share each load of activations.
  int few_rows[kFormats], many_rows[kFormats];
  void (*attend[3])(const AttendArgs&);  // [KvType]
  // x [n] -> out [n], out = x / rms(x) * weight. Sums in order of k in 16 lanes.
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t n, float* out);
  // out [n] = silu(gate) * up
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  // One row [n] into its place `m` of a packed chunk of M rows; k beyond n is zero.
  void (*pack_row)(WeightFormat format, const float* x, int64_t n, int64_t n_steps, int m, int M,
                   std::byte* chunk);
};

inline int chunk_rows(const CpuKernels& k, WeightFormat f, int64_t m) {
  int few = k.few_rows[static_cast<int>(f)];
  return m <= few ? few : k.many_rows[static_cast<int>(f)];
}

// The tables; null where the machine or the build lacks the instructions.
const CpuKernels* kernels_portable();
const CpuKernels* kernels_avx2();
const CpuKernels* kernels_avx512();
// By name ("portable", "avx2", "avx512"), or the best for "".
const CpuKernels* choose_kernels(const char* name);

}  // namespace pf
