#pragma once

#include "backend/cpu/cpu_model.h"

namespace pf {

struct RopeAngles {
  const float *cosine, *sine;  // f32 [T, D / 2]
};

// Bias, rotary position, K and V into their slots; queries scaled by 1 / sqrt(D). Rows [begin, end)
// of the batch, in place: qkv f32 [T, (H + 2 G) D].
void rotate_and_store(const CpuModel& model, const Batch& batch, int64_t layer, Range rows,
                      RopeAngles angles, float* qkv, KvPlane* plane);

}  // namespace pf
