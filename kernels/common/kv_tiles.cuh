#pragma once

// Tiles of keys and values in shared memory: rows of D elements in pieces of 16 bytes, piece p of
// row r at p ^ r % 8, so that neither the pieces of a row nor one piece of eight rows meet in a
// bank. A KV plane of T is copied into two stages and read from there. One of int8 arrives raw in
// two stages; unpack() makes T of it, once for all warps, in the one place that they read.

#include "kernels/attention_plan.h"
#include "kernels/common/async_copy.cuh"
#include "kernels/common/matrix.cuh"

namespace pf::kernels {

// Where piece `piece` of row `row` lies in a tile of kWidth elements to a row.
template <int kWidth>
__device__ int swizzled(int row, int piece) {
  return row * kWidth + ((piece ^ (row & 7)) << 3);
}

// One KV head of a plane: where its first key lies, and how far behind it the first value.
template <class S>
struct KvHead {
  const S* data;
  const float* scales;  // int8 only; a row's at the row's place
  int64_t to_values;    // elements
  int to_value_scales;
};

// 16 bytes at once: left to itself, the compiler takes one store in eight apart.
__device__ inline void store_shared_16(void* to, uint4 v) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(to)), "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w)
               : "memory");
}

// Signed bytes of `word` as T, times `scale`: exact up to the rounding to T and that of the
// product.
template <class T>
__device__ uint2 unpack_4(uint32_t word, float scale) {
  word ^= 0x80808080;  // byte + 128
  float v[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t bits = __byte_perm(word, 0x4b000000, 0x7540 + i);  // 2^23 + byte + 128
    v[i] = __fmul_rn(__fsub_rn(__uint_as_float(bits), 0x1p23f + 128), scale);
  }
  return make_uint2(pair_of<T>(v[0], v[1]), pair_of<T>(v[2], v[3]));
}

template <class T, int D, class S, int kThreads>
struct KvTiles {
  alignas(16) T keys_[2][kTileTokens * D];
  alignas(16) T values_[2][kTileTokens * D];

  // Room for 64 rows of queries until tile 1 is loaded.
  __device__ T* queries() { return values_[1]; }
  __device__ const T* keys(int stage) const { return keys_[stage]; }
  __device__ const T* values(int stage) const { return values_[stage]; }

  // The rows at `places` (-1: zeros) into a stage, on their way. What it returns is handed to
  // keep() once the next barrier of the block is not far.
  __device__ float load(int stage, const KvHead<S>& head, const int32_t* places) {
    constexpr int kPieces = D / 8;
#pragma unroll
    for (int j = 0; j < kTileTokens * kPieces / kThreads; ++j) {
      const int i = j * kThreads + threadIdx.x;
      const int row = i / kPieces, piece = i % kPieces, place = places[row];
      const T* from = head.data + int64_t(max(place, 0)) * D + piece * 8;
      copy_async_16(keys_[stage] + swizzled<D>(row, piece), from, place >= 0);
      copy_async_16(values_[stage] + swizzled<D>(row, piece), from + head.to_values, place >= 0);
    }
    return 0;
  }
  __device__ void keep(int, float) {}
  __device__ void unpack(int) {}
};

template <class T, int D, int kThreads>
struct KvTiles<T, D, int8_t, kThreads> {
  static_assert(kThreads == 2 * kTileTokens);
  alignas(16) T keys_[kTileTokens * D];
  alignas(16) T values_[kTileTokens * D];
  alignas(16) int8_t raw_[2][2][kTileTokens * D];  // [stage][K, V]
  float scales_[2][kThreads];                      // [stage][K, V of kTileTokens]

  __device__ T* queries() { return values_; }
  __device__ const T* keys(int) const { return keys_; }
  __device__ const T* values(int) const { return values_; }

  __device__ float load(int stage, const KvHead<int8_t>& head, const int32_t* places) {
    constexpr int kPieces = D / 16;
#pragma unroll
    for (int j = 0; j < kTileTokens * kPieces / kThreads; ++j) {
      const int i = j * kThreads + threadIdx.x, place = places[i / kPieces];
      const int8_t* from = head.data + int64_t(max(place, 0)) * D + i % kPieces * 16;
      copy_async_16(raw_[stage][0] + i * 16, from, place >= 0);
      copy_async_16(raw_[stage][1] + i * 16, from + head.to_values, place >= 0);
    }
    const int place = places[threadIdx.x % kTileTokens];
    if (place < 0) return 0;
    return head.scales[place + (threadIdx.x < kTileTokens ? 0 : head.to_value_scales)];
  }
  __device__ void keep(int stage, float scale) { scales_[stage][threadIdx.x] = scale; }

  // All threads of the block, between two barriers since the tile before was read; ends with one.
  __device__ void unpack(int stage) {
    constexpr int kPieces = D / 8;
#pragma unroll
    for (int j = 0; j < kTileTokens * kPieces / kThreads; ++j) {
      const int i = j * kThreads + threadIdx.x, row = i / kPieces, piece = i % kPieces;
#pragma unroll
      for (int which = 0; which < 2; ++which) {
        const uint2 raw = *reinterpret_cast<const uint2*>(raw_[stage][which] + i * 8);
        const float scale = scales_[stage][which * kTileTokens + row];
        const uint2 low = unpack_4<T>(raw.x, scale), high = unpack_4<T>(raw.y, scale);
        store_shared_16((which == 0 ? keys_ : values_) + swizzled<D>(row, piece),
                        make_uint4(low.x, low.y, high.x, high.y));
      }
    }
    __syncthreads();
  }
};

}  // namespace pf::kernels
