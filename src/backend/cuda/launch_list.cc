#include "backend/cuda/launch_list.h"

#include <algorithm>

#include "backend/cuda/head_chunks.h"
#include "backend/cuda/head_passes.h"
#include "backend/cuda/int4_shape.h"
#include "backend/cuda/shard.h"
#include "backend/draft_levels.h"

namespace pf {

using namespace kernels;

LaunchList::LaunchList(const Model& model, const Model* embedding_of, const CudaOptions& o,
                       const Multiprocessors& multiprocessors)
    : shard_(o.n_devices > 1 ? std::make_unique<Model>(shard_shapes(model, {0, o.n_devices}))
                             : nullptr),
      model_(shard_ ? *shard_ : model),
      head_(head_of(model_, embedding_of)),
      head_group_(head_int4_group(model_, embedding_of)),
      m_(shape_of(model_, embedding_of)),
      options_(o),
      n_thread_blocks_(n_attention_blocks(m_.D, o.int8_kv, multiprocessors)),
      plan_({static_cast<int32_t>(m_.H), static_cast<int32_t>(m_.G), o.block_tokens,
             static_cast<int32_t>(model.config.sliding_window), n_attention_parts(o),
             n_thread_blocks_}) {
  if (shard_) m_.V = model.head.rows();
}

void LaunchList::clear() {
  launches_.clear();
  in_graph_.clear();
  n_copies_ = n_waits_ = n_exchanges_ = exchanged_bytes_ = 0;
}

void LaunchList::forward(const Batch& batch, int64_t n_layers, int64_t n_logit_rows) {
  const int64_t n = batch.n_rows(), R = static_cast<int64_t>(batch.logit_rows.size());
  if (n == 0) return;
  const int64_t padded = uses_graphs(options_) ? padded_rows(n, n_max_rows(options_)) : 0;
  if (padded > 0)
    begin_pass(batch, padded, padded);
  else
    begin_pass(batch, n, std::max(R, n_logit_rows));
  ++n_copies_;
  capturing_ = padded > 0 && attention_.size() == 1;
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
    // The last plan's rows are those of the padding too.
    const int64_t behind = end == batch.n_rows() ? T : end;
    attention_.push_back(attention_cost(plan_, batch.n_rows(), behind - first, m_.H, m_.G, m_.D,
                                        kv_row_bytes(m_.D, options_.int8_kv), n_thread_blocks_));
    first = end;
  }
}

LaunchCost LaunchList::product(int64_t T, Tensors tensors, OutputBytes out) const {
  return product(T, tensors, model_.config.int4_group, out);
}
LaunchCost LaunchList::product(int64_t T, Tensors tensors, int int4_group, OutputBytes out) const {
  const Int4Shape w = int4_shape_of(std::span(tensors.begin(), tensors.size()), int4_group);
  return options_.int4 ? gemm_int4_cost(T, w, out) : gemm_fp16_cost(T, w.N, w.K, out);
}

void LaunchList::start() { add(start_pass_cost(T_, m_.E, m_.D)); }
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
void LaunchList::norm_logit_rows() {
  if (R_ > 0) add(norm_picked_cost(R_, m_.E));
}

void LaunchList::add_product(int64_t layer, LayerSum which, bool norm_follows) {
  const LayerWeights& w = model_.layers[static_cast<size_t>(layer)];
  const Tensor* w_sum = which == LayerSum::kO ? &w.o : &w.down;
  if (shard_) {
    add(product(T_, {w_sum}, {.written = 4 * T_ * m_.E}));
    exchange(T_ * m_.E);
    add(add_partials_cost(options_.n_devices, T_, m_.E));
    if (norm_follows) add(rms_norm_cost(T_, m_.E));
    return;
  }
  const bool fused = norm_follows && T_ <= kNormRows;
  add(product(T_, {w_sum}, sum_output(T_, m_.E, fused)));
  if (norm_follows && !fused) add(rms_norm_cost(T_, m_.E));
}

