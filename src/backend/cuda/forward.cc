// One forward pass of a Llama-like decoder, top to bottom, as launches on one stream.
#include "backend/cuda/forward.h"

#include <algorithm>
#include <cmath>

#include "kernels/gather_rows.h"
#include "kernels/rms_norm.h"
#include "kernels/rope_kv_write.h"
#include "kernels/silu_mul.h"

namespace pf {
namespace {

int32_t n_multiprocessors() {
  int device = 0, n = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device));
  return n;
}

// Partial results of attention: the groups of one row at least, and enough for a wide batch.
int32_t n_parts(const CudaOptions& o) {
  int64_t groups = (o.max_context + kMaxTreeNodes) / kernels::kGroupTokens + 1;
  return static_cast<int32_t>(std::max<int64_t>({groups, 1024, 2 * int64_t{o.max_rows}}));
}

// first, first + step, ... on the device.
DeviceBuffer<int32_t> counting(int32_t n, int32_t step, int32_t first) {
  std::vector<int32_t> values;
  for (int32_t i = 0; i < n; ++i) values.push_back(first + i * step);
  DeviceBuffer<int32_t> out(n);
  cuda_check(cudaMemcpy(out.data(), values.data(), out.bytes(), cudaMemcpyHostToDevice));
  return out;
}

}  // namespace

