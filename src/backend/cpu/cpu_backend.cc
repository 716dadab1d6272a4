#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_heads.h"
#include "backend/cpu/cpu_model.h"
#include "backend/cpu/top_logits.h"
#include "backend/draft_levels.h"

namespace pf {
namespace {

KvType kv_type(const CpuOptions& o) {
  if (o.int8_kv) return KvType::kInt8;
  return o.weights == CpuOptions::Weights::kF32 ? KvType::kF32 : KvType::kBf16;
}

const char* kv_name(KvType t) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8"};
  return kNames[static_cast<int>(t)];
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(CpuModel model, const CpuOptions& options, ThreadPool& pool)
      : options_(options),
        pool_(pool),
        model_(std::move(model)),
        plane_(model_.L, options.n_blocks, model_.G, options.block_tokens, model_.D,
               kv_type(options)),
        forward_(model_, options_, pool, &plane_),
        levels_(draft_device()),
        kept_(static_cast<size_t>(model_.takes_hidden() ? options.n_blocks : 0) * sizeof(float) *
              static_cast<size_t>(options.hidden_of.width)) {
    info_.device = std::string("cpu (") + model_.kernels->name + ")";
    info_.dtype = weights_name(options.weights);
    info_.kv_dtype = kv_name(plane_.type());
    info_.vocabulary_size = model_.V;
    info_.max_context = options.max_context;
    for (const CpuLayer& l : model_.layers)
      for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up, &l.down})
        info_.bytes_per_step += w->bytes();
    info_.bytes_per_step += model_.head.bytes() + model_.fc.bytes();
    info_.weight_bytes = static_cast<int64_t>(model_.matrices.bytes() + model_.embedding.bytes());
    info_.kv_bytes = plane_.bytes() + static_cast<int64_t>(kept_.bytes());
    info_.scratch_bytes = forward_.scratch_bytes();
  }

  const BackendInfo& info() const override { return info_; }

  void forward(const Batch& batch) override {
    batch_.segments = batch.segments;
    batch_.logit_rows = batch.logit_rows;
    forward_.run(batch);
  }

  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override {
    for (size_t first = 0; first < jobs.size();) {
      // As many whole trees as there is room for; their logit rows follow each other.
      size_t end = first;
      int32_t begin_row = first_logit_row(jobs[first]), n = 0;
      while (end < jobs.size() && first_logit_row(jobs[end]) + n_rows(jobs[end]) - begin_row <=
                                      options_.head_chunk_rows) {
        n = first_logit_row(jobs[end]) + n_rows(jobs[end]) - begin_row;
        ++end;
      }
      check(end > first, "a tree has more rows than there is room for");
      View<float, 2> logits = forward_.logits(begin_row, n);
      pool_.run([&](int thread) {
        for (size_t j = first + static_cast<size_t>(thread); j < end;
             j += static_cast<size_t>(pool_.size())) {
          AcceptInput in = jobs[j].input;
          in.logits = logits.rows(first_logit_row(jobs[j]) - begin_row, n_rows(jobs[j]));
          pf::accept(in, &results[j]);
        }
      });
      first = end;
    }
  }

  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override {
    for (size_t first = 0; first < jobs.size();) {
      size_t end = first;
      int32_t row = jobs[first].logit_row;
      while (end < jobs.size() && jobs[end].logit_row - row < options_.head_chunk_rows) ++end;
      View<float, 2> logits = forward_.logits(row, jobs[end - 1].logit_row - row + 1);
      for (size_t j = first; j < end; ++j)
        results[j] =
            logprobs_of(logits[jobs[j].logit_row - row].span(), jobs[j].token, jobs[j].n_top);
      first = end;
    }
  }

  void read_logits(int32_t first, int32_t n, View<float, 2> out) override {
    for (int32_t done = 0; done < n;) {
      int32_t part = std::min(n - done, options_.head_chunk_rows);
      View<float, 2> logits = forward_.logits(first + done, part);
      for (int32_t r = 0; r < part; ++r) spread(logits[r].span(), out[done + r].span());
      done += part;
    }
  }

  HiddenStates hidden_states() const override {
    check(options_.keep_hidden, "the backend was not made to keep hidden states");
    return forward_.kept_states();
  }

  void keep_hidden(std::span<const HiddenKeep> keeps) override {
    for (HiddenKeep k : keeps)
      std::copy_n(state_at({HiddenRef::In::kForward, k.row}), options_.hidden_of.width,
                  of_block(k.block));
  }

  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override {
    levels_.grow(jobs, trees);
  }
  void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                     std::span<DraftTree> trees) override {
    check(n_layers >= 1 && n_layers <= model_.L, "an early exit that the model does not have");
    draft_layers_ = n_layers;
    propose(jobs, trees);
    draft_layers_ = 0;
  }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    for (BlockCopy c : copies) {
      plane_.copy_block(c);
      if (model_.takes_hidden())
        std::copy_n(of_block(c.from), options_.hidden_of.width, of_block(c.to));
    }
  }
  void move_slots(std::span<const SlotMove> moves) override {
    for (const SlotMove& m : moves) plane_.move_slot({.blocks = m.blocks}, m.from, m.to);
  }

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

  int32_t first_logit_row(const AcceptJob& job) const {
    return batch_.first_logit_row(batch_.segments[static_cast<size_t>(job.segment)]);
  }
  int32_t n_rows(const AcceptJob& job) const {
    return Batch::n_logit_rows(batch_.segments[static_cast<size_t>(job.segment)]);
  }

  float* of_block(BlockId block) { return kept_.as<float>() + block * options_.hidden_of.width; }
  const float* state_at(HiddenRef ref) {
    if (ref.in == HiddenRef::In::kOwn) return forward_.own_state(ref.index);
    if (ref.in == HiddenRef::In::kBlock) return of_block(ref.index);
    return static_cast<const float*>(options_.hidden_of.data) +
           ref.index * options_.hidden_of.width;
  }
  DraftLevels::Device draft_device();
  void list_likeliest(std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out);

  CpuOptions options_;
  ThreadPool& pool_;
  CpuModel model_;
  KvPlane plane_;
  CpuForward forward_;
  BackendInfo info_;
  Batch batch_;               // of the last forward: its segments and logit rows
  int64_t draft_layers_ = 0;  // of the present proposal; 0: all
  DraftLevels levels_;
  Buffer kept_;  // a head's: f32 [N, width], the state kept for each block
  std::vector<CpuForward::Feature> features_;  // a head's: by row of the present pass
};

