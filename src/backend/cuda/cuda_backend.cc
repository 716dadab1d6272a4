#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backend/cuda/cuda_heads.h"
#include "backend/cuda/draft.h"
#include "backend/cuda/forward.h"
#include "backend/cuda/judge.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/plane_moves.h"
#include "backend/cuda/stream.h"

namespace pf {
namespace {

constexpr int kLeastCapability = 8;  // what the kernels are compiled for, and later ones

std::string device_name() {
  int device = 0;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}

template <class A>
class CudaBackend final : public Backend {
 public:
  CudaBackend(CudaModel<A> model, const CudaOptions& options)
      : options_(options),
        stream_(options.hidden_of.stream),
        model_(std::move(model)),
        forward_(model_, options_, options_.graphs ? &graphs_ : nullptr, stream_.get()),
        draft_(model_, options_, &forward_, options_.graphs ? &graphs_ : nullptr, stream_.get()),
        moves_(forward_.plane(), stream_.get()) {
    if (options_.judges)
      judge_.emplace(
          model_.V, options_,
          [this](View<const int32_t, 1> rows, std::span<const int32_t>) {
            return forward_.logits(rows);
          },
          stream_.get());
    info_.device = device_name();
    set_info(model_, options, model_.V, &info_);
    info_.kv_bytes = forward_.kv_bytes();
    info_.scratch_bytes = forward_.scratch_bytes() + (judge_ ? judge_->scratch_bytes() : 0) +
                          draft_.scratch_bytes() + static_cast<int64_t>(moves_.bytes()) +
                          (options.graphs ? graphs_.bytes() : 0);
  }

  const BackendInfo& info() const override { return info_; }

  void forward(const Batch& batch) override {
    batch_ = batch;
    forward_.run(batch_);
  }

  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    check(judge_.has_value(), "a model that only drafts is asked to judge");
    judge_->accept(batch_, jobs, results);
  }

  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override {
    check(judge_.has_value(), "a model that only drafts is asked for scores");
    judge_->score(jobs, results);
  }

  void read_logits(int32_t first, int32_t n, View<float, 2> out) override {
    std::vector<float> rows;
    for (int32_t done = 0; done < n;) {
      int32_t part = std::min(n - done, options_.head_chunk_rows);
      View<float, 2> logits = forward_.logits(first + done, part);
      rows.resize(static_cast<size_t>(logits.size()));
      cuda_check(cudaMemcpyAsync(rows.data(), logits.data, rows.size() * sizeof(float),
                                 cudaMemcpyDeviceToHost, stream_.get()));
      cuda_check(cudaStreamSynchronize(stream_.get()));
      for (int32_t r = 0; r < part; ++r)
        spread(std::span(rows).subspan(static_cast<size_t>(r * model_.head_rows),
                                       static_cast<size_t>(model_.head_rows)),
               out[done + r].span());
      done += part;
    }
  }

  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override {
    draft_.propose(jobs, trees);
  }

  void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                     std::span<DraftTree> trees) override {
    check(n_layers >= 1 && n_layers <= model_.L, "an early exit that the model does not have");
    draft_.propose(jobs, trees, n_layers);
  }

  HiddenStates hidden_states() const override {
    check(options_.keep_hidden, "the backend was not made to keep hidden states");
    return forward_.states();
  }
  void keep_hidden(std::span<const HiddenKeep> keeps) override {
    forward_.head_input().keep(keeps);
  }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    if (copies.empty()) return;
    moves_.copy_blocks(copies);
    forward_.head_input().copy_blocks(copies);
  }
  void move_slots(std::span<const SlotMove> moves) override { moves_.move_slots(moves); }

 private:
  // Head rows to token ids; tokens that a reduced head lacks get -inf.
  void spread(std::span<const float> logits, std::span<float> out) const {
    if (model_.head_tokens.empty()) {
      std::copy(logits.begin(), logits.end(), out.begin());
      return;
    }
    std::fill(out.begin(), out.end(), -INFINITY);
    for (size_t i = 0; i < logits.size(); ++i)
      out[static_cast<size_t>(model_.head_tokens[i])] = logits[i];
  }

  const CudaOptions options_;
  CudaStream stream_;  // before what works on it
  Graphs graphs_;
  CudaModel<A> model_;
  CudaForward<A> forward_;
  std::optional<CudaJudge> judge_;  // CudaOptions::judges
  CudaDraft<A> draft_;
  PlaneMoves<A> moves_;
  Batch batch_;  // of the last forward
  BackendInfo info_;
};

