// One forward pass of a Llama-like decoder, top to bottom, as launches on one stream.
#include "backend/cuda/forward.h"

#include <algorithm>
#include <cmath>

#include "backend/cuda/limits.h"
#include "backend/cuda/multiprocessors.h"
#include "backend/cuda/passes.h"
#include "kernels/add_partials.h"
#include "kernels/gather_rows.h"
#include "kernels/pass_ends.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_kv_write.h"
#include "kernels/silu_mul.h"

namespace pf {
namespace {

// first, first + step, ... on the device.
DeviceBuffer<int32_t> counting(int32_t n, int32_t step, int32_t first) {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < n; ++i) values.push_back(first + i * step);
  DeviceBuffer<int32_t> out(n);
  if (n > 0) cuda_check(cudaMemcpy(out.data(), values.data(), out.bytes(), cudaMemcpyHostToDevice));
  return out;
}

// Rows of D that the plane has room for: a key and a value of each slot, layer and KV head.
template <class A>
int64_t kv_rows(const CudaModel<A>& m, const CudaOptions& o) {
  return m.L * o.n_blocks * 2 * m.G * o.block_tokens;
}

}  // namespace

template <class A>
CudaForward<A>::CudaForward(const CudaModel<A>& m, const CudaOptions& o, Graphs* graphs,
                            cudaStream_t stream)
    : model_(m),
      max_rows_(n_max_rows(o)),
      chunk_rows_(o.head_chunk_rows),
      graphs_(graphs),
      blas_(o.blas),
      stream_(stream),
      n_thread_blocks_(kernels::n_attention_blocks(m.D, o.int8_kv, multiprocessors())),
      kv_(static_cast<size_t>(kv_rows(m, o) * m.D) * (o.int8_kv ? 1 : sizeof(A))),
      kv_scales_(o.int8_kv ? kv_rows(m, o) : 0),
      plane_{o.int8_kv ? nullptr : kv_.as<A>(),
             m.L,
             o.n_blocks,
             m.G,
             o.block_tokens,
             m.D,
             o.int8_kv ? kv_.as<int8_t>() : nullptr,
             kv_scales_.data()},
      staging_(kForwardStaging),
      writer_({static_cast<int32_t>(m.H), static_cast<int32_t>(m.G), o.block_tokens,
               m.sliding_window, n_attention_parts(o), n_thread_blocks_, m.first_position()}),
      residual_(max_rows_ * m.E),
      angles_(max_rows_ * m.D),
      qkv_(keeps_qkv(o) ? max_rows_ * m.qkv_width() : 0),
      normed_(max_rows_ * m.E),
      queries_(max_rows_ * m.H * m.D),
      attended_(max_rows_ * m.H * m.D),
      activated_(max_rows_ * m.F),
      gate_up_(has_library(o) ? max_rows_ * 2 * m.F : 0),
      part_values_(n_attention_parts(o) * m.H * m.D),
      part_states_(n_attention_parts(o) * m.H * 2),
      tickets_(n_attention_parts(o) * m.G * 2),
      picked_(m.takes_hidden() ? max_rows_ * m.E : 0),
      hidden_(max_rows_ * m.E),
      chosen_(chunk_rows_ * m.E),
      tap_layers_(o.tap_layers),
      kept_width_(o.keep_hidden
                      ? m.E * std::max<int64_t>(1, static_cast<int64_t>(o.tap_layers.size()))
                      : 0),
      kept_(max_rows_ * kept_width_),
      iota_(counting(m.takes_hidden() || o.keep_hidden ? max_rows_ : 0, 1, 0)),
      head_input_(m, o, max_rows_, stream),
      logits_(chunk_rows_ * m.head_rows),
      counters_(1) {
  const auto n_taps = o.keep_hidden ? static_cast<int32_t>(tap_layers_.size()) : 0;
  for (int32_t i = 0; i < n_taps; ++i) tap_rows_.push_back(counting(max_rows_, n_taps, i));
  // A tile of keys is read whole; what no sequence has written must be finite.
  cuda_check(cudaMemsetAsync(kv_.as(), 0, kv_.bytes(), stream_));
  if (o.int8_kv) cuda_check(cudaMemsetAsync(kv_scales_.data(), 0, kv_scales_.bytes(), stream_));
  // Attention is planned for nodes that the draft may turn out not to have: it reads their queries.
  cuda_check(cudaMemsetAsync(queries_.data(), 0, queries_.bytes(), stream_));
  cuda_check(cudaMemsetAsync(counters_.data(), 0, counters_.bytes(), stream_));
  cuda_check(cudaMemsetAsync(tickets_.data(), 0, tickets_.bytes(), stream_));
}