DraftLevels::Device CpuBackend::draft_device() {
  return {[this](const Batch& batch, std::span<const HiddenRef> hidden) {
            features_.clear();
            for (HiddenRef ref : hidden)
              features_.push_back({state_at(ref), model_.head_kind == HeadKind::kEagle3 &&
                                                      ref.in != HiddenRef::In::kOwn});
            forward_.run(batch, features_, draft_layers_);
          },
          [this](std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out) {
            list_likeliest(rows, out);
          },
          forward_.max_rows(), &pool_};
}

// In stretches of rows whose logits there is room for.
void CpuBackend::list_likeliest(std::span<const int32_t> rows,
                                std::span<std::vector<TokenProbability>> out) {
  for (size_t first = 0; first < rows.size();) {
    size_t end = first;
    while (end < rows.size() && rows[end] - rows[first] < options_.head_chunk_rows) ++end;
    View<float, 2> logits = forward_.logits(rows[first], rows[end - 1] - rows[first] + 1);
    pool_.run([&](int thread) {
      for (size_t i = first + static_cast<size_t>(thread); i < end;
           i += static_cast<size_t>(pool_.size())) {
        auto row = logits[rows[i] - rows[first]].span();
        out[i].clear();
        if (all_finite(row))
          find_top_logits(row, model_.head_tokens, static_cast<size_t>(options_.draft_top_n),
                          &out[i]);
      }
    });
    first = end;
  }
}

// Whether a head can read the states that it is given.
Status check_hidden(const Model& model, const HiddenStates& states) {
  if (!model.takes_hidden()) return {};
  if (states.on_device || states.type != StateType::kF32)
    return invalid("a head on the CPU reads hidden states of a target on the CPU");
  if (states.width != model.hidden_width())
    return invalid("the head reads hidden states of width " + std::to_string(model.hidden_width()) +
                   ", its target gives " + std::to_string(states.width));
  return {};
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const Model& model, const Model* embedding_of,
                                                  const CpuOptions& options, ThreadPool& pool) {
  if (Status s = check_hidden(model, options.hidden_of); !s.ok()) return s;
  if (model.head_kind == HeadKind::kMedusa) return make_cpu_heads(model, options, pool);
  CpuModel packed;
  packed.kernels = choose_kernels(options.instruction_set);
  if (packed.kernels == nullptr)
    return invalid(std::string("this machine does not have the instruction set ") +
                   options.instruction_set);
  if (model.config.head_width % 16 != 0 || model.config.head_width > 256)
    return invalid("heads of width " + std::to_string(model.config.head_width) +
                   " are not supported; it must be a multiple of 16 up to 256");
  if (Status s = pack_model(model, embedding_of, options, pool, &packed); !s.ok()) return s;
  return std::unique_ptr<Backend>(std::make_unique<CpuBackend>(std::move(packed), options, pool));
}

}  // namespace pf