// What the kernels ask of a model's shapes, in words.
Status check_shapes(const ModelConfig& c, int64_t head_rows) {
  auto refuse = [](const std::string& what) {
    return invalid(what + "; run it with --device cpu");
  };
  if (c.head_width != 64 && c.head_width != 128)
    return refuse("the CUDA kernels serve heads of width 64 and 128, not " +
                  std::to_string(c.head_width));
  if (c.n_heads / c.n_kv_heads > kernels::kItemQueries)
    return refuse("the CUDA kernels serve up to " + std::to_string(kernels::kItemQueries) +
                  " query heads per KV head, not " + std::to_string(c.n_heads / c.n_kv_heads));
  if (c.width % 8 != 0 || c.ffn_width % 8 != 0)
    return refuse("the CUDA kernels need widths that are multiples of 8, not " +
                  std::to_string(c.width) + " and " + std::to_string(c.ffn_width));
  if (head_rows > int64_t{1} << 18)
    return refuse("the CUDA kernels serve up to 262,144 tokens, not " + std::to_string(head_rows));
  return {};
}

// Whether a head can read the states that it is given.
Status check_hidden(const Model& model, const CudaOptions& options) {
  if (!model.takes_hidden()) return {};
  const HiddenStates& states = options.hidden_of;
  const StateType type =
      options.numbers == CudaOptions::Numbers::kF16 ? StateType::kF16 : StateType::kBf16;
  if (!states.on_device || states.type != type)
    return invalid("a head on a CUDA device reads hidden states of a target there, in its numbers");
  if (states.width != model.hidden_width())
    return invalid("the head reads hidden states of width " + std::to_string(model.hidden_width()) +
                   ", its target gives " + std::to_string(states.width));
  return {};
}

template <class A>
Result<std::unique_ptr<Backend>> make(const Model& model, const Model* embedding_of,
                                      const CudaOptions& options, ThreadPool& pool) {
  CudaModel<A> sent;
  if (Status s = upload_model(model, embedding_of, options, {}, pool, &sent); !s.ok()) return s;
  CudaOptions o = options;
  if (!has_library(o)) {
    o.blas = nullptr;
  } else if (!o.blas) {
    Result<Blas> cublas = load_cublas();
    if (!cublas.ok()) return cublas.status();
    o.blas = cublas.take();
  }
  return make_backend_of(std::move(sent), o);
}

template <class A>
Result<std::unique_ptr<Backend>> make_sharded(const Model& model, const CudaOptions& options,
                                              ThreadPool& pool) {
  CudaOptions o = options;
  if (!o.gather) {  // before gigabytes are sent
    Result<AllGather> nccl = load_nccl(o.n_devices);
    if (!nccl.ok()) return nccl.status();
    o.gather = nccl.take();
  }
  std::vector<CudaModel<A>> by_rank(static_cast<size_t>(o.n_devices));
  Status status;
  for (int32_t d = 0; d < o.n_devices && status.ok(); ++d) {
    cuda_check(cudaSetDevice(d));
    status =
        upload_model(model, nullptr, o, {d, o.n_devices}, pool, &by_rank[static_cast<size_t>(d)]);
  }
  cuda_check(cudaSetDevice(0));
  if (!status.ok()) return status;
  return make_sharded_backend_of(std::move(by_rank), model.head.rows(), o);
}

}  // namespace

template <class A>
std::unique_ptr<Backend> make_backend_of(CudaModel<A> model, const CudaOptions& options) {
  return std::make_unique<CudaBackend<A>>(std::move(model), options);
}
template std::unique_ptr<Backend> make_backend_of(CudaModel<f16>, const CudaOptions&);
template std::unique_ptr<Backend> make_backend_of(CudaModel<bf16>, const CudaOptions&);