template <class A>
int64_t CudaForward<A>::scratch_bytes() const {
  size_t total = staging_.bytes() + (blas_ ? size_t{kBlasWorkspaceBytes} : 0);
  for (const DeviceBuffer<float>* a :
       {&residual_, &angles_, &qkv_, &part_values_, &part_states_, &picked_, &logits_})
    total += a->bytes();
  for (const DeviceBuffer<A>* a :
       {&normed_, &queries_, &attended_, &gate_up_, &activated_, &hidden_, &chosen_, &kept_})
    total += a->bytes();
  total += iota_.bytes() + counters_.bytes() + tickets_.bytes();
  for (const DeviceBuffer<int32_t>& rows : tap_rows_) total += rows.bytes();
  return static_cast<int64_t>(total) + head_input_.bytes();
}

template <class A>
void CudaForward<A>::run(const Batch& batch, int64_t n_layers, int64_t n_logit_rows,
                         std::span<const HiddenRef> hidden) {
  const int64_t n = batch.n_rows(), R = static_cast<int64_t>(batch.logit_rows.size());
  check(n <= max_rows_, "more rows than the backend was made for");
  check(!model_.takes_hidden() || static_cast<int64_t>(hidden.size()) == n,
        "a head needs a hidden state for every row");
  if (n == 0) return;
  if (n_layers == 0) n_layers = model_.L;
  const int32_t padded = graphs_ != nullptr ? padded_rows(n, max_rows_) : 0;
  if (padded > 0)
    prepare(batch, padded, padded, hidden);
  else
    prepare(batch, n, std::max(R, n_logit_rows), hidden);
  auto issue = [&] { launch(pass_, staging_, staging_.at(pass_.tokens), n_layers); };
  if (padded == 0 || !pass_.fixed()) {
    if (padded == 0) find_prompts(batch);
    issue();
    stretches_.clear();
    return;
  }
  graphs_->rest_on(GraphKey::Kind::kPass, {staging_.base()}, stream_);
  graphs_->run(
      {GraphKey::Kind::kPass, padded, static_cast<int32_t>(n_layers), head_input_.variant(pass_)},
      stream_, issue);
}

template <class A>
void CudaForward<A>::prepare(const Batch& batch, int64_t T, int64_t R,
                             std::span<const HiddenRef> hidden) {
  staging_.begin();
  PassWriter::place(T, R, &staging_, &pass_);
  head_input_.place(&staging_, &pass_);
  head_input_.fill(hidden, &staging_, &pass_);
  writer_.fill(batch, &staging_, &pass_);
  staging_.send(stream_);
}

template <class A>
void CudaForward<A>::prepare_as(const CudaForward& other) {
  staging_.begin();
  pass_ = other.pass_;
  staging_.copy(other.staging_);
  staging_.send(stream_);
}

// A library multiplies the rows of prompts whose chunks no graph would hold, and no others: a row
// of decode or verification has its bits whoever is in the batch.
template <class A>
void CudaForward<A>::find_prompts(const Batch& batch) {
  stretches_.clear();
  if (!blas_) return;
  for (const Segment& s : batch.segments) {
    const bool by_library = padded_rows(s.n_plain, max_rows_) == 0;
    if (stretches_.empty() || by_library || stretches_.back().by_library)
      stretches_.push_back({s.first_row, 0, by_library});
    stretches_.back().n += s.n_rows;
  }
}

