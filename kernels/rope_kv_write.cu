// A thread takes four elements of one head of one row and the four that turn with them, so that
// nothing is shared and every access is a whole pack. int8 alone needs to know a whole head: its
// threads stand side by side in a warp and find its largest element together.
#include <numbers>

#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/half.cuh"
#include "kernels/rope_kv_write.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWidth = 4;

// grid (T D / 2 / kThreads), block (kThreads)
__global__ void __launch_bounds__(kThreads) rope_angles_kernel(float* angles,  // [T, 2, D / 2]
                                                               const int32_t* positions,  // [T]
                                                               const float* inverse,      // [D / 2]
                                                               float factor, int half, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  double sine, cosine;
  sincospi(double(positions[i / half]) * double(inverse[i % half]) * (1 / std::numbers::pi), &sine,
           &cosine);
  float* at = angles + int64_t(i / half) * 2 * half + i % half;
  at[0] = float(cosine) * factor;
  at[half] = float(sine) * factor;
}

template <class X, class A>
struct RopeParams {
  A* q;                   // [T, H, D]
  void* kv;               // A or int8 [N, 2, G, P, D]
  float* scales;          // [N, 2, G, P] of int8
  const X* qkv;           // [T, H + 2 G, D]
  const float* bias;      // [H + 2 G, D] or null
  const float* angles;    // [T, 2, D / 2]
  const int32_t* places;  // [T]
  int H, G, P, D;
};

// The pack of four at `at`, bias added.
template <class X>
__device__ Pack<float, kWidth> load_biased(const X* x, const float* bias, int64_t row, int at) {
  const auto in = load_pack<X, kWidth>(x + row + at);
  Pack<float, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.v[i] = widen(in.v[i]);
  if (bias != nullptr) {
    const auto b = load_pack<float, kWidth>(bias + at);
    for (int i = 0; i < kWidth; ++i) out.v[i] += b.v[i];
  }
  return out;
}

template <class A>
__device__ void store_narrow(A* to, const Pack<float, kWidth>& from) {
  Pack<A, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.v[i] = narrow<A>(from.v[i]);
  store_pack(to, out);
}

// Inverse and scale of a row of int8, from the largest |element| of its head as the bits of a
// float (their order is that of the numbers, and NaN is above all). All threads of the warp.
__device__ float2 int8_law(const Pack<float, kWidth>& a, const Pack<float, kWidth>& b,
                           int per_head) {
  uint32_t most = 0;
  for (int i = 0; i < kWidth; ++i) {
    most = max(most, __float_as_uint(a.v[i]) & 0x7fffffff);
    most = max(most, __float_as_uint(b.v[i]) & 0x7fffffff);
  }
  for (int by = per_head / 2; by > 0; by /= 2) most = max(most, __shfl_xor_sync(~0u, most, by));
  const float largest = __uint_as_float(most);
  if (most > 0x7f7fffff) return make_float2(0, NAN);
  if (largest < 0x1p-100f) return make_float2(0, 0);  // below it 127 / largest would overflow
  return make_float2(__fdiv_rn(127, largest), __fdiv_rn(largest, 127));
}

// Four int8: adding 1.5 * 2^23 rounds to the nearest whole number, which stands in the lowest bits.
__device__ uint32_t int8_word(const Pack<float, kWidth>& x, float inverse) {
  uint32_t word = 0;
  for (int i = 0; i < kWidth; ++i)
    word |= (__float_as_uint(__fadd_rn(__fmul_rn(x.v[i], inverse), 0x1.8p23f)) & 0xff) << 8 * i;
  return word;
}

