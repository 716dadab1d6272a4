#pragma once

// The storage types of base/dtype.h in device code: widened by the hardware's conversion, rounded
// to nearest even on the way back.

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "base/dtype.h"

namespace pf::kernels {

__device__ inline float widen(float v) { return v; }
__device__ inline float widen(f16 v) { return __half2float(__ushort_as_half(v.bits)); }
__device__ inline float widen(bf16 v) { return __bfloat162float(__ushort_as_bfloat16(v.bits)); }

template <class T>
__device__ T narrow(float v);
template <>
__device__ inline float narrow<float>(float v) {
  return v;
}
template <>
__device__ inline f16 narrow<f16>(float v) {
  return {__half_as_ushort(__float2half_rn(v))};
}
template <>
__device__ inline bf16 narrow<bf16>(float v) {
  return {__bfloat16_as_ushort(__float2bfloat16_rn(v))};
}

// n neighbours, moved by one instruction where they fill 4, 8 or 16 bytes.
template <class T, int n>
struct alignas(sizeof(T) * n) Pack {
  T v[n];
};

template <class T, int n>
__device__ Pack<T, n> load_pack(const T* p) {
  return *reinterpret_cast<const Pack<T, n>*>(p);
}
template <class T, int n>
__device__ void store_pack(T* p, Pack<T, n> pack) {
  *reinterpret_cast<Pack<T, n>*>(p) = pack;
}

}  // namespace pf::kernels
