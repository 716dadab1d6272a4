#pragma once
// Launchers of the sample kernels (clean.cu) and of the planted bugs (planted.cu).
#include <cuda_fp16.h>

#include <string>
#include <vector>

void block_sum(const float* x, float* y, int n, int threads);
void softmax_rows(const float* x, float* y, int rows, int columns);
void histogram(const unsigned char* x, int* bins, int n);
// q, k, v, o: f16 [n, 64].
void flash_attention(const __half* q, const __half* k, const __half* v, __half* o, int n);
// w: int4 pairs [rows, k / 8] u32, value - 8; x: f16 [k]; y: f32 [rows].
void int4_gemv(const unsigned* w, const __half* x, float* y, int rows, int k);
void axpy(float a, const float* x, float* y, int n, cudaStream_t stream);
void hello(int n);
const void* flash_function();  // the kernel, for attributes

// A fault and the check that is meant for it.
struct Planted {
  const char* name;
  const char* kind;  // as kind_name says
  void (*run)();
  bool has_line = true;           // false: the launch itself is refused
  const char* or_kind = nullptr;  // where the order of the warps decides which of two it is
};
std::vector<Planted> planted_memory();  // planted.cu
std::vector<Planted> planted_order();   // planted_order.cu
