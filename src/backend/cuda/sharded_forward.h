#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/cuda/collective.h"
#include "backend/cuda/forward.h"
#include "backend/cuda/plane_moves.h"
#include "backend/cuda/stream.h"

namespace pf {

// One device and its part of the model (shard.h). Made and used with that device as the present
// one.
template <class A>
struct CudaRank {
  CudaRank(int device, CudaModel<A> model, const CudaOptions& options);

  const int device;  // its number is its rank
  CudaStream stream;
  CudaModel<A> model;
  CudaForward<A> forward;
  PlaneMoves<A> moves;
  DeviceBuffer<float> partial;   // [T, E]: its shares of the sums
  DeviceBuffer<float> gathered;  // all ranks': shares [n, T, E], or logits [n, chunk, head rows]
  Staging rows;                  // logit rows whose logits are asked for
};

// The forward pass of a model that several devices share. All hold the same residual stream, to the
// bit: each multiplies with its part, and twice in a layer, behind the o and the down projection,
// they exchange their shares of the sum and add them in rank order:
//
//   all ranks   embedding -> residual
//   each layer  norm -> its heads' q, k, v -> attention over its KV pool -> its share of o
//               gather, add: residual
//               norm -> its features of gate and up -> its share of down
//               gather, add: residual
//   all ranks   norm of the logit rows -> logits of its stretch of the vocabulary
//   rank 0      gather: whole rows of logits
//
// The order of a sum is fixed by the shapes and the number of ranks, so a row has the same bits in
// every company, as on one device; but another number of ranks rounds otherwise, and its text may
// differ where two tokens are as good as equal. The KV pools have the same block tables; a block is
// there on all ranks or on none.
//
// One thread issues for all: half a layer to one rank after the other, then the exchange. So no
// rank waits on its device for what another one has not been given yet, however short its queue of
// launches is. A graph would be launched device by device and could wait like that (NCCL's manual
// advises against graphs where one thread has several devices): there are none here.
template <class A>
class ShardedForward {
 public:
  // The present device is that of rank 0, and so it is when a call returns.
  ShardedForward(std::vector<CudaModel<A>> by_rank, int64_t head_rows, const CudaOptions& options);
  ShardedForward(const ShardedForward&) = delete;
  ShardedForward& operator=(const ShardedForward&) = delete;

  void run(const Batch& batch);
  // Logits float [n, V] on rank 0, until the next call: of these logit rows, or of [first, first +
  // n). Requires: n <= head_chunk_rows.
  View<float, 2> logits(std::span<const int32_t> rows);
  View<float, 2> logits(int32_t first, int32_t n);

  // Calls f with every rank, on its device.
  template <class F>
  void each(F&& f) {
    for (const auto& rank : ranks_) {
      cuda_check(cudaSetDevice(rank->device));
      f(*rank);
    }
    cuda_check(cudaSetDevice(ranks_[0]->device));
  }
  CudaRank<A>& first() { return *ranks_[0]; }
  const CudaRank<A>& first() const { return *ranks_[0]; }
  int64_t scratch_bytes() const;  // of rank 0, which has the most

 private:
  using Part = typename CudaForward<A>::PassPart;

  void launch(Part part, int64_t layer = 0) {
    each([=](CudaRank<A>& rank) { rank.forward.launch_part(part, layer); });
  }
  void add_shares(int64_t T);
  // `n` floats of each rank, at sides_[rank].from, to `gathered` of all.
  void gather(int64_t n) { gather_(sides_, static_cast<size_t>(n) * sizeof(float)); }
  View<float, 2> join_logits(int64_t n);

  const int64_t V_;
  const int32_t chunk_rows_;
  const AllGather gather_;
  std::vector<std::unique_ptr<CudaRank<A>>> ranks_;
  std::vector<GatherSide> sides_;  // by rank
  DeviceBuffer<float> logits_;     // [chunk, V] on rank 0
};

}  // namespace pf