int32_t n_cuda_devices(std::string* why_none) {
  int n = 0;
  cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaSuccess && n > 0) return n;
  cudaGetLastError();  // it is no fault to have none
  if (why_none)
    *why_none = status == cudaSuccess ? "no CUDA device is visible" : cudaGetErrorString(status);
  return 0;
}

Status check_cuda_devices(int32_t n) {
  const int32_t visible = n_cuda_devices();
  if (n > visible)
    return invalid("--tensor-parallel-size " + std::to_string(n) +
                   ": CUDA devices visible: " + std::to_string(visible));
  for (int32_t d = 0; d < n; ++d) {
    cudaDeviceProp p{};
    cuda_check(cudaGetDeviceProperties(&p, d));
    if (p.major >= kLeastCapability) continue;
    return invalid("CUDA device " + std::to_string(d) + " (" + p.name +
                   ") has compute capability " + std::to_string(p.major) + "." +
                   std::to_string(p.minor) + ", the kernels need " +
                   std::to_string(kLeastCapability) +
                   ".0 or later (CUDA_VISIBLE_DEVICES chooses among several)");
  }
  return {};
}

int64_t cuda_free_bytes(int32_t n_devices) {
  int present = 0;
  cuda_check(cudaGetDevice(&present));
  size_t least = SIZE_MAX;
  for (int32_t d = 0; d < n_devices; ++d) {
    size_t free = 0, total = 0;
    if (n_devices > 1) cuda_check(cudaSetDevice(d));
    cuda_check(cudaMemGetInfo(&free, &total));
    least = std::min(least, free);
  }
  cuda_check(cudaSetDevice(present));
  return static_cast<int64_t>(least);
}

namespace {

Result<std::unique_ptr<Backend>> make_or_throw(const Model& model, const Model* embedding_of,
                                               const CudaOptions& options, ThreadPool& pool) {
  if (Status s = check_hidden(model, options); !s.ok()) return s;
  if (model.head_kind == HeadKind::kMedusa) return make_cuda_heads(model, options, pool);
  check(std::is_sorted(model.head_tokens.begin(), model.head_tokens.end()),
        "rows of a reduced head out of order");
  const int64_t head_rows = (model.shares_head ? *embedding_of : model).head.rows();
  const Shard first{0, options.n_devices};
  if (first.n > 1) {
    check(options.prefill_gemm == CudaOptions::PrefillGemm::kOwn, "cuBLAS serves one device");
    if (Status s = check_cuda_devices(first.n); !s.ok()) return s;
    if (Status s = check_shards(model, first.n, options.int4); !s.ok()) return s;
  }
  if (Status s = check_shapes(shard_config(model.config, first), head_rows); !s.ok()) return s;
  if (first.n > 1)
    return options.numbers == CudaOptions::Numbers::kF16 ? make_sharded<f16>(model, options, pool)
                                                         : make_sharded<bf16>(model, options, pool);
  return options.numbers == CudaOptions::Numbers::kF16
             ? make<f16>(model, embedding_of, options, pool)
             : make<bf16>(model, embedding_of, options, pool);
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cuda_backend(const Model& model, const Model* embedding_of,
                                                   const CudaOptions& options, ThreadPool& pool) {
  try {
    return make_or_throw(model, embedding_of, options, pool);
  } catch (const OutOfMemory& e) {  // whatever was taken has been given back
    if (options.n_devices > 1) cuda_check(cudaSetDevice(0));
    const std::string needed = std::to_string((e.bytes >> 20) + 1) + " MB more";
    if (e.of_host)
      return Status(Code::kUnavailable, "no " + needed +
                                            " of pinned host memory: end what else uses it, or "
                                            "raise the limit of locked memory (ulimit -l)");
    return Status(Code::kUnavailable,
                  "the CUDA device has no " + needed + " to give, " +
                      std::to_string(cuda_free_bytes(options.n_devices) >> 20) +
                      " MB are free once this model is gone again: end what else uses the device, "
                      "or lower --gpu-memory-utilization, --kv-blocks or --max-model-len");
  }
}

}  // namespace pf
