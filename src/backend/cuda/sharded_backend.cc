// A target that several devices share. Drafts stay whole on the first of them, as backends of their
// own: a draft step is so short that exchanging sums would cost more than the shares save, and what
// it proposes, right or wrong, changes no text.
#include "backend/cuda/cuda_model.h"
#include "backend/cuda/judge.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/sharded_forward.h"

namespace pf {
namespace {

std::string names_of(int32_t n_devices) {
  cudaDeviceProp first{};
  cuda_check(cudaGetDeviceProperties(&first, 0));
  return std::to_string(n_devices) + " x " + first.name;
}

template <class A>
class ShardedBackend final : public Backend {
 public:
  ShardedBackend(std::vector<CudaModel<A>> by_rank, int64_t head_rows, const CudaOptions& options)
      : options_(options),
        forward_(std::move(by_rank), head_rows, options_),
        judge_(
            head_rows, options_,
            [this](View<const int32_t, 1>, std::span<const int32_t> rows) {
              return forward_.logits(rows);
            },
            stream()) {
    const CudaRank<A>& zero = forward_.first();
    info_.device = names_of(options.n_devices);
    set_info(zero.model, options, head_rows, &info_);
    info_.kv_bytes = zero.forward.kv_bytes();
    info_.scratch_bytes = forward_.scratch_bytes() + judge_.scratch_bytes();
  }

  const BackendInfo& info() const override { return info_; }

  void forward(const Batch& batch) override {
    batch_ = batch;
    forward_.run(batch_);
  }
  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    judge_.accept(batch_, jobs, results);
  }
  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override {
    judge_.score(jobs, results);
  }
  void read_logits(int32_t first, int32_t n, View<float, 2> out) override {
    for (int32_t done = 0; done < n;) {
      const int32_t part = std::min(n - done, options_.head_chunk_rows);
      const View<float, 2> logits = forward_.logits(first + done, part);
      cuda_check(cudaMemcpyAsync(out[done].data, logits.data, logits.span().size_bytes(),
                                 cudaMemcpyDeviceToHost, stream()));
      cuda_check(cudaStreamSynchronize(stream()));
      done += part;
    }
  }

  void propose(std::span<const ProposeJob>, std::span<DraftTree>) override {
    die("a model on several devices does not draft");
  }
  void propose_early(int32_t, std::span<const ProposeJob>, std::span<DraftTree>) override {
    die("a model on several devices has no early exit");
  }

  HiddenStates hidden_states() const override {
    check(options_.keep_hidden, "the backend was not made to keep hidden states");
    return forward_.first().forward.states();
  }
  void keep_hidden(std::span<const HiddenKeep>) override {
    die("a model on several devices is no head");
  }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    forward_.each([&](CudaRank<A>& rank) { rank.moves.copy_blocks(copies); });
  }
  void move_slots(std::span<const SlotMove> moves) override {
    forward_.each([&](CudaRank<A>& rank) { rank.moves.move_slots(moves); });
  }

 private:
  cudaStream_t stream() const { return forward_.first().stream.get(); }

  const CudaOptions options_;
  ShardedForward<A> forward_;
  CudaJudge judge_;
  Batch batch_;  // of the last forward
  BackendInfo info_;
};

}  // namespace

template <class A>
std::unique_ptr<Backend> make_sharded_backend_of(std::vector<CudaModel<A>> by_rank,
                                                 int64_t head_rows, const CudaOptions& options) {
  return std::make_unique<ShardedBackend<A>>(std::move(by_rank), head_rows, options);
}
template std::unique_ptr<Backend> make_sharded_backend_of(std::vector<CudaModel<f16>>, int64_t,
                                                          const CudaOptions&);
template std::unique_ptr<Backend> make_sharded_backend_of(std::vector<CudaModel<bf16>>, int64_t,
                                                          const CudaOptions&);

}  // namespace pf