template <class A>
std::span<const typename CudaForward<A>::Stretch> CudaForward<A>::stretches(
    int64_t T, const CudaMatrix<A>& w) {
  if (!w.int4 && !stretches_.empty()) return stretches_;
  all_ = {0, T, false};
  return {&all_, 1};
}

template <class A>
template <class Y>
void CudaForward<A>::product_by_library(View<Y, 2> y, View<const A, 2> x, const CudaMatrix<A>& w,
                                        bool add) {
  blas_({y.data, x.data, w.data.as(), x.shape[0], w.N, w.K, std::is_same_v<A, bf16>,
         std::is_same_v<Y, float>, add},
        stream_);
}

template <class A>
void CudaForward<A>::add_product(View<float, 2> y, View<const A, 2> x, const CudaMatrix<A>& w) {
  for (const Stretch& s : stretches(x.shape[0], w))
    if (s.by_library)
      product_by_library(y.rows(s.first, s.n), x.rows(s.first, s.n), w, true);
    else
      multiply(y.rows(s.first, s.n), x.rows(s.first, s.n), w, {.add = true}, stream_);
}

// The operations of passes.h, of one pass.
template <class A>
struct CudaForward<A>::Ops {
  CudaForward& f;
  const Pass& pass;
  const Staging& staging;
  const int32_t* tokens;
  const CudaModel<A>& m;
  const bool keep;  // states for a head

  View<float, 2> residual() const { return {f.residual_.data(), {pass.T, m.E}}; }
  View<float, 2> picked() const { return {f.picked_.data(), {pass.R, m.E}}; }
  View<A, 2> normed() const { return f.wide(f.normed_, pass.T, m.E); }
  const CudaLayer<A>& layer_of(int64_t layer) const { return m.layers[static_cast<size_t>(layer)]; }

  void final_norm_to(View<A, 2> y, View<const float, 2> x) const {
    if (m.final_norm.size() == 0) return f.narrow_rows(y, x);
    kernels::rms_norm(y, x, {m.final_norm.data(), {m.E}}, m.epsilon, f.stream_);
  }

