#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/cpu_model.h"
#include "backend/cpu/top_logits.h"
#include "sampling/grow.h"

namespace pf {
namespace {

const char* weights_name(CpuOptions::Weights w) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8", "int4"};
  return kNames[static_cast<int>(w)];
}

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
        forward_(model_, options_, pool, &plane_) {
    info_.device = std::string("cpu (") + model_.kernels->name + ")";
    info_.dtype = weights_name(options.weights);
    info_.kv_dtype = kv_name(plane_.type());
    info_.vocabulary_size = model_.V;
    info_.max_context = options.max_context;
    for (const CpuLayer& l : model_.layers)
      for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up, &l.down})
        info_.bytes_per_step += w->bytes();
    info_.bytes_per_step += model_.head.bytes() + model_.fc.bytes();
    info_.weight_bytes = info_.bytes_per_step + static_cast<int64_t>(model_.embedding.bytes());
    info_.kv_bytes = plane_.bytes();
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

  std::span<const float> hidden(int32_t row) const override {
    check(options_.keep_hidden, "the backend was not made to keep hidden states");
    return forward_.kept_hidden(row);
  }

  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override;
  void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                     std::span<DraftTree> trees) override {
    check(n_layers >= 1 && n_layers <= model_.L, "an early exit that the model does not have");
    draft_layers_ = n_layers;
    propose(jobs, trees);
    draft_layers_ = 0;
  }

  void copy_blocks(std::span<const BlockCopy> copies) override {
    for (BlockCopy c : copies) plane_.copy_block(c);
  }
  void move_slots(std::span<const SlotMove> moves) override {
    for (const SlotMove& m : moves)
      plane_.move_slot(batch_.segments[static_cast<size_t>(m.segment)], m.from, m.to);
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

  bool takes_hidden() const { return model_.fc.n > 0; }
  int32_t first_logit_row(const AcceptJob& job) const {
    return batch_.first_logit_row(batch_.segments[static_cast<size_t>(job.segment)]);
  }
  int32_t n_rows(const AcceptJob& job) const {
    return Batch::n_logit_rows(batch_.segments[static_cast<size_t>(job.segment)]);
  }

  void propose_together(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);

  // One draft while it grows. Reused from call to call.
  struct Growth {
    size_t job = 0;
    std::vector<int32_t> open;    // nodes of the last level; {kRoot} at first
    std::vector<int32_t> next;    // those of the level that is added
    int32_t first_logit_row = 0;  // of the present pass
    bool complete = false;
    // A head's own hidden states, f32 [1 + nodes, E]: of the root, then of the nodes that were fed.
    std::vector<float> outputs;
  };
  std::span<Growth> growing() { return std::span(growing_).first(n_growing_); }
  void feed_level(std::span<const ProposeJob> jobs, std::span<const DraftTree> trees);
  void add_features(const ProposeJob& job, const Growth& g, const DraftTree& tree);
  void keep_outputs();
  void grow_level(std::span<const ProposeJob> jobs, std::span<DraftTree> trees, int32_t depth);
  void grow_one(const ProposeJob& job, Growth* g, View<const float, 2> logits, int32_t depth,
                DraftTree* tree, std::vector<TokenProbability>* top) const;

  CpuOptions options_;
  ThreadPool& pool_;
  CpuModel model_;
  KvPlane plane_;
  CpuForward forward_;
  BackendInfo info_;
  Batch batch_;  // of the last forward: its segments and logit rows; of a draft, all of it
  int64_t draft_layers_ = 0;     // of the present proposal; 0: all
  std::vector<Growth> growing_;  // the first n_growing_ of them are
  size_t n_growing_ = 0;
  std::vector<const float*> features_;  // by row of the present pass; empty but for a head
  std::vector<std::vector<TokenProbability>> top_;  // by thread
};

// As many jobs at once as their longest pass has room for; alone or together gives the same bits.
void CpuBackend::propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  auto rows = [&](size_t j) {
    int64_t n_fed = jobs[j].widths.empty() ? 1 : 1 + jobs[j].n_draft;
    return std::max(n_fed, static_cast<int64_t>(jobs[j].committed.size()));
  };
  for (size_t first = 0; first < jobs.size();) {
    size_t end = first;
    int64_t n = 0;
    do n += rows(end++);
    while (end < jobs.size() && n + rows(end) <= forward_.max_rows());
    propose_together(jobs.subspan(first, end - first), trees.subspan(first, end - first));
    first = end;
  }
}

void CpuBackend::propose_together(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  n_growing_ = 0;
  if (growing_.size() < jobs.size()) growing_.resize(jobs.size());
  top_.resize(static_cast<size_t>(pool_.size()));
  batch_.clear();
  features_.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    trees[j].clear();
    batch_.add(jobs[j].committed, jobs[j].base, nullptr, jobs[j].blocks,
               jobs[j].n_draft > 0 ? Batch::Logits::kLast : Batch::Logits::kNone);
    for (size_t i = 0; takes_hidden() && i < jobs[j].committed.size(); ++i)
      features_.push_back(jobs[j].hidden + static_cast<int64_t>(i) * model_.E);
    if (jobs[j].n_draft <= 0) continue;
    Growth& g = growing_[n_growing_++];
    g.job = j;
    g.open.assign(1, DraftTree::kRoot);
    g.first_logit_row = static_cast<int32_t>(batch_.logit_rows.size()) - 1;
  }
  forward_.run(batch_, features_, draft_layers_);
  keep_outputs();
  for (int32_t depth = 1; n_growing_ > 0; ++depth) {
    grow_level(jobs, trees, depth);
    if (n_growing_ > 0) feed_level(jobs, trees);
  }
}

