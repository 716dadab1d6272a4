// The peaks of one core, from registers only. Written as assembly: a compiler merges chains that it
// sees to be equal.
#include "bench/probes.h"

#if defined(__AVX512F__)

#include <immintrin.h>

#define PF_UNROLL _Pragma("GCC unroll 8")
#define PF_CHAINS(op)                                                                          \
  op "0\n" op "1\n" op "2\n" op "3\n" op "4\n" op "5\n" op "6\n" op "7\n" op "8\n" op "9\n" op \
     "10\n" op "11\n" op "12\n" op "13\n" op "14\n" op "15\n"
#define PF_CLOBBERS                                                                        \
  "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15", "xmm16"

namespace pf {
namespace {

void read_512(const std::byte* p, int64_t bytes) {
  __m512i sums[8];
  PF_UNROLL for (int i = 0; i < 8; ++i) sums[i] = _mm512_setzero_si512();
  for (int64_t at = 0; at < bytes; at += 512)
    PF_UNROLL for (int i = 0; i < 8; ++i) sums[i] =
        _mm512_add_epi64(sums[i], _mm512_load_si512(p + at + 64 * i));
  PF_UNROLL for (int i = 1; i < 8; ++i) sums[0] = _mm512_add_epi64(sums[0], sums[i]);
  asm volatile("" ::"v"(sums[0]));
}

void bf16_512(int64_t n) {
  asm volatile("vpxorq %%zmm16, %%zmm16, %%zmm16" ::: "xmm16");
  for (int64_t i = 0; i < n; ++i)
    asm volatile(PF_CHAINS("vdpbf16ps %%zmm16, %%zmm16, %%zmm")::: PF_CLOBBERS);
}

void int8_512(int64_t n) {
  asm volatile("vpxorq %%zmm16, %%zmm16, %%zmm16" ::: "xmm16");
  for (int64_t i = 0; i < n; ++i)
    asm volatile(PF_CHAINS("vpdpbusd %%zmm16, %%zmm16, %%zmm")::: PF_CLOBBERS);
}

}  // namespace

const ProbeKernels* probes_avx512() {
  static const ProbeKernels kernels = {read_512,
                                       __builtin_cpu_supports("avx512bf16") ? bf16_512 : nullptr,
                                       __builtin_cpu_supports("avx512vnni") ? int8_512 : nullptr};
  return __builtin_cpu_supports("avx512f") ? &kernels : nullptr;
}

}  // namespace pf

#else

namespace pf {
const ProbeKernels* probes_avx512() { return nullptr; }
}  // namespace pf

#endif
