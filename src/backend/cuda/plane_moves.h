#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cuda/staging.h"
#include "kernels/kv_plane.h"

namespace pf {

// Copies of blocks and moves of slots in one KV plane.
template <class A>
class PlaneMoves {
 public:
  PlaneMoves(kernels::KvPlane<A> plane, cudaStream_t stream);

  void copy_blocks(std::span<const BlockCopy> copies);
  void move_slots(std::span<const SlotMove> moves);
  size_t bytes() const { return staging_.bytes(); }

 private:
  const kernels::KvPlane<A> plane_;
  const cudaStream_t stream_;
  Staging staging_;
  std::vector<int32_t> first_;
};

}  // namespace pf