// With several devices, the stretches of each row come to the first, which puts them together.
void LaunchList::head(int64_t n) {
  add(product(n, {&head_}, head_group_, {.written = 4 * n * m_.head_rows}));
  if (!shard_) return;
  exchange(n * head_.rows());
  n_copies_ += options_.n_devices;
}

void LaunchList::accept(const Batch& batch) {
  ++n_copies_;
  each_head_chunk(
      options_, batch.segments.size(),
      [&](size_t s) { return Batch::n_logit_rows(batch.segments[s]); },
      [&](const HeadChunk& c) {
        add(gather_rows_cost(c.n_rows, m_.E, 2, 2));
        head(c.n_rows);
        add(make_laws_cost(c.n_rows, m_.V));
        add(accept_cost(c.n_sequences(), m_.V));
      });
  ++n_waits_;
}

void LaunchList::propose(std::span<const ProposeJob> jobs, int64_t n_layers) {
  n_layers_ = n_layers == 0 ? m_.L : n_layers;
  for (size_t first = 0; first < jobs.size();) {
    const size_t n = DraftLevels::n_together(jobs, first, n_max_rows(options_));
    jobs_.set(jobs.subspan(first, n));
    draft_chains(*this, jobs_, n_max_rows(options_), uses_graphs(options_));
    first += n;
  }
}

void LaunchList::run_committed(int64_t padded) {
  jobs_.committed(&batch_, &hidden_);
  forward(batch_, n_layers_, padded);
}

void LaunchList::run_levels(int64_t padded) {
  const size_t begin = launches_.size();
  fixed_ = true;
  issue_levels(*this, jobs_, padded, options_.head_chunk_rows);
  if (padded > 0 && fixed_)
    std::fill(in_graph_.begin() + static_cast<std::ptrdiff_t>(begin), in_graph_.end(), true);
}

void LaunchList::feed(int32_t depth, int64_t n) {
  jobs_.level(depth, &batch_, &hidden_);
  begin_pass(batch_, n, n);
  fixed_ &= attention_.size() == 1;
  issue_pass(*this, n_layers_);
}

void LaunchList::list(int32_t, int64_t, int64_t n) {
  head(n);
  add(slice_cost(n, m_.head_rows, top_n()));
  add(merge_cost(n, m_.head_rows, top_n()));
}

void LaunchList::propose_heads(const Model& heads, int64_t n_jobs, int32_t n_levels) {
  heads_ = &heads;
  for (int64_t first = 0; first < n_jobs; first += T_) {
    T_ = std::min<int64_t>(options_.head_chunk_rows, n_jobs - first);
    issue_heads(*this, n_levels);
  }
}

void LaunchList::gather_states() {
  ++n_copies_;
  add(gather_rows_cost(T_, m_.E, 2, 2));
}
int32_t LaunchList::n_head_blocks(int32_t h) const {
  return static_cast<int32_t>(heads_->medusa[static_cast<size_t>(h)].blocks.size());
}
LaunchCost LaunchList::head_product(const Tensor& w) const {
  return product(T_, {&w}, heads_->config.int4_group, {.written = 4 * T_ * w.rows()});
}
void LaunchList::run_head_block(int32_t h, int32_t b) {
  const MedusaHead& head = heads_->medusa[static_cast<size_t>(h)];
  add(head_product(head.blocks[static_cast<size_t>(b)].w));
  add(residual_silu_cost(T_, m_.E));
}
void LaunchList::list_head(int32_t h) {
  const Tensor& out = heads_->medusa[static_cast<size_t>(h)].out;
  const int64_t V = out.rows(), listed = std::min<int64_t>(options_.draft_top_n, V);
  add(head_product(out));
  add(slice_cost(T_, V, listed));
  add(merge_cost(T_, V, listed));
}

void LaunchList::grow(int32_t, int64_t n) { add(grow_trees_cost(n, 1, top_n())); }

}  // namespace pf
