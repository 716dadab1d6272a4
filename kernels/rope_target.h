#pragma once

#include <cstdint>

namespace pf::kernels {

// Where the heads of a step's rows go, turned: made by rope_target (rope_kv_write.h).
template <class A>
struct RopeTarget {
  int64_t T = 0;
  A* q = nullptr;                   // [T, H, D]
  void* kv = nullptr;               // one layer of a KvPlane, A or int8 [N, 2, G, P, D]
  float* scales = nullptr;          // of int8 [N, 2, G, P]; null: A
  const float* bias = nullptr;      // [(H + 2 G) D] or null
  const float* angles = nullptr;    // [T, 2, D / 2]
  const int32_t* places = nullptr;  // [T]
  int H = 0, G = 0, P = 0, D = 0;

  int64_t width() const { return int64_t(H + 2 * G) * D; }
  RopeTarget rows(int64_t first, int64_t n) const {
    RopeTarget r = *this;
    r.T = n;
    r.q += first * H * D;
    r.angles += first * D;
    r.places += first;
    return r;
  }
};

}  // namespace pf::kernels
