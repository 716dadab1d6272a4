// One pass over all heads for all sequences that draft: x = h; x += silu(W x + b) for each block of
// the head; its logits are the rows of its own matrix times x.
#include "backend/cpu/cpu_heads.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/scratch.h"
#include "backend/cpu/top_logits.h"
#include "backend/head_drafts.h"
#include "backend/heads_backend.h"

namespace pf {
namespace {

struct Sizes {
  size_t kept, states, mixed, packed, logits;
  size_t total() const { return kept + 2 * states + mixed + packed + logits; }
};

Sizes sizes_of(const Model& m, const CpuOptions& o) {
  const int64_t E = m.config.width, chunk = o.head_chunk_rows;
  const WeightFormat format = format_of(o.weights);
  auto floats = [](int64_t n) { return static_cast<size_t>(n) * sizeof(float); };
  return {floats(o.max_rows * E), floats(chunk * E), floats(chunk * E),
          static_cast<size_t>(packed_rows_bytes(format, n_steps_of(format, E), chunk)),
          floats(chunk * m.config.vocabulary_size)};
}

class CpuHeads final : public HeadsBackend {
 public:
  struct Block {
    PackedMatrix w;           // [E, E]
    std::vector<float> bias;  // [E]
  };
  struct Head {
    std::vector<Block> blocks;
    PackedMatrix out;  // [V, E]
  };

  CpuHeads(std::vector<Head> heads, const Model& model, const CpuOptions& options,
           const CpuKernels* kernels, ThreadPool& pool)
      : HeadsBackend(options.head_chunk_rows),
        options_(options),
        pool_(pool),
        kernels_(kernels),
        E_(model.config.width),
        V_(model.config.vocabulary_size),
        heads_(std::move(heads)),
        share_(pool.size()) {
    const Sizes sizes = sizes_of(model, options);
    kept_ = Buffer(sizes.kept);
    states_ = Buffer(sizes.states);
    x_ = Buffer(sizes.states);
    mixed_ = Buffer(sizes.mixed);
    packed_ = Buffer(sizes.packed);
    logits_ = Buffer(sizes.logits);
    info_.device = std::string("cpu (") + kernels->name + ")";
    info_.dtype = weights_name(options.weights);
    info_.vocabulary_size = V_;
    info_.max_context = options.max_context;
    for (const Head& h : heads_) {
      info_.bytes_per_step += h.out.bytes();
      for (const Block& b : h.blocks)
        info_.bytes_per_step += b.w.bytes() + static_cast<int64_t>(b.bias.size() * sizeof(float));
    }
    info_.weight_bytes = info_.bytes_per_step;
    info_.scratch_bytes = static_cast<int64_t>(sizes.total());
  }

  const BackendInfo& info() const override { return info_; }

  void keep_hidden(std::span<const HiddenKeep> keeps) override {
    for (HiddenKeep k : keeps)
      std::copy_n(static_cast<const float*>(options_.hidden_of.data) + k.row * E_, E_,
                  slot(k.block));
  }

 private:
  float* slot(int32_t i) const { return kept_.as<float>() + i * E_; }

