#include "backend/cuda/launch_list.h"

#include <algorithm>

#include "backend/cuda/limits.h"
#include "backend/draft_levels.h"

namespace pf {

using namespace kernels;

LaunchList::LaunchList(const Model& model, const Model* embedding_of, const CudaOptions& o,
                       int32_t n_multiprocessors)
    : model_(model),
      m_(shape_of(model, embedding_of)),
      options_(o),
      n_thread_blocks_(n_attention_blocks(m_.D, o.int8_kv, n_multiprocessors)),
      plan_({static_cast<int32_t>(m_.H), static_cast<int32_t>(m_.G), o.block_tokens,
             static_cast<int32_t>(model.config.sliding_window), n_attention_parts(o),
             n_thread_blocks_}) {}

void LaunchList::clear() {
  launches_.clear();
  in_graph_.clear();
  n_copies_ = n_waits_ = 0;
}

void LaunchList::forward(const Batch& batch, int64_t n_layers, int64_t n_logit_rows) {
  const int64_t n = batch.n_rows(), R = static_cast<int64_t>(batch.logit_rows.size());
  if (n == 0) return;
  const int64_t padded = options_.graphs ? padded_rows(n, n_max_rows(options_)) : 0;
  if (padded > 0)
    begin_pass(batch, padded, padded);
  else
    begin_pass(batch, n, std::max(R, n_logit_rows));
  ++n_copies_;
  capturing_ = padded > 0 && attention_.size() == 2;
  issue_pass(*this, n_layers > 0 ? n_layers : m_.L);
  capturing_ = false;
}

void LaunchList::begin_pass(const Batch& batch, int64_t T, int64_t R) {
  T_ = T;
  R_ = R;
  segments_.clear();
  for (const Segment& s : batch.segments) segments_.push_back({s.first_row, s.n_rows, s.blocks});
  AttentionRows rows{batch.positions, batch.visible, batch.masks, segments_};
  attention_.clear();
  for (int32_t first = 0; first < batch.n_rows();) {
    const int32_t end = plan_.build(rows, first);
    attention_.push_back(attention_cost(plan_, batch.n_rows(), m_.H, m_.G, m_.D,
                                        kv_row_bytes(m_.D, options_.int8_kv), n_thread_blocks_));
    // The last plan's combination sees the padding too.
    const int64_t behind = end == batch.n_rows() ? T : end;
    attention_.push_back(attention_combine_cost(plan_, behind - first, m_.H, m_.D));
    first = end;
  }
}

LaunchCost LaunchList::product(int64_t T, Tensors tensors, OutputBytes out) const {
  Int4Shape w;
  w.K = (*tensors.begin())->cols();
  for (const Tensor* t : tensors) {
    w.N += t->rows();
    w.has_min |= t->type != TensorType::kQ4_0;
  }
  return options_.int4 ? gemm_int4_cost(T, w, out) : gemm_fp16_cost(T, w.N, w.K, out);
}

void LaunchList::embed() { add(gather_rows_cost(T_, m_.E, 2, 4)); }
void LaunchList::prepare_angles() { add(rope_angles_cost(T_, m_.D)); }
void LaunchList::first_norm() { add(rms_norm_cost(T_, m_.E)); }
void LaunchList::make_queries(int64_t layer) {
  const LayerWeights& w = model_.layers[static_cast<size_t>(layer)];
  const int64_t row = kv_row_bytes(m_.D, options_.int8_kv);
  const bool fused = !options_.int8_kv;
  add(product(T_, {&w.q, &w.k, &w.v},
              fused ? rope_output(T_, m_.H, m_.G, m_.D, row)
                    : OutputBytes{.written = 4 * T_ * m_.qkv_width()}));
  if (!fused) add(rope_kv_write_cost(T_, m_.H, m_.G, m_.D, row));
}
void LaunchList::attend(int64_t) {
  for (const LaunchCost& c : attention_) add(c);
}
void LaunchList::activate(int64_t layer) {
  const LayerWeights& w = model_.layers[static_cast<size_t>(layer)];
  add(product(T_, {&w.gate, &w.up}, {.written = 2 * T_ * m_.F}));
}
void LaunchList::pick_logit_rows() {
  if (R_ > 0) add(gather_rows_cost(R_, m_.E, 4, 4));
}
void LaunchList::final_norm() {
  if (R_ > 0) add(rms_norm_cost(R_, m_.E));
}

void LaunchList::add_product(int64_t layer, LayerSum which, bool norm_follows) {
  const LayerWeights& w = model_.layers[static_cast<size_t>(layer)];
  const bool fused = norm_follows && T_ <= kNormRows;
  add(product(T_, {which == LayerSum::kO ? &w.o : &w.down}, sum_output(T_, m_.E, fused)));
  if (norm_follows && !fused) add(rms_norm_cost(T_, m_.E));
}

void LaunchList::accept(const Batch& batch) {
  for (size_t first = 0; first < batch.segments.size();) {
    size_t end = first;
    int64_t n = 0;
    for (; end < batch.segments.size(); ++end) {
      const int64_t more = Batch::n_logit_rows(batch.segments[end]);
      if (n + more > options_.head_chunk_rows) break;
      n += more;
    }
    check(end > first, "a tree has more rows than there is room for");
    ++n_copies_;
    add(gather_rows_cost(n, m_.E, 2, 2));
    head(n);
    add(make_laws_cost(n, m_.V));
    add(accept_cost(static_cast<int64_t>(end - first), m_.V));
    ++n_waits_;
    first = end;
  }
}

void LaunchList::propose(std::span<const ProposeJob> jobs, int64_t n_layers) {
  if (n_layers == 0) n_layers = m_.L;
  for (size_t first = 0; first < jobs.size();) {
    size_t end = first;
    int64_t n = 0;
    do n += DraftLevels::rows_of(jobs[end++]);
    while (end < jobs.size() && n + DraftLevels::rows_of(jobs[end]) <= n_max_rows(options_));
    propose_together(jobs.subspan(first, end - first), n_layers);
    first = end;
  }
}

void LaunchList::propose_together(std::span<const ProposeJob> jobs, int64_t n_layers) {
  order_.clear();
  for (size_t j = 0; j < jobs.size(); ++j)
    if (jobs[j].n_draft > 0) order_.push_back(j);
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return jobs[a].n_draft > jobs[b].n_draft; });
  const auto n = static_cast<int64_t>(order_.size());
  const int64_t padded = options_.graphs && n > 0 ? padded_rows(n, n_max_rows(options_)) : 0;
  run_committed(jobs, n_layers, padded);
  if (n == 0) return;
  const int32_t K = jobs[order_[0]].n_draft;
  n_copies_ += 2;  // what all levels read; and the trees' memory is cleared
  capturing_ = padded > 0;
  for (int32_t depth = 1; depth <= K; ++depth) {
    int64_t rows = padded;
    if (padded == 0)
      rows = std::count_if(order_.begin(), order_.end(),
                           [&](size_t j) { return jobs[j].n_draft >= depth; });
    if (depth > 1) feed_level(jobs, depth, rows, n_layers);
    grow_level(rows);
  }
  capturing_ = false;
  ++n_waits_;
}

