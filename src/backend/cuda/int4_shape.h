#pragma once

#include <span>

#include "kernels/pack_int4.h"
#include "model/int4_rows.h"

namespace pf {

// The rows of these tensors, of one width, as one matrix of gemm_int4. Minimums everywhere as soon
// as one tensor has some. int4_group: ModelConfig's.
inline kernels::Int4Shape int4_shape_of(std::span<const Tensor* const> tensors, int int4_group) {
  kernels::Int4Shape shape;
  shape.K = tensors[0]->cols();
  shape.group = int4_group_of(int4_group, tensors);
  for (const Tensor* t : tensors) {
    shape.N += t->rows();
    shape.has_min |= t->type != TensorType::kQ4_0;
  }
  return shape;
}

}  // namespace pf
