// All heads for all sequences that draft: per head a product and residual_silu for each block, the
// head's own rows, and the likeliest tokens of each state. Only these lists come back, in one copy.
#include "backend/cuda/cuda_heads.h"

#include <algorithm>

#include "backend/cuda/fetch_lists.h"
#include "backend/cuda/head_passes.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/staging.h"
#include "backend/head_drafts.h"
#include "backend/heads_backend.h"
#include "kernels/draft.h"
#include "kernels/gather_rows.h"
#include "kernels/residual_silu.h"

namespace pf {

using kernels::TokenValue;

namespace {

template <class A>
class CudaHeads final : public HeadsBackend {
 public:
  CudaHeads(CudaHeadStack<A> stack, const CudaOptions& o)
      : HeadsBackend(o.head_chunk_rows),
        stack_(std::move(stack)),
        target_(o.hidden_of),
        stream_(static_cast<cudaStream_t>(o.hidden_of.stream)),
        chunk_(o.head_chunk_rows),
        n_slots_(o.max_rows),
        top_n_(static_cast<int32_t>(std::min<int64_t>(o.draft_top_n, stack_.V))),
        staging_(kHiddenStaging),
        kept_(n_slots_ * stack_.E),
        states_(chunk_ * stack_.E),
        x_(chunk_ * stack_.E),
        product_(chunk_ * stack_.E),
        logits_(chunk_ * stack_.V),
        slices_(chunk_ * kernels::n_slices_of(stack_.V) * top_n_),
        candidates_(n_heads() * chunk_ * top_n_),
        n_listed_(n_heads() * chunk_),
        all_open_(chunk_) {
    cuda_check(cudaMemsetAsync(all_open_.data(), 0, all_open_.bytes(), stream_));
    info_.device = "cuda";
    info_.dtype = weights_name(o);
    info_.vocabulary_size = stack_.V;
    info_.max_context = o.max_context;
    for (const auto& h : stack_.heads) {
      info_.bytes_per_step += h.out.bytes();
      for (const auto& b : h.blocks)
        info_.bytes_per_step += b.w.bytes() + static_cast<int64_t>(b.bias.bytes());
    }
    info_.weight_bytes = info_.bytes_per_step;
    info_.scratch_bytes =
        static_cast<int64_t>(staging_.bytes() + kept_.bytes() + states_.bytes() + x_.bytes() +
                             product_.bytes() + logits_.bytes() + slices_.bytes() +
                             candidates_.bytes() + n_listed_.bytes() + all_open_.bytes());
  }
  ~CudaHeads() override { cuda_check(cudaStreamSynchronize(stream_)); }

  const BackendInfo& info() const override { return info_; }

  void keep_hidden(std::span<const HiddenKeep> keeps) override {
    if (keeps.empty()) return;
    from_.clear();
    to_.clear();
    for (HiddenKeep k : keeps) from_.push_back(k.row), to_.push_back(k.block);
    staging_.begin();
    auto from = staging_.put<int32_t>(from_), to = staging_.put<int32_t>(to_);
    staging_.send(stream_);
    kernels::copy_rows<A, A>(
        {kept_.data(), {n_slots_, stack_.E}},
        View<const A, 2>{static_cast<const A*>(target_.data), {target_.rows, stack_.E}},
        staging_.view(from), staging_.view(to), stream_);
  }

