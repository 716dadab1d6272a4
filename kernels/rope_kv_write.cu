// A thread takes four neighbours of one head of one row, which turn with each other, so that
// nothing is shared and a warp's accesses fill whole sectors. int8 alone needs to know a whole
// head: its threads stand side by side in a warp and find its largest element together.
#include "base/cuda.h"
#include "kernels/common/check_aligned.h"
#include "kernels/common/rope.cuh"
#include "kernels/common/rope_angle.cuh"
#include "kernels/rope_kv_write.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWidth = 4;  // numbers of a thread

// grid (T D / 2 / kThreads), block (kThreads)
__global__ void __launch_bounds__(kThreads) rope_angles_kernel(float* angles,  // [T, 2, D / 2]
                                                               const int32_t* positions,  // [T]
                                                               const float* inverse,      // [D / 2]
                                                               float factor, int half, int n) {
  const int i = blockIdx.x * kThreads + threadIdx.x;
  if (i >= n) return;
  const float2 angle = rope_angle(positions[i / half], inverse[i % half], factor);
  float* at = angles + int64_t(i / half) * 2 * half + i % half;
  at[0] = angle.x;
  at[half] = angle.y;
}

// Inverse and scale of a row of int8, from the largest |element| of its head as the bits of a
// float (their order is that of the numbers, and NaN is above all). All threads of the warp.
__device__ float2 int8_law(const Pack<float, kWidth>& v, int per_head) {
  uint32_t most = 0;
  for (int i = 0; i < kWidth; ++i) most = max(most, __float_as_uint(v.v[i]) & 0x7fffffff);
  for (int by = per_head / 2; by > 0; by /= 2) most = max(most, __shfl_xor_sync(~0u, most, by));
  const float largest = __uint_as_float(most);
  if (most > 0x7f7fffff) return make_float2(0, NAN);
  if (largest < 0x1p-100f) return make_float2(0, 0);  // below it 127 / largest would overflow
  return make_float2(__fdiv_rn(127, largest), __fdiv_rn(largest, 127));
}

// An int8: adding 1.5 * 2^23 rounds to the nearest whole number, which stands in the lowest bits.
__device__ signed char int8_of(float x, float inverse) {
  return static_cast<signed char>(__float_as_uint(__fadd_rn(__fmul_rn(x, inverse), 0x1.8p23f)) &
                                  0xff);
}

// grid (T, (H + 2 G) D / 4 / kThreads), block (kThreads)
template <class A, bool kInt8>
__global__ void __launch_bounds__(kThreads)
    rope_kv_write_kernel(const __grid_constant__ RopeTarget<A> p,
                         const float* qkv) {  // [T, H + 2 G, D]
  const int per_head = p.D / kWidth, t = blockIdx.x, n_heads = p.H + 2 * p.G;
  const int unit = blockIdx.y * kThreads + threadIdx.x;
  const int place = p.places[t];
  const bool real = unit / per_head < n_heads;
  if (place < 0 || (!kInt8 && !real)) return;
  const int head = kInt8 ? min(unit / per_head, n_heads - 1) : unit / per_head;
  const int n = head * p.D + unit % per_head * kWidth;

  const auto v = turned(p, t, n, load_pack<float, kWidth>(qkv + (int64_t(t) * n_heads) * p.D + n));
  if constexpr (kInt8) {
    const float2 law = int8_law(v, per_head);
    if (head >= p.H) {
      if (!real) return;
      const int64_t row = kv_row(p, place, head - p.H);
      const int i = n % p.D / 2;
      auto* to = static_cast<signed char*>(p.kv) + row * p.D + i;
      store_pack(to, Pack<signed char, 2>{int8_of(v.v[0], law.x), int8_of(v.v[1], law.x)});
      store_pack(to + p.D / 2,
                 Pack<signed char, 2>{int8_of(v.v[2], law.x), int8_of(v.v[3], law.x)});
      if (i == 0) p.scales[row] = law.y;
    } else {
      store_pairs(p.q + (int64_t(t) * p.H + head) * p.D, n, p.D, v);
    }
  } else {
    store_turned(p, t, place, n, v);
  }
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

template <class A>
RopeTarget<A> rope_target(View<A, 3> q, KvPlane<A> plane, const float* bias,
                          View<const float, 3> angles, View<const int32_t, 1> places) {
  const auto [T, H, D] = q.shape;
  const int64_t G = plane.n_kv_heads, heads = H + 2 * G;
  check(plane.head_width == D, "rope_kv_write: the shapes of q and the KV plane differ");
  check(angles.shape[0] == T && angles.shape[1] == 2 && angles.shape[2] == D / 2 &&
            places.shape[0] == T,
        "rope_kv_write: an angle and a place are needed for every row");
  check(D % 8 == 0 && plane.n_layers == 1 && heads * D < 1 << 20 && T < 1ll << 31 &&
            plane.n_blocks * plane.block_tokens < 1ll << 31,
        "rope_kv_write: this shape is not supported");
  check(plane.int8 == nullptr || D == 64 || D == 128,
        "rope_kv_write: int8 needs heads of 64 or 128");
  check_aligned({q.data, plane.bytes(), plane.scales, bias, angles.data});
  return {T,           q.data,      plane.bytes(),       plane.scales, bias,
          angles.data, places.data, static_cast<int>(H), int(G),       int(plane.block_tokens),
          int(D)};
}

template <class A>
void rope_kv_write(const RopeTarget<A>& p, View<const float, 2> qkv, cudaStream_t stream) {
  check(qkv.shape[0] == p.T && qkv.shape[1] == p.width(),
        "rope_kv_write: the shapes of q, qkv and the KV plane differ");
  check_aligned({qkv.data});
  if (p.T == 0) return;

  const auto n_packs = static_cast<unsigned>(p.width() / kWidth);
  dim3 grid(static_cast<unsigned>(p.T), (n_packs + kThreads - 1) / kThreads);
  auto kernel =
      p.scales != nullptr ? rope_kv_write_kernel<A, true> : rope_kv_write_kernel<A, false>;
  kernel<<<grid, kThreads, 0, stream>>>(p, qkv.data);
  cuda_check(cudaGetLastError());
}

template RopeTarget<f16> rope_target(View<f16, 3>, KvPlane<f16>, const float*, View<const float, 3>,
                                     View<const int32_t, 1>);
template RopeTarget<bf16> rope_target(View<bf16, 3>, KvPlane<bf16>, const float*,
                                      View<const float, 3>, View<const int32_t, 1>);
template void rope_kv_write(const RopeTarget<f16>&, View<const float, 2>, cudaStream_t);
template void rope_kv_write(const RopeTarget<bf16>&, View<const float, 2>, cudaStream_t);

}  // namespace pf::kernels