// Feeds the new level. A chain's node is a plain row behind what is there; a tree is fed with its
// root again, so that its nodes lie behind it.
void CpuBackend::feed_level(std::span<const ProposeJob> jobs, std::span<const DraftTree> trees) {
  batch_.clear();
  features_.clear();
  for (Growth& g : growing()) {
    const ProposeJob& job = jobs[g.job];
    const DraftTree& tree = trees[g.job];
    int64_t last = job.base + static_cast<int64_t>(job.committed.size()) - 1;
    if (job.widths.empty()) {
      batch_.add(std::span(tree.tokens).last(1), last + tree.depth(), nullptr, job.blocks,
                 Batch::Logits::kLast);
      g.first_logit_row = static_cast<int32_t>(batch_.logit_rows.size()) - 1;
    } else {
      g.first_logit_row = static_cast<int32_t>(batch_.logit_rows.size()) + 1 + g.open.front();
      batch_.add(job.committed.last(1), last, &tree, job.blocks, Batch::Logits::kLast);
    }
    if (takes_hidden()) add_features(job, g, tree);
  }
  forward_.run(batch_, features_, draft_layers_);
  keep_outputs();
}

// Of the rows that feed_level has just added: the root's is the target's, a node's is what the head
// said of the node above.
void CpuBackend::add_features(const ProposeJob& job, const Growth& g, const DraftTree& tree) {
  int32_t first = 0;
  if (job.widths.empty())
    first = tree.size() - 1;
  else
    features_.push_back(job.hidden + static_cast<int64_t>(job.committed.size() - 1) * model_.E);
  for (int32_t n = first; n < tree.size(); ++n)
    features_.push_back(g.outputs.data() + (1 + tree.parents[static_cast<size_t>(n)]) * model_.E);
}

// What the head said of the nodes of the level that was just fed.
void CpuBackend::keep_outputs() {
  if (!takes_hidden()) return;
  for (Growth& g : growing()) {
    int32_t first = g.open.front(), last = g.open.back();  // -1: the root
    g.outputs.resize(static_cast<size_t>((2 + last) * model_.E));
    for (int32_t n = first; n <= last; ++n) {
      std::span<const float> from = forward_.logit_hidden(g.first_logit_row + n - first);
      std::copy(from.begin(), from.end(), g.outputs.begin() + (1 + n) * model_.E);
    }
  }
}

void CpuBackend::grow_level(std::span<const ProposeJob> jobs, std::span<DraftTree> trees,
                            int32_t depth) {
  for (size_t first = 0; first < n_growing_;) {
    size_t end = first;
    int32_t row = growing_[first].first_logit_row, n = 0;
    for (; end < n_growing_; ++end) {
      int32_t upto =
          growing_[end].first_logit_row + static_cast<int32_t>(growing_[end].open.size()) - row;
      if (upto > options_.head_chunk_rows) break;
      n = upto;
    }
    View<float, 2> logits = forward_.logits(row, n);
    pool_.run([&](int thread) {
      for (size_t i = first + static_cast<size_t>(thread); i < end;
           i += static_cast<size_t>(pool_.size())) {
        Growth& g = growing_[i];
        auto own = logits.rows(g.first_logit_row - row, static_cast<int64_t>(g.open.size()));
        grow_one(jobs[g.job], &g, own, depth, &trees[g.job], &top_[static_cast<size_t>(thread)]);
      }
    });
    first = end;
  }
  size_t kept = 0;
  for (size_t i = 0; i < n_growing_; ++i)
    if (!growing_[i].complete) std::swap(growing_[kept++], growing_[i]);
  n_growing_ = kept;
}

// Adds one level to a draft.
void CpuBackend::grow_one(const ProposeJob& job, Growth* g, View<const float, 2> logits,
                          int32_t depth, DraftTree* tree,
                          std::vector<TokenProbability>* top) const {
  g->next.clear();
  int32_t width = job.widths.empty() ? 1 : job.widths[static_cast<size_t>(depth - 1)];
  for (size_t i = 0; i < g->open.size(); ++i) {
    auto row = logits[static_cast<int64_t>(i)].span();
    if (!all_finite(row)) continue;  // a draft that is ill proposes nothing
    find_top_logits(row, model_.head_tokens, static_cast<size_t>(options_.draft_top_n), top);
    GrowthPoint at{g->open[i],
                   job.offset + job.base + static_cast<int64_t>(job.committed.size()) + depth - 1,
                   job.n_generated + depth - 1,
                   job.params,
                   job.stop,
                   job.counts,
                   job.key,
                   job.policy.rule == Acceptance::kCoupled};
    int32_t n = add_children(at, *top, std::min(width, job.n_draft - tree->size()), tree);
    for (int32_t c = tree->size() - n; c < tree->size(); ++c) g->next.push_back(c);
  }
  std::swap(g->open, g->next);
  size_t depths = job.widths.empty() ? static_cast<size_t>(job.n_draft) : job.widths.size();
  g->complete =
      g->open.empty() || tree->size() >= job.n_draft || static_cast<size_t>(depth) >= depths;
}

}  // namespace

Result<std::unique_ptr<Backend>> make_cpu_backend(const Model& model, const Model* embedding_of,
                                                  const CpuOptions& options, ThreadPool& pool) {
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