  void start() {
    const View<float, 3> angles{f.angles_.data(), {pass.T, 2, m.D / 2}};
    const View<const float, 1> inverse{m.rope_inverse.data(), {m.D / 2}};
    if (!m.takes_hidden())
      return kernels::start_pass<A>({.residual = residual(),
                                     .normed = normed(),
                                     .angles = angles,
                                     .embedding = {m.embedding.data(), {m.embedding_rows, m.E}},
                                     .tokens = {tokens, {pass.T}},
                                     .positions = staging.view(pass.positions),
                                     .norm = {layer_of(0).attention_norm.data(), {m.E}},
                                     .inverse = inverse,
                                     .epsilon = m.epsilon,
                                     .rope_factor = m.rope_factor},
                                    f.stream_);
    f.head_input_.run(residual(), tokens, pass, staging, f.iota(pass.T),
                      {f.hidden_.data(), f.picked_.data()});
    kernels::rope_angles(angles, staging.view(pass.positions), inverse, m.rope_factor, f.stream_);
    if (!m.reads_wide(0)) norm(layer_of(0).attention_norm);
  }
  void norm(const DeviceBuffer<float>& w) {
    if (w.size() == 0) return f.narrow_rows(normed(), residual());
    kernels::rms_norm(normed(), View<const float, 2>(residual()), {w.data(), {m.E}}, m.epsilon,
                      f.stream_);
  }
  void make_queries(int64_t layer) {
    const CudaLayer<A>& w = layer_of(layer);
    const View<const A, 2> x =
        m.reads_wide(layer) ? f.head_input_.joined(pass.T) : View<const A, 2>(normed());
    const kernels::RopeTarget<A> target = kernels::rope_target<A>(
        {f.queries_.data(), {pass.T, m.H, m.D}}, f.plane_.layer(layer),
        w.qkv_bias.size() > 0 ? w.qkv_bias.data() : nullptr,
        {f.angles_.data(), {pass.T, 2, m.D / 2}}, staging.view(pass.places));
    for (const Stretch& s : f.stretches(pass.T, w.qkv)) {
      const kernels::RopeTarget<A> to = target.rows(s.first, s.n);
      const View<const A, 2> in = x.rows(s.first, s.n);
      const View<float, 2> qkv{f.qkv_.data(), {s.n, m.qkv_width()}};
      if (s.by_library)
        f.product_by_library(qkv, in, w.qkv, false);
      else if (f.plane_.int8 != nullptr)
        pf::multiply(qkv, in, w.qkv, {}, f.stream_);
      else {
        pf::multiply(kernels::GemmOutput<A>::rope(to), in, w.qkv, f.stream_);
        continue;
      }
      kernels::rope_kv_write<A>(to, qkv, f.stream_);
    }
  }
  void attend(int64_t layer) {
    const int64_t H = m.H, D = m.D;
    const float scale = 1.0f / std::sqrt(static_cast<float>(D));
    kernels::AttentionParts parts{f.part_values_.data(), f.part_states_.data(), f.tickets_.data(),
                                  f.part_states_.size() / (2 * H)};
    for (const Pass::Attention& plan : pass.attention)
      kernels::attention(View<A, 3>{f.attended_.data() + plan.first_row * H * D,
                                    {plan.end_row - plan.first_row, H, D}},
                         parts, View<const A, 3>{f.queries_.data(), {pass.T, H, D}},
                         f.plane_.layer(layer), pass.work(plan, staging), m.sliding_window, scale,
                         f.n_thread_blocks_, f.stream_);
  }
  const DeviceBuffer<float>& norm_behind(int64_t layer, LayerSum which) const {
    return which == LayerSum::kO ? layer_of(layer).ffn_norm : layer_of(layer + 1).attention_norm;
  }
  void add_product(int64_t layer, LayerSum which, bool norm_follows) {
    const bool is_o = which == LayerSum::kO;
    const CudaMatrix<A>& w = is_o ? layer_of(layer).o : layer_of(layer).down;
    const DeviceBuffer<A>& from = is_o ? f.attended_ : f.activated_;
    const View<const A, 2> x{from.data(), {pass.T, w.K}};
    if (f.partials_ != nullptr)
      return pf::multiply(View<float, 2>{f.partials_, {pass.T, m.E}}, x, w, {}, f.stream_);
    if (!norm_follows) return f.add_product(residual(), x, w);
    const DeviceBuffer<float>& weights = norm_behind(layer, which);
    if (weights.size() > 0 && pass.T <= kernels::kNormRows) {
      auto to = kernels::GemmOutput<A>::rows(residual(), {.add = true});
      to.norm = {f.normed_.data(), weights.data(), m.epsilon, f.counters_.data()};
      return pf::multiply(to, x, w, f.stream_);
    }
    f.add_product(residual(), x, w);
    norm(weights);
  }
  void activate(int64_t layer) {
    const CudaMatrix<A>& w = layer_of(layer).gate_up;
    const View<A, 2> y = f.wide(f.activated_, pass.T, m.F);
    const View<const A, 2> x = normed();
    for (const Stretch& s : f.stretches(pass.T, w)) {
      if (!s.by_library) {
        pf::multiply(kernels::GemmOutput<A>::silu(y.rows(s.first, s.n)), x.rows(s.first, s.n), w,
                     f.stream_);
        continue;
      }
      const View<A, 2> gate_up = f.wide(f.gate_up_, s.n, 2 * m.F);
      f.product_by_library(gate_up, x.rows(s.first, s.n), w, false);
      kernels::silu_mul(y.rows(s.first, s.n), View<const A, 2>(gate_up), f.stream_);
    }
  }
  void norm_logit_rows() {
    const View<A, 2> hidden = f.wide(f.hidden_, pass.R, m.E);
    const View<const int32_t, 1> rows = staging.view(pass.logit_rows);
    if (!m.takes_hidden())
      return kernels::norm_picked_rows<A>(hidden, residual(), rows, {m.final_norm.data(), {m.E}},
                                          m.epsilon, f.stream_);
    kernels::gather_rows<float, float>(picked(), residual(), rows, f.stream_);
    final_norm_to(hidden, picked());
  }
  void keep_tap(int64_t layer) {
    if (!keep) return;
    const auto n = static_cast<int64_t>(f.tap_layers_.size());
    for (size_t i = 0; i < f.tap_layers_.size(); ++i)
      if (f.tap_layers_[i] == layer)
        kernels::copy_rows<float, A>({f.kept_.data(), {f.max_rows_ * n, m.E}}, residual(),
                                     f.iota(pass.T), {f.tap_rows_[i].data(), {pass.T}}, f.stream_);
  }
  void keep_last() {
    if (keep && f.tap_layers_.empty())
      return final_norm_to(f.wide(f.kept_, pass.T, m.E), residual());
    keep_tap(m.L);
  }
};