  void propose_some(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override {
    int32_t n_heads = 0;
    for (size_t j = 0; j < jobs.size(); ++j) {
      n_heads = std::max(n_heads, head_levels(jobs[j], static_cast<int32_t>(heads_.size())));
      std::copy_n(slot(jobs[j].hidden.back().index), E_,
                  states_.as<float>() + static_cast<int64_t>(j) * E_);
    }
    lists_.resize(std::max(lists_.size(), static_cast<size_t>(n_heads) * jobs.size()));
    for (int32_t h = 0; h < n_heads; ++h)
      list(heads_[static_cast<size_t>(h)],
           std::span(lists_).subspan(static_cast<size_t>(h) * jobs.size(), jobs.size()));
    grow_from_heads(jobs, n_heads, lists_, &pool_, trees);
  }

  // What a head lists behind the states of the jobs.
  void list(const Head& head, std::span<std::vector<TokenProbability>> out) {
    const auto m = static_cast<int64_t>(out.size());
    std::copy_n(states_.as<float>(), m * E_, x_.as<float>());
    pool_.run([&](int thread) {
      for (const Block& b : head.blocks) {
        product(b.w, m, mixed_.as<float>(), thread);
        add_block(b, split_range(m * E_, 1, pool_.size(), thread));
        pool_.barrier().wait();
      }
      product(head.out, m, logits_.as<float>(), thread);
      for (int64_t i = thread; i < m; i += pool_.size()) {
        const std::span row(logits_.as<float>() + i * V_, static_cast<size_t>(V_));
        std::vector<TokenProbability>& top = out[static_cast<size_t>(i)];
        top.clear();
        if (all_finite(row))
          find_top_logits(row, {}, static_cast<size_t>(options_.draft_top_n), &top);
      }
    });
  }

  // y = x W^T. All threads; complete for all of them on return.
  void product(const PackedMatrix& w, int64_t m, float* y, int thread) {
    Range rows = split_range(m, 1, pool_.size(), thread);
    for (int64_t r = rows.begin; r < rows.end; ++r)
      pack_activation(*kernels_, w, x_.as<float>() + r * E_, r, m, packed_.as());
    pool_.barrier().wait();
    multiply(*kernels_, {&w, packed_.as(), m, y, w.n}, &share_, thread);
    pool_.barrier().wait();
    if (thread == 0) share_.reset();
    pool_.barrier().wait();
  }

  void add_block(const Block& b, Range values) {
    for (int64_t i = values.begin; i < values.end; ++i) {
      const float v = mixed_.as<float>()[i] + b.bias[static_cast<size_t>(i % E_)];
      x_.as<float>()[i] += v / (1 + std::exp(-v));
    }
  }

  const CpuOptions options_;
  ThreadPool& pool_;
  const CpuKernels* kernels_;
  const int64_t E_, V_;
  std::vector<Head> heads_;
  WorkShare share_;
  BackendInfo info_;
  Buffer kept_;        // f32 [max rows, E]: of the target's last forwards
  Buffer states_, x_;  // f32 [chunk, E]: of the jobs; on their way through a head
  Buffer mixed_;       // f32 [chunk, E]: W x
  Buffer packed_;      // the same rows of x for a product
  Buffer logits_;      // f32 [chunk, V]
  std::vector<std::vector<TokenProbability>> lists_;  // [heads, jobs]
};

}  // namespace

Footprint cpu_heads_footprint(const Model& model, const CpuOptions& o, int) {
  const int64_t E = model.config.width;
  auto bytes = [&](const Tensor& t) {
    const Tensor* one = &t;
    return packed_shape_of({&one, 1}, o.weights, model.config.int4_group).bytes();
  };
  Footprint f;
  for (const MedusaHead& h : model.medusa) {
    f.weight_bytes += bytes(h.out);
    for (const MedusaBlock& b : h.blocks)
      f.weight_bytes += bytes(b.w) + E * static_cast<int64_t>(sizeof(float));
  }
  f.read_bytes = matrix_file_bytes(model);
  f.scratch_bytes = static_cast<int64_t>(sizes_of(model, o).total());
  return f;
}

Result<std::unique_ptr<Backend>> make_cpu_heads(const Model& model, const CpuOptions& options,
                                                ThreadPool& pool) {
  const CpuKernels* kernels = choose_kernels(options.instruction_set);
  if (kernels == nullptr)
    return invalid(std::string("this machine does not have the instruction set ") +
                   options.instruction_set);
  std::vector<CpuHeads::Head> heads;
  auto pack = [&](const Tensor& t, PackedMatrix* into) -> Status {
    const Tensor* one = &t;
    const PackedShape shape = packed_shape_of({&one, 1}, options.weights, model.config.int4_group);
    Result<PackedMatrix> packed =
        pack_matrix({&one, 1}, shape.format, pool, nullptr, options.progress);
    if (!packed.ok()) return packed.status();
    *into = packed.take();
    return {};
  };
  for (const MedusaHead& h : model.medusa) {
    CpuHeads::Head& head = heads.emplace_back();
    Status s = pack(h.out, &head.out);
    for (const MedusaBlock& b : h.blocks) {
      CpuHeads::Block& block = head.blocks.emplace_back();
      block.bias.resize(static_cast<size_t>(b.bias.size()));
      dequantize_rows(b.bias, 0, 1, block.bias.data());
      if (s.ok()) s = pack(b.w, &block.w);
    }
    if (!s.ok()) return s;
  }
  return std::unique_ptr<Backend>(
      std::make_unique<CpuHeads>(std::move(heads), model, options, kernels, pool));
}

}  // namespace pf
