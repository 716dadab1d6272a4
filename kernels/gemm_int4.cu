// A unit's stage is 1 KB of numbers and the scales of its groups. A lane reads 16 bytes per 32 k,
// its 32 numbers for two k16 steps of both A tiles, in the order in which they are unpacked
// (pack_int4.h): a mask puts the bits of q into the mantissa of a power of two, a subtraction takes
// the power away, both on two numbers at once and exact. The tensor cores then sum whole numbers
// times x over 32 k from 0, and one fma per sum brings in the scale. Minimums cost one more mma per
// 8 rows and k16, with ones for weights: the sum of x. Tiles, pipeline and order of summation:
// gemm_core.cuh.
#include <type_traits>

#include "kernels/common/gemm_launch.cuh"
#include "kernels/common/masked_or.cuh"
#include "kernels/gemm_int4.h"

namespace pf::kernels {
namespace {

// q - kOffset of the eight numbers of a word as mma's A fragment: number r of the word is the low
// half of register r, number r + 4 the high half.
template <int kOffset>  // 0 or 8
__device__ void unpack(uint32_t (&a)[4], uint32_t word, f16) {
  const auto pair = [](uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); };
  // Bits, since conversions of constants would stay in the loop: 1024 + kOffset, 1 / 16 and
  // -(64 + kOffset), each twice.
  const __half2 base = pair(kOffset == 8 ? 0x64086408u : 0x64006400u),
                sixteenth = pair(0x2c002c00u),
                high_base = pair(kOffset == 8 ? 0xd480d480u : 0xd400d400u);
  const uint32_t words[2] = {word, word >> 8};
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    // 1024 + q in the low four bits of the mantissa; 1024 + 16 q one digit further up.
    const __half2 low = __hsub2(pair(masked_or<0x000f000fu, 0x64006400u>(words[i])), base);
    const __half2 high =
        __hfma2(pair(masked_or<0x00f000f0u, 0x64006400u>(words[i])), sixteenth, high_base);
    a[2 * i] = *reinterpret_cast<const uint32_t*>(&low);
    a[2 * i + 1] = *reinterpret_cast<const uint32_t*>(&high);
  }
}
template <int kOffset>
__device__ void unpack(uint32_t (&a)[4], uint32_t word, bf16) {
  const auto pair = [](uint32_t bits) { return *reinterpret_cast<const __nv_bfloat162*>(&bits); };
  const __nv_bfloat162 one = pair(0x3f803f80u),  // and -(128 + kOffset)
      base = pair(kOffset == 8 ? 0xc308c308u : 0xc300c300u);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const __nv_bfloat162 v =  // 128 + q in the mantissa
        __hfma2(pair(masked_or<0x000f000fu, 0x43004300u>(word >> 4 * i)), one, base);
    a[i] = *reinterpret_cast<const uint32_t*>(&v);
  }
}
template <class A>
constexpr uint32_t kOnes = std::is_same_v<A, f16> ? 0x3c003c00u : 0x3f803f80u;

// The four features of this lane: tile m, row g + 8 h is number 2 m + h.
__device__ Pack<float, 4> scales_of(const unsigned char* group, int lane) {
  const auto in = load_pack<f16, 4>(reinterpret_cast<const f16*>(group) + lane / 4 * 4);
  return {widen(in.v[0]), widen(in.v[1]), widen(in.v[2]), widen(in.v[3])};
}

template <class A, bool kHasMin>
struct Int4Weights {
  using Activation = A;
  // A quarter of the bytes of 16-bit weights and more work per byte: twice the warps.
  static constexpr int kSlices = 8;
  static constexpr int kNumbers = kUnit * kStep / 2, kGroup = kHasMin ? 128 : 64;  // bytes
  static constexpr int kUnitBytes = kNumbers + 2 * kGroup;

  const unsigned char* numbers;  // [unit][step][kNumbers]
  const unsigned char* scales;   // [unit][group][kGroup]
  int n_units, n_steps, n_groups;
  int steps_per_group;  // 2 for groups of 128; 0 for groups of 32, of which a step has two

