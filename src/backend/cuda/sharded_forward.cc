#include "backend/cuda/sharded_forward.h"

#include "backend/cuda/limits.h"

namespace pf {
namespace {

// Only rank 0 keeps hidden states: a head over them is there.
CudaOptions options_of_rank(int device, const CudaOptions& options) {
  CudaOptions o = options;
  if (device == 0) return o;
  o.keep_hidden = false;
  o.tap_layers.clear();
  return o;
}

}  // namespace

template <class A>
CudaRank<A>::CudaRank(int d, CudaModel<A> m, const CudaOptions& o)
    : device(d),
      model(std::move(m)),
      forward(model, options_of_rank(d, o), nullptr, stream.get()),
      moves(forward.plane(), stream.get()),
      partial(n_max_rows(o) * model.E),
      gathered(gathered_floats(model.E, model.head_rows, o)),
      rows(kRankStaging) {
  forward.sum_into(partial.data());
}

template <class A>
ShardedForward<A>::ShardedForward(std::vector<CudaModel<A>> by_rank, int64_t head_rows,
                                  const CudaOptions& o)
    : V_(head_rows), chunk_rows_(o.head_chunk_rows), gather_(o.gather), logits_(chunk_rows_ * V_) {
  for (int d = 0; d < o.n_devices; ++d) {
    cuda_check(cudaSetDevice(d));
    ranks_.push_back(
        std::make_unique<CudaRank<A>>(d, std::move(by_rank[static_cast<size_t>(d)]), o));
    sides_.push_back({nullptr, ranks_.back()->gathered.data(), ranks_.back()->stream.get()});
  }
  cuda_check(cudaSetDevice(0));
}

template <class A>
int64_t ShardedForward<A>::scratch_bytes() const {
  const CudaRank<A>& rank = *ranks_[0];
  return rank.forward.scratch_bytes() +
         static_cast<int64_t>(rank.moves.bytes() + rank.partial.bytes() + rank.gathered.bytes() +
                              rank.rows.bytes() + logits_.bytes());
}

// Attention is planned once, for all: their shapes are equal.
template <class A>
void ShardedForward<A>::run(const Batch& batch) {
  const int64_t n = batch.n_rows();
  CudaForward<A>& planner = first().forward;
  check(n <= planner.max_rows(), "more rows than the backend was made for");
  if (n == 0) return;
  each([&](CudaRank<A>& rank) {
    if (&rank == &first())
      planner.prepare(batch, n, static_cast<int64_t>(batch.logit_rows.size()));
    else
      rank.forward.prepare_as(planner);
    sides_[static_cast<size_t>(rank.device)].from = rank.partial.data();
  });
  launch(Part::kBegin);
  for (int64_t layer = 0; layer < first().model.L; ++layer) {
    launch(Part::kAttention, layer);
    add_shares(n);
    launch(Part::kFfn, layer);
    add_shares(n);
  }
  launch(Part::kEnd);
}

template <class A>
void ShardedForward<A>::add_shares(int64_t T) {
  gather(T * first().model.E);
  const auto n = static_cast<int64_t>(ranks_.size());
  each([=](CudaRank<A>& rank) { rank.forward.add_partials(rank.gathered.data(), n); });
}

template <class A>
View<float, 2> ShardedForward<A>::logits(std::span<const int32_t> rows) {
  each([&](CudaRank<A>& rank) {
    rank.rows.begin();
    auto sent = rank.rows.template put<int32_t>(rows);
    rank.rows.send(rank.stream.get());
    sides_[static_cast<size_t>(rank.device)].from = rank.forward.logits(rank.rows.view(sent)).data;
  });
  return join_logits(static_cast<int64_t>(rows.size()));
}

template <class A>
View<float, 2> ShardedForward<A>::logits(int32_t first_row, int32_t n) {
  each([&](CudaRank<A>& rank) {
    sides_[static_cast<size_t>(rank.device)].from = rank.forward.logits(first_row, n).data;
  });
  return join_logits(n);
}

// Stretches [n, rows of a rank] to rows [n, V].
template <class A>
View<float, 2> ShardedForward<A>::join_logits(int64_t n) {
  const CudaRank<A>& zero = first();
  const int64_t each_rank = zero.model.head_rows;
  gather(n * each_rank);
  const auto n_ranks = static_cast<int32_t>(ranks_.size());
  const auto pitch = static_cast<size_t>(V_) * sizeof(float),
             width = static_cast<size_t>(each_rank) * sizeof(float);
  for (int32_t r = 0; r < n_ranks; ++r)
    cuda_check(cudaMemcpy2DAsync(logits_.data() + first_head_row(V_, {r, n_ranks}), pitch,
                                 zero.gathered.data() + r * n * each_rank, width, width,
                                 static_cast<size_t>(n), cudaMemcpyDeviceToDevice,
                                 zero.stream.get()));
  return {logits_.data(), {n, V_}};
}

template struct CudaRank<f16>;
template struct CudaRank<bf16>;
template class ShardedForward<f16>;
template class ShardedForward<bf16>;

}  // namespace pf