  // Operations of head_passes.h, on the jobs in progress.
  void gather_states() {
    staging_.begin();
    auto rows = staging_.put<int32_t>(from_);
    staging_.send(stream_);
    kernels::gather_rows<A, A>(states(), View<const A, 2>{kept_.data(), {n_slots_, stack_.E}},
                               staging_.view(rows), stream_);
  }
  int32_t n_head_blocks(int32_t h) const { return static_cast<int32_t>(head(h).blocks.size()); }
  void run_head_block(int32_t h, int32_t b) {
    const auto& block = head(h).blocks[static_cast<size_t>(b)];
    const View<const A, 2> x = behind(b);
    const View<float, 2> product{product_.data(), {n_jobs_, stack_.E}};
    multiply(product, x, block.w, {.bias = block.bias.data(), .add = false}, stream_);
    kernels::residual_silu<A>({x_.data(), {n_jobs_, stack_.E}}, x, product, stream_);
  }
  // To rows [h B, h B + B) of candidates_.
  void list_head(int32_t h) {
    const int64_t B = n_jobs_;
    const View<float, 2> logits{logits_.data(), {B, stack_.V}};
    multiply(logits, behind(n_head_blocks(h)), head(h).out, {}, stream_);
    kernels::list_candidates({candidates_.data() + h * B * top_n_, {B, top_n_}},
                             {n_listed_.data() + h * B, {B}},
                             {slices_.data(), {B, kernels::n_slices_of(stack_.V), top_n_}}, logits,
                             {all_open_.data(), {B}}, {nullptr, {0}}, stream_);
  }
  void fetch() {
    lists_.resize(std::max(lists_.size(), static_cast<size_t>(n_levels_ * n_jobs_)));
    fetch_lists(candidates_, n_listed_, top_n_, stream_, &host_,
                std::span(lists_).first(static_cast<size_t>(n_levels_ * n_jobs_)));
  }

 private:
  int32_t n_heads() const { return static_cast<int32_t>(stack_.heads.size()); }
  const typename CudaHeadStack<A>::Head& head(int32_t h) const {
    return stack_.heads[static_cast<size_t>(h)];
  }
  // The states of the jobs, and what the first b blocks of a head have made of them.
  View<A, 2> states() { return {states_.data(), {n_jobs_, stack_.E}}; }
  View<const A, 2> behind(int32_t b) const {
    return {b == 0 ? states_.data() : x_.data(), {n_jobs_, stack_.E}};
  }

  void propose_some(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override {
    n_jobs_ = static_cast<int64_t>(jobs.size());
    n_levels_ = 0;
    from_.clear();
    for (const ProposeJob& job : jobs) {
      n_levels_ = std::max(n_levels_, head_levels(job, n_heads()));
      from_.push_back(job.hidden.back().index);
    }
    issue_heads(*this, n_levels_);
    grow_from_heads(jobs, n_levels_, lists_, nullptr, trees);
  }

  const CudaHeadStack<A> stack_;
  const HiddenStates target_;
  const cudaStream_t stream_;  // the target's
  const int64_t chunk_, n_slots_;
  const int32_t top_n_;
  int64_t n_jobs_ = 0;    // that propose together now
  int32_t n_levels_ = 0;  // heads that they ask for
  Staging staging_;
  DeviceBuffer<A> kept_;         // [slots, E]
  DeviceBuffer<A> states_, x_;   // [chunk, E]
  DeviceBuffer<float> product_;  // [chunk, E]
  DeviceBuffer<float> logits_;   // [chunk, V]
  DeviceBuffer<TokenValue> slices_;
  DeviceBuffer<TokenValue> candidates_;  // [heads, chunk, top_n]; as many as there are jobs
  DeviceBuffer<int32_t> n_listed_;       // [heads, chunk], likewise
  DeviceBuffer<int32_t> all_open_;       // [chunk] zeros: every place is in use
  PinnedMemory host_;
  std::vector<int32_t> from_, to_;
  std::vector<std::vector<TokenProbability>> lists_;  // [heads, jobs]
  BackendInfo info_;
};

template <class A>
Result<std::unique_ptr<Backend>> make(const Model& model, const CudaOptions& options,
                                      ThreadPool& pool) {
  CudaHeadStack<A> stack;
  if (Status s = upload_heads(model, options, pool, &stack); !s.ok()) return s;
  return std::unique_ptr<Backend>(std::make_unique<CudaHeads<A>>(std::move(stack), options));
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_heads(const Model& model, const CudaOptions& options,
                                                 ThreadPool& pool) {
  const int64_t E = model.config.width, V = model.config.vocabulary_size;
  if (E % 8 != 0 || V > int64_t{1} << 18)
    return invalid(
        "the CUDA kernels need a width that is a multiple of 8 and up to 262,144 "
        "tokens, not " +
        std::to_string(E) + " and " + std::to_string(V) + "; run it with --device cpu");
  return options.numbers == CudaOptions::Numbers::kF16 ? make<f16>(model, options, pool)
                                                       : make<bf16>(model, options, pool);
}

}  // namespace pf