  template <int n_units_here, int n_threads>
  __device__ void load(unsigned char* to, int unit, int step, int thread) const {
    constexpr int kChunks = kNumbers / 16, kScaleChunks = 2 * kGroup / 16;
#pragma unroll
    for (int i = 0; i < n_units_here * kChunks; i += n_threads) {
      const int at = i + thread, u = at / kChunks, chunk = at % kChunks;
      if (n_units_here * kChunks % n_threads != 0 && at >= n_units_here * kChunks) break;
      const bool valid = unit + u < n_units;
      const int64_t from = valid ? (int64_t(unit + u) * n_steps + step) * kNumbers + chunk * 16 : 0;
      copy_async_16(to + u * kUnitBytes + chunk * 16, numbers + from, valid);
    }
    const int u = thread / kScaleChunks, chunk = thread % kScaleChunks;
    static_assert(n_units_here * kScaleChunks <= n_threads);
    const int group = steps_per_group > 0 ? step / steps_per_group : 2 * step;
    const int n_chunks = steps_per_group > 0 ? kScaleChunks / 2 : kScaleChunks;
    if (u < n_units_here && chunk < n_chunks) {
      const bool valid = unit + u < n_units;
      const int64_t from = valid ? (int64_t(unit + u) * n_groups + group) * kGroup + chunk * 16 : 0;
      copy_async_16(to + u * kUnitBytes + kNumbers + chunk * 16, scales + from, valid);
    }
  }

  template <int kN>
  __device__ void multiply(float (&sum)[2][kN][4], const unsigned char* unit,
                           const unsigned char* rows, int lane) const {
#pragma unroll(kN == 8 ? 1 : 2)  // with 128 sums, unrolling would spill
    for (int half = 0; half < 2; ++half) {
      const auto words = load_pack<uint32_t, 4>(
          reinterpret_cast<const uint32_t*>(unit + half * kNumbers / 2) + lane * 4);
      uint32_t a[2][2][4];  // [k16][tile]
#pragma unroll
      for (int i = 0; i < 4; ++i) unpack<kHasMin ? 0 : 8>(a[i / 2][i % 2], words.v[i], A{});
      const unsigned char* group = unit + kNumbers + (steps_per_group > 0 ? 0 : half * kGroup);
      const Pack<float, 4> d = scales_of(group, lane);
      Pack<float, 4> m{};
      if constexpr (kHasMin) m = scales_of(group + kGroup / 2, lane);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        uint32_t b[4];
        row_fragment(b, rows + j * 8 * 128, half, lane);
        float of_x[4] = {};  // the sum of x of rows 2 c and 2 c + 1, twice
        if constexpr (kHasMin) {
          const uint32_t ones[4] = {kOnes<A>, kOnes<A>, kOnes<A>, kOnes<A>};
          multiply_add<A>(of_x, ones, b[0], b[1]);
          multiply_add<A>(of_x, ones, b[2], b[3]);
        }
        for (int tile = 0; tile < 2; ++tile) {
          float part[4] = {};
          multiply_add<A>(part, a[0][tile], b[0], b[1]);
          multiply_add<A>(part, a[1][tile], b[2], b[3]);
          for (int i = 0; i < 4; ++i) {
            float& s = sum[tile][j][i];
            s = __fmaf_rn(d.v[2 * tile + i / 2], part[i], s);
            if constexpr (kHasMin) s = __fmaf_rn(m.v[2 * tile + i / 2], of_x[i], s);
          }
        }
      }
    }
  }
};

template <bool kHasMin, class A>
void run(const GemmOutput<A>& y, View<const A, 2> x, const Int4Matrix& w, GemmTiling tiling,
         cudaStream_t stream) {
  const auto* numbers = reinterpret_cast<const unsigned char*>(w.data);
  const Int4Weights<A, kHasMin> weights{numbers,
                                        numbers + numbers_bytes(w.shape),
                                        static_cast<int>(n_units(w.shape)),
                                        static_cast<int>(n_steps(w.shape)),
                                        static_cast<int>(n_groups(w.shape)),
                                        w.shape.group == 128 ? 2 : 0};
  run_gemm(weights, w.shape.N, y, x, tiling, stream);
}

}  // namespace

template <class A>
void gemm_int4(const GemmOutput<A>& y, View<const A, 2> x, const Int4Matrix& w, cudaStream_t stream,
               GemmTiling tiling) {
  check(w.shape.K == x.shape[1], "gemm_int4: x and w differ in K");
  check(w.shape.group == 32 || w.shape.group == 128, "gemm_int4: groups of 32 or 128 only");
  check(w.shape.K % w.shape.group == 0, "gemm_int4: K must be a multiple of the group");
  check_aligned({w.data});
  w.shape.has_min ? run<true>(y, x, w, tiling, stream) : run<false>(y, x, w, tiling, stream);
}

template void gemm_int4(const GemmOutput<f16>&, View<const f16, 2>, const Int4Matrix&, cudaStream_t,
                        GemmTiling);
template void gemm_int4(const GemmOutput<bf16>&, View<const bf16, 2>, const Int4Matrix&,
                        cudaStream_t, GemmTiling);

}  // namespace pf::kernels
