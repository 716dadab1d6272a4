#include "backend/cpu/rotate.h"

#include <cmath>

namespace pf {

void rotate_and_store(const CpuModel& m, const Batch& batch, int64_t layer, Range rows,
                      RopeAngles angles, float* qkv, KvPlane* plane) {
  const CpuLayer& w = m.layers[static_cast<size_t>(layer)];
  int64_t D = m.D, half = D / 2;
  float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* x = qkv + r * m.qkv_width();
    if (!w.qkv_bias.empty())
      for (int64_t i = 0; i < m.qkv_width(); ++i) x[i] += w.qkv_bias[static_cast<size_t>(i)];
    const float *cosine = angles.cosine + r * half, *sine = angles.sine + r * half;
    for (int64_t h = 0; h < m.H + m.G; ++h) {
      float *a = x + h * D, *b = a + half, by = h < m.H ? scale : 1.0f;
      for (int64_t i = 0; i < half; ++i) {
        float u = a[i], v = b[i];
        a[i] = (u * cosine[i] - v * sine[i]) * by;
        b[i] = (v * cosine[i] + u * sine[i]) * by;
      }
    }
    size_t row = static_cast<size_t>(r);
    const Segment& s = batch.segments[static_cast<size_t>(batch.row_segment[row])];
    for (int64_t g = 0; g < m.G; ++g)
      plane->store(layer, s, batch.slots[row], g, x + (m.H + g) * D, x + (m.H + m.G + g) * D);
  }
}

}  // namespace pf
