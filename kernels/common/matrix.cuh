#pragma once

// Matrix instructions of sm_80 for a whole warp. Fragment layouts: PTX ISA, "Matrix Fragments for
// mma.m16n8k16 with floating point type". Of lane l: row l / 4 (and + 8), columns 2 (l % 4), + 1.

#include "kernels/common/half.cuh"

namespace pf::kernels {

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// One store or load of 16 bytes where the compiler might make four.
__device__ inline void store_shared_pack(float* to, const Pack<float, 4>& v) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(to)), "f"(v.v[0]), "f"(v.v[1]), "f"(v.v[2]), "f"(v.v[3])
               : "memory");
}

__device__ inline Pack<float, 4> load_shared_pack(const float* from) {
  Pack<float, 4> v;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.v[0]), "=f"(v.v[1]), "=f"(v.v[2]), "=f"(v.v[3])
               : "r"(shared_address(from))
               : "memory");
  return v;
}

// Four 8 x 8 matrices of 16-bit elements; `row` of lane l is row l % 8 of matrix l / 8, 16 bytes.
__device__ inline void load_matrices(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}
// The same, each matrix transposed.
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared_address(row))
               : "memory");
}

// d[16, 8] += a[16, 16] b[16, 8], a and b in T, d in float. b0: rows 0..7 of b, b1: rows 8..15.
template <class T>
__device__ void multiply_add(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<f16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<bf16>(float (&d)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
      "{%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to a pair of T, `first` in the lower half.
template <class T>
__device__ uint32_t pair_of(float first, float second);
template <>
__device__ inline uint32_t pair_of<f16>(float first, float second) {
  __half2 h = __floats2half2_rn(first, second);
  return *reinterpret_cast<uint32_t*>(&h);
}
template <>
__device__ inline uint32_t pair_of<bf16>(float first, float second) {
  __nv_bfloat162 h = __floats2bfloat162_rn(first, second);
  return *reinterpret_cast<uint32_t*>(&h);
}

}  // namespace pf::kernels