void LaunchList::run_committed(std::span<const ProposeJob> jobs, int64_t n_layers,
                               int64_t n_logit_rows) {
  batch_.clear();
  for (size_t j : order_)
    batch_.add(jobs[j].committed, jobs[j].base, nullptr, jobs[j].blocks, Batch::Logits::kLast);
  for (const ProposeJob& job : jobs)
    if (job.n_draft == 0)
      batch_.add(job.committed, job.base, nullptr, job.blocks, Batch::Logits::kNone);
  forward(batch_, n_layers, n_logit_rows);
}

// One row per chain that goes on, `rows` with padding.
void LaunchList::feed_level(std::span<const ProposeJob> jobs, int32_t depth, int64_t rows,
                            int64_t n_layers) {
  static constexpr int32_t kOnDevice = 0;
  batch_.clear();
  for (size_t j : order_)
    if (const ProposeJob& job = jobs[j]; job.n_draft >= depth)
      batch_.add({&kOnDevice, 1}, job.base + static_cast<int64_t>(job.committed.size()) + depth - 2,
                 nullptr, job.blocks, Batch::Logits::kLast);
  begin_pass(batch_, rows, rows);
  issue_pass(*this, n_layers);
}

void LaunchList::grow_level(int64_t n) {
  const int64_t top = std::min<int64_t>(options_.draft_top_n, m_.head_rows);
  for (int64_t first = 0; first < n; first += options_.head_chunk_rows) {
    const int64_t some = std::min<int64_t>(options_.head_chunk_rows, n - first);
    head(some);
    add(slice_cost(some, m_.head_rows, top));
    add(merge_cost(some, m_.head_rows, top));
  }
  add(grow_trees_cost(n, 1, top));
}

}  // namespace pf
