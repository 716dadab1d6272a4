#include "backend/cuda/plane_moves.h"

#include "backend/cuda/limits.h"
#include "backend/cuda/pass.h"
#include "kernels/compact_kv.h"
#include "kernels/copy_blocks.h"

namespace pf {

template <class A>
PlaneMoves<A>::PlaneMoves(kernels::KvPlane<A> plane, cudaStream_t stream)
    : plane_(plane), stream_(stream), staging_(kMoveStaging) {}

template <class A>
void PlaneMoves<A>::copy_blocks(std::span<const BlockCopy> copies) {
  if (copies.empty()) return;
  staging_.begin();
  auto pairs = staging_.make<int32_t>(2 * static_cast<int64_t>(copies.size()));
  for (size_t i = 0; i < copies.size(); ++i) {
    staging_.host(pairs)[2 * i] = copies[i].from;
    staging_.host(pairs)[2 * i + 1] = copies[i].to;
  }
  staging_.send(stream_);
  kernels::copy_blocks<A>(plane_, {staging_.at(pairs), {static_cast<int64_t>(copies.size()), 2}},
                          stream_);
}

template <class A>
void PlaneMoves<A>::move_slots(std::span<const SlotMove> moves) {
  if (moves.empty()) return;
  const auto block_tokens = static_cast<int32_t>(plane_.block_tokens);
  first_.clear();
  staging_.begin();
  auto pairs = staging_.make<int32_t>(2 * static_cast<int64_t>(moves.size()));
  for (size_t i = 0; i < moves.size(); ++i) {
    const Segment s{.blocks = moves[i].blocks};
    if (i == 0 || moves[i].blocks.data() != moves[i - 1].blocks.data())
      first_.push_back(static_cast<int32_t>(i));
    staging_.host(pairs)[2 * i] = place_of(s, moves[i].from, block_tokens);
    staging_.host(pairs)[2 * i + 1] = place_of(s, moves[i].to, block_tokens);
  }
  first_.push_back(static_cast<int32_t>(moves.size()));
  auto first = staging_.put<int32_t>(first_);
  staging_.send(stream_);
  kernels::compact_kv<A>(plane_, {staging_.at(pairs), {static_cast<int64_t>(moves.size()), 2}},
                         staging_.view(first), stream_);
}

template class PlaneMoves<f16>;
template class PlaneMoves<bf16>;

}  // namespace pf