// grid (T, (H + 2 G) D / 8 / kThreads), block (kThreads)
template <class X, class A, bool kInt8>
__global__ void __launch_bounds__(kThreads)
    rope_kv_write_kernel(const __grid_constant__ RopeParams<X, A> p) {
  const int half = p.D / 2, per_head = half / kWidth, t = blockIdx.x, n_heads = p.H + 2 * p.G;
  const int unit = blockIdx.y * kThreads + threadIdx.x;
  const int place = p.places[t];
  const bool real = unit / per_head < n_heads;
  if (place < 0 || (!kInt8 && !real)) return;
  const int head = kInt8 ? min(unit / per_head, n_heads - 1) : unit / per_head;

  // 1. both halves
  const int64_t row = int64_t(t) * (p.H + 2 * p.G) * p.D;
  const int i = unit % per_head * kWidth, at = head * p.D + i;
  auto a = load_biased(p.qkv, p.bias, row, at), b = load_biased(p.qkv, p.bias, row, at + half);

  // 2. turn q and k; contraction is left out so that a row has the CPU twin's bits
  if (head < p.H + p.G) {
    const float* angle = p.angles + int64_t(t) * p.D + i;
    const auto c = load_pack<float, kWidth>(angle), s = load_pack<float, kWidth>(angle + half);
    for (int j = 0; j < kWidth; ++j) {
      const float u = a.v[j], v = b.v[j];
      a.v[j] = __fsub_rn(__fmul_rn(u, c.v[j]), __fmul_rn(v, s.v[j]));
      b.v[j] = __fadd_rn(__fmul_rn(v, c.v[j]), __fmul_rn(u, s.v[j]));
    }
  }

  // 3. q to its row, k and v to their place
  A* to = p.q + (int64_t(t) * p.H + head) * p.D;
  const int64_t tile = int64_t(place / p.P) * 2 * p.G + (head - p.H);
  const int64_t kv_row = tile * p.P + place % p.P;
  if constexpr (kInt8) {
    const float2 law = int8_law(a, b, per_head);
    if (head >= p.H) {
      if (!real) return;
      uint32_t* words = reinterpret_cast<uint32_t*>(static_cast<int8_t*>(p.kv) + kv_row * p.D);
      words[i / 4] = int8_word(a, law.x);
      words[(i + half) / 4] = int8_word(b, law.x);
      if (i == 0) p.scales[kv_row] = law.y;
      return;
    }
  } else if (head >= p.H) {
    to = static_cast<A*>(p.kv) + kv_row * p.D;
  }
  store_narrow(to + i, a);
  store_narrow(to + i + half, b);
}

}  // namespace

void rope_angles(View<float, 3> angles, View<const int32_t, 1> positions,
                 View<const float, 1> inverse, float factor, cudaStream_t stream) {
  const auto [T, two, half] = angles.shape;
  check(positions.shape[0] == T && inverse.shape[0] == half && two == 2,
        "rope_angles: the shapes differ");
  check(half > 0 && T * half < 1ll << 31, "rope_angles: too many rows");
  if (T == 0) return;

  int n = static_cast<int>(T * half);
  rope_angles_kernel<<<(n + kThreads - 1) / kThreads, kThreads, 0, stream>>>(
      angles.data, positions.data, inverse.data, factor, static_cast<int>(half), n);
  cuda_check(cudaGetLastError());
}

template <class X, class A>
void rope_kv_write(View<A, 3> q, KvPlane<A> plane, View<const X, 2> qkv, const float* bias,
                   View<const float, 3> angles, View<const int32_t, 1> places,
                   cudaStream_t stream) {
  const auto [T, H, D] = q.shape;
  const int64_t G = plane.n_kv_heads, heads = H + 2 * G;
  check(qkv.shape[0] == T && qkv.shape[1] == heads * D && plane.head_width == D,
        "rope_kv_write: the shapes of q, qkv and the KV plane differ");
  check(angles.shape[0] == T && angles.shape[1] == 2 && angles.shape[2] == D / 2 &&
            places.shape[0] == T,
        "rope_kv_write: an angle and a place are needed for every row");
  check(D % 8 == 0 && plane.n_layers == 1 && heads * D < 1 << 20 && T < 1ll << 31 &&
            plane.n_blocks * plane.block_tokens < 1ll << 31,
        "rope_kv_write: this shape is not supported");
  const bool int8 = plane.int8 != nullptr;
  check(!int8 || D == 64 || D == 128, "rope_kv_write: int8 needs heads of 64 or 128");
  check_aligned({q.data, plane.bytes(), plane.scales, qkv.data, bias, angles.data});
  if (T == 0) return;

  RopeParams<X, A> p{q.data,      plane.bytes(), plane.scales, qkv.data, bias,
                     angles.data, places.data,   int(H),       int(G),   int(plane.block_tokens),
                     int(D)};
  dim3 grid(static_cast<unsigned>(T),
            static_cast<unsigned>((heads * D / (2 * kWidth) + kThreads - 1) / kThreads));
  auto kernel = int8 ? rope_kv_write_kernel<X, A, true> : rope_kv_write_kernel<X, A, false>;
  kernel<<<grid, kThreads, 0, stream>>>(p);
  cuda_check(cudaGetLastError());
}

template void rope_kv_write(View<f16, 3>, KvPlane<f16>, View<const float, 2>, const float*,
                            View<const float, 3>, View<const int32_t, 1>, cudaStream_t);
template void rope_kv_write(View<bf16, 3>, KvPlane<bf16>, View<const float, 2>, const float*,
                            View<const float, 3>, View<const int32_t, 1>, cudaStream_t);
template void rope_kv_write(View<f16, 3>, KvPlane<f16>, View<const f16, 2>, const float*,
                            View<const float, 3>, View<const int32_t, 1>, cudaStream_t);
template void rope_kv_write(View<bf16, 3>, KvPlane<bf16>, View<const bf16, 2>, const float*,
                            View<const float, 3>, View<const int32_t, 1>, cudaStream_t);

}  // namespace pf::kernels