template <class A>
void CudaForward<A>::narrow_rows(View<A, 2> y, View<const float, 2> x) {
  kernels::copy_rows<float, A>(y, x, iota(x.shape[0]), iota(x.shape[0]), stream_);
}

template <class A>
void CudaForward<A>::launch(const Pass& pass, const Staging& staging, const int32_t* tokens,
                            int64_t n_layers) {
  Ops ops{*this, pass, staging, tokens, model_, kept_width_ > 0 && n_layers == model_.L};
  issue_pass(ops, n_layers);
}

template <class A>
void CudaForward<A>::launch_part(PassPart part, int64_t layer) {
  Ops ops{*this, pass_, staging_, staging_.at(pass_.tokens), model_, kept_width_ > 0};
  switch (part) {
    case PassPart::kBegin:
      return issue_begin(ops);
    case PassPart::kAttention:
      return issue_attention(ops, layer);
    case PassPart::kFfn:
      return issue_ffn(ops, layer, layer + 1 == model_.L);
    case PassPart::kEnd:
      return issue_end(ops);
  }
}

template <class A>
void CudaForward<A>::add_partials(PassPart part, int64_t layer, const float* partials, int64_t n) {
  Ops ops{*this, pass_, staging_, staging_.at(pass_.tokens), model_, false};
  kernels::add_partials(ops.residual(), {partials, {n, pass_.T, model_.E}}, stream_);
  if (part == PassPart::kAttention)
    ops.norm(ops.norm_behind(layer, LayerSum::kO));
  else if (layer + 1 < model_.L)
    ops.norm(ops.norm_behind(layer, LayerSum::kDown));
}

template <class A>
View<float, 2> CudaForward<A>::logits(View<const int32_t, 1> rows) {
  const int64_t n = rows.shape[0], E = model_.E;
  check(n <= chunk_rows_, "more logit rows at once than there is room for");
  View<A, 2> chosen = wide(chosen_, n, E);
  kernels::gather_rows<A, A>(chosen, View<const A, 2>{hidden_.data(), {max_rows_, E}}, rows,
                             stream_);
  View<float, 2> out{logits_.data(), {n, model_.head_rows}};
  multiply(out, View<const A, 2>(chosen), model_.head, {}, stream_);
  return out;
}

template <class A>
View<float, 2> CudaForward<A>::logits(int32_t first, int32_t n) {
  check(n <= chunk_rows_, "more logit rows at once than there is room for");
  View<float, 2> out{logits_.data(), {n, model_.head_rows}};
  multiply(out, View<const A, 2>{hidden_.data() + first * model_.E, {n, model_.E}}, model_.head, {},
           stream_);
  return out;
}

template class CudaForward<f16>;
template class CudaForward<bf16>;

}  // namespace pf