template <class A>
CudaForward<A>::CudaForward(const CudaModel<A>& m, const CudaOptions& o, Graphs* graphs,
                            cudaStream_t stream)
    : model_(m),
      max_rows_(std::max(o.max_rows, o.head_chunk_rows)),
      chunk_rows_(o.head_chunk_rows),
      graphs_(graphs),
      blas_(o.blas),
      stream_(stream),
      n_thread_blocks_((m.D == 64 ? 3 : 2) * n_multiprocessors()),  // as attention.h asks
      kv_(m.L * o.n_blocks * 2 * m.G * o.block_tokens * m.D),
      plane_{kv_.data(), m.L, o.n_blocks, m.G, o.block_tokens, m.D},
      staging_(size_t{1} << 16),
      writer_({static_cast<int32_t>(m.H), static_cast<int32_t>(m.G), o.block_tokens,
               m.sliding_window, n_parts(o), n_thread_blocks_, m.first_position()}),
      residual_(max_rows_ * m.E),
      angles_(max_rows_ * m.D),
      qkv_(max_rows_ * m.qkv_width()),
      normed_(max_rows_ * m.E),
      queries_(max_rows_ * m.H * m.D),
      attended_(max_rows_ * m.H * m.D),
      gate_up_(max_rows_ * 2 * m.F),
      activated_(max_rows_ * m.F),
      part_values_(n_parts(o) * m.H * m.D),
      part_states_(n_parts(o) * m.H * 2),
      picked_(max_rows_ * m.E),
      hidden_(max_rows_ * m.E),
      chosen_(chunk_rows_ * m.E),
      tap_layers_(o.tap_layers),
      kept_width_(o.keep_hidden
                      ? m.E * std::max<int64_t>(1, static_cast<int64_t>(o.tap_layers.size()))
                      : 0),
      kept_(max_rows_ * kept_width_),
      iota_(counting(max_rows_, 1, 0)),
      head_input_(m, o, max_rows_, stream),
      logits_(chunk_rows_ * m.head_rows) {
  const auto n_taps = static_cast<int32_t>(tap_layers_.size());
  for (int32_t i = 0; i < n_taps; ++i) tap_rows_.push_back(counting(max_rows_, n_taps, i));
  // A tile of keys is read whole; what no sequence has written must be finite.
  cuda_check(cudaMemsetAsync(kv_.data(), 0, kv_.bytes(), stream_));
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
  staging_.begin();
  if (padded > 0)
    PassWriter::place(padded, padded, &staging_, &pass_);
  else
    PassWriter::place(n, std::max(R, n_logit_rows), &staging_, &pass_);
  head_input_.place(&staging_, &pass_);
  head_input_.fill(hidden, &staging_, &pass_);
  writer_.fill(batch, &staging_, &pass_);
  staging_.send(stream_);
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
template <class Y>
void CudaForward<A>::product(View<Y, 2> y, View<const A, 2> x, const CudaMatrix<A>& w, bool add) {
  const kernels::GemmEpilogue epilogue{.bias = nullptr, .add = add};
  if (w.int4 || stretches_.empty()) return multiply(y, x, w, epilogue, stream_);
  for (const Stretch& s : stretches_) {
    View<Y, 2> out{y.data + s.first * w.N, {s.n, w.N}};
    View<const A, 2> in{x.data + s.first * w.K, {s.n, w.K}};
    if (s.by_library)
      blas_({out.data, in.data, w.data.as(), s.n, w.N, w.K, std::is_same_v<A, bf16>,
             std::is_same_v<Y, float>, add},
            stream_);
    else
      multiply(out, in, w, epilogue, stream_);
  }
}

template <class A>
void CudaForward<A>::launch(const Pass& pass, const Staging& staging, const int32_t* tokens,
                            int64_t n_layers) {
  const int64_t T = pass.T;
  enter(pass, staging, tokens);
  kernels::rope_angles({angles_.data(), {T, 2, model_.D / 2}}, staging.view(pass.positions),
                       {model_.rope_inverse.data(), {model_.D / 2}}, model_.rope_factor, stream_);
  const bool keep = kept_width_ > 0 && n_layers == model_.L;
  for (int64_t layer = 0; layer < n_layers; ++layer) {
    if (keep) keep_tap(layer, T);
    run_layer(layer, pass, staging);
  }
  finish(pass, staging, keep);
}

// What enters the first layer.
template <class A>
void CudaForward<A>::enter(const Pass& pass, const Staging& staging, const int32_t* tokens) {
  View<float, 2> residual{residual_.data(), {pass.T, model_.E}};
  if (model_.takes_hidden())
    return head_input_.run(residual, tokens, pass, staging, iota(pass.T),
                           {hidden_.data(), picked_.data()});
  kernels::gather_rows<A, float>(
      residual, View<const A, 2>{model_.embedding.data(), {model_.embedding_rows, model_.E}},
      {tokens, {pass.T}}, stream_);
}

template <class A>
void CudaForward<A>::keep_tap(int64_t layer, int64_t T) {
  const auto n = static_cast<int64_t>(tap_layers_.size());
  for (size_t i = 0; i < tap_layers_.size(); ++i)
    if (tap_layers_[i] == layer)
      kernels::copy_rows<float, A>({kept_.data(), {max_rows_ * n, model_.E}},
                                   {residual_.data(), {T, model_.E}}, iota(T),
                                   {tap_rows_[i].data(), {T}}, stream_);
}

template <class A>
void CudaForward<A>::narrow_rows(View<A, 2> y, View<const float, 2> x) {
  kernels::copy_rows<float, A>(y, x, iota(x.shape[0]), iota(x.shape[0]), stream_);
}

// Hidden states of the logit rows, and of all rows where they are kept.
template <class A>
void CudaForward<A>::finish(const Pass& pass, const Staging& staging, bool keep) {
  View<const float, 2> residual{residual_.data(), {pass.T, model_.E}};
  View<float, 2> picked{picked_.data(), {pass.R, model_.E}};
  kernels::gather_rows<float, float>(picked, residual, staging.view(pass.logit_rows), stream_);
  auto norm = [&](View<A, 2> y, View<const float, 2> x) {
    if (model_.final_norm.size() == 0) return narrow_rows(y, x);
    kernels::rms_norm(y, x, {model_.final_norm.data(), {model_.E}}, model_.epsilon, stream_);
  };
  norm(wide(hidden_, pass.R, model_.E), picked);
  if (!keep) return;
  if (tap_layers_.empty()) return norm(wide(kept_, pass.T, model_.E), residual);
  keep_tap(model_.L, pass.T);
}

template <class A>
void CudaForward<A>::run_layer(int64_t layer, const Pass& pass, const Staging& staging) {
  const CudaLayer<A>& w = model_.layers[static_cast<size_t>(layer)];
  const int64_t T = pass.T, E = model_.E, F = model_.F, H = model_.H, D = model_.D;
  View<float, 2> residual{residual_.data(), {T, E}};
  View<A, 2> normed = wide(normed_, T, E);
  auto norm = [&](const DeviceBuffer<float>& weight) {
    kernels::rms_norm(normed, View<const float, 2>(residual), {weight.data(), {E}}, model_.epsilon,
                      stream_);
  };
  auto add_product = [&](const DeviceBuffer<A>& x, const CudaMatrix<A>& matrix) {
    product(residual, View<const A, 2>{x.data(), {T, matrix.K}}, matrix, true);
  };

  View<const A, 2> input = normed;
  if (model_.reads_wide(layer))
    input = head_input_.joined(T);
  else if (w.attention_norm.size() == 0)
    narrow_rows(normed, residual);
  else
    norm(w.attention_norm);
  View<float, 2> qkv{qkv_.data(), {T, model_.qkv_width()}};
  product(qkv, input, w.qkv, false);
  kernels::rope_kv_write<float, A>({queries_.data(), {T, H, D}}, plane_.layer(layer), qkv,
                                   w.qkv_bias.size() > 0 ? w.qkv_bias.data() : nullptr,
                                   {angles_.data(), {T, 2, D / 2}}, staging.view(pass.places),
                                   stream_);
  attend(layer, pass, staging);
  add_product(attended_, w.o);

  norm(w.ffn_norm);
  View<A, 2> gate_up = wide(gate_up_, T, 2 * F);
  product(gate_up, View<const A, 2>(normed), w.gate_up, false);
  kernels::silu_mul(wide(activated_, T, F), View<const A, 2>(gate_up), stream_);
  add_product(activated_, w.down);
}

template <class A>
void CudaForward<A>::attend(int64_t layer, const Pass& pass, const Staging& staging) {
  const int64_t H = model_.H, D = model_.D;
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  kernels::AttentionParts parts{part_values_.data(), part_states_.data(),
                                part_states_.size() / (2 * H)};
  for (const Pass::Attention& plan : pass.attention) {
    const kernels::AttentionWork work = pass.work(plan, staging);
    kernels::attention(parts, View<const A, 3>{queries_.data(), {pass.T, H, D}},
                       plane_.layer(layer), work, model_.sliding_window, scale, n_thread_blocks_,
                       stream_);
    kernels::attention_combine(View<A, 3>{attended_.data() + plan.first_row * H * D,
                                          {plan.end_row - plan.first_row, H, D}},
                               parts, work, stream_);
  }
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
