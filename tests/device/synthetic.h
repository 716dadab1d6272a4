#pragma once

#include "backend/cuda/cuda_model.h"
#include "model/model.h"

namespace pf {

// A matrix [N, K] of noise whose products with rows of unit size have unit size.
template <class A>
CudaMatrix<A> noise_matrix(int64_t N, int64_t K, bool int4, uint64_t seed);

// The model of these shapes (load_model with kShapes) with noise for weights, made on the device:
// what takes time does not depend on what the weights say.
template <class A>
CudaModel<A> noise_model(const Model& shapes, bool int4, uint64_t seed);

}  // namespace pf
