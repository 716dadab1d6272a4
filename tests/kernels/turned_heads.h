#pragma once

#include "kernels/bits.h"
#include "kernels/device_array.h"
#include "kernels/rope_kv_write.h"

namespace pf {

// Rows of q, and a plane of keys and values, for heads to be turned into. The second row is a
// padded one, the others lie in a block each.
template <class A>
struct TurnedHeads {
  TurnedHeads(int64_t n_rows, int64_t n_heads, int64_t n_kv_heads, int64_t width, bool biased)
      : T(n_rows),
        H(n_heads),
        G(n_kv_heads),
        D(width),
        has_bias(biased),
        bias(random_values<float>(static_cast<size_t>((H + 2 * G) * D), 7)),
        angles(random_values<float>(static_cast<size_t>(T * D), 8, 0.7f)),
        q(random_values<A>(static_cast<size_t>(T * H * D), 9)),
        places(places_of(T)),
        plane{nullptr, 1, T + 1, G, 16, D},
        kv(random_values<A>(static_cast<size_t>(plane.size()), 10)) {
    plane.data = kv.data();
  }
  static std::vector<int32_t> places_of(int64_t T) {
    std::vector<int32_t> out;
    for (int64_t t = 0; t < T; ++t)
      out.push_back(t == 1 ? -1 : static_cast<int32_t>(t * 16 + 5 * t % 16));
    return out;
  }
  kernels::RopeTarget<A> target() const {
    return kernels::rope_target<A>({q.data(), {T, H, D}}, plane, has_bias ? bias.data() : nullptr,
                                   View<const float, 3>{angles.data(), {T, 2, D / 2}},
                                   View<const int32_t, 1>{places.data(), {T}});
  }

  const int64_t T, H, G, D;
  const bool has_bias;
  DeviceArray<float> bias, angles;
  DeviceArray<A> q;
  DeviceArray<int32_t> places;
  kernels::KvPlane<A> plane;
  DeviceArray<A> kv;
};

}  // namespace pf
