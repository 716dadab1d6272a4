// One forward pass of a Llama-like decoder, top to bottom. All threads run it together and meet at
// a barrier wherever one reads what another has written.
//
// What rows cost. Products of few rows run at the memory's speed; all else is work in the caches,
// during which memory gives what the processor fetches ahead by itself. In percent of a step of one
// row: SmolLM2-135M in BF16 behind 64 tokens, one thread of Zen 4, a neighbour on the other core
// (samples of perf over `pilotfish-bench kernels --part step --m 4`, real-time class):
//
//                   products  attention  packing  gate  norms  RoPE, KV  judging  tiles   all
//   one row             96.5        1.6      0.2   0.2    0.1       0.2      0.2    1.0   100
//   a chain of four    105.5        4.1      1.2   1.0    0.6       1.1      0.7    1.1   115
//
// So half of T(4) / T(1) = 1.15 is the products, which alone take 1.11 times as long beside that
// neighbour (1.02-1.05 on a quiet machine), and half is seven small parts that grow with the rows;
// with two threads these are divided too, and 1.07 was measured. Tried on the products without
// gain: asking for the lines of the output before a tile, longer distances of prefetch; every line
// asked for at four rows costs 1.27. What is left is to ask for the next product's first tiles
// while rows are attended to and packed, as attention does for its next keys (score.inc.h).
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_model.h"
#include "backend/cpu/rotate.h"

namespace pf {
namespace {

size_t float_bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

}  // namespace

CpuForward::CpuForward(const CpuModel& model, const CpuOptions& options, ThreadPool& pool,
                       KvPlane* plane)
    : model_(model),
      options_(options),
      pool_(pool),
      plane_(plane),
      max_rows_(std::max(options.max_rows, options.head_chunk_rows)),
      attention_(model.H, model.G, model.D, model.sliding_window, max_rows_, options.max_context,
                 pool.size()),
      shares_{WorkShare(pool.size()), WorkShare(pool.size())} {
  const CpuScratchBytes bytes = cpu_scratch_bytes(model.shape(), options, pool.size());
  s_.residual = Buffer(bytes.residual);
  s_.qkv = Buffer(bytes.qkv);
  s_.attended = Buffer(bytes.attended);
  s_.gate_up = Buffer(bytes.gate_up);
  s_.packed = Buffer(bytes.packed);
  s_.own_packed_bytes = bytes.own_packed;
  s_.own_packed = Buffer(bytes.own_packed * static_cast<size_t>(pool.size()));
  s_.row = Buffer(bytes.row);
  s_.hidden = Buffer(bytes.hidden);
  s_.kept = Buffer(bytes.kept);
  if (model.takes_hidden()) attention_.set_first_position(1);
  s_.joined = Buffer(bytes.joined);
  s_.fused = Buffer(bytes.fused);
  s_.own = Buffer(bytes.own);
  s_.logits = Buffer(bytes.logits);
  s_.cosine.resize(bytes.angles / 8);
  s_.sine.resize(s_.cosine.size());
}

int64_t CpuForward::scratch_bytes() const {
  size_t total = s_.cosine.size() * 8;
  for (const Buffer* b :
       {&s_.residual, &s_.qkv, &s_.attended, &s_.gate_up, &s_.packed, &s_.own_packed, &s_.row,
        &s_.hidden, &s_.kept, &s_.joined, &s_.fused, &s_.own, &s_.logits})
    total += b->bytes();
  return static_cast<int64_t>(total) + attention_.bytes();
}

void CpuForward::run(const Batch& batch, std::span<const Feature> features, int64_t n_layers) {
  if (n_layers == 0) n_layers = model_.L;
  check(batch.n_rows() <= max_rows_, "more rows than the backend was made for");
  check(!model_.takes_hidden() || static_cast<int64_t>(features.size()) == batch.n_rows(),
        "a head needs a hidden state for every row");
  needs_fc_.clear();
  for (size_t r = 0; r < features.size(); ++r)
    if (features[r].needs_fc) needs_fc_.push_back(static_cast<int32_t>(r));
  attention_.plan(batch, *plane_);
  pool_.run([&](int thread) {
    Range rows = split_range(batch.n_rows(), 1, pool_.size(), thread);
    embed(batch, rows);
    prepare_rope(batch, rows);
    if (model_.head_kind == HeadKind::kEagle) mix(batch, features, thread);
    if (model_.head_kind == HeadKind::kEagle3) mix_into_attention(batch, features, thread);
    pool_.barrier().wait();
    for (int64_t layer = 0; layer < n_layers; ++layer) {
      if (options_.tap) {
        pool_.barrier().wait();
        if (thread == 0)
          options_.tap(layer - 1, {s_.residual.as<float>(), {batch.n_rows(), model_.E}});
        pool_.barrier().wait();
      }
      keep_tap(layer, rows);
      run_layer(batch, layer, thread);
    }
    pool_.barrier().wait();
    finish(batch, thread);
  });
  if (options_.tap)
    options_.tap(n_layers - 1, {s_.residual.as<float>(), {batch.n_rows(), model_.E}});
}

void CpuForward::embed(const Batch& batch, Range rows) {
  int64_t E = model_.E;
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* x = s_.residual.as<float>() + r * E;
    int64_t token = batch.tokens[static_cast<size_t>(r)];
    if (model_.embedding.bytes() == 0) {
      model_.head.read_row(token, x);
    } else if (model_.f32) {
      std::memcpy(x, model_.embedding.as<float>() + token * E, float_bytes(E));
    } else {
      const bf16* row = model_.embedding.as<bf16>() + token * E;
      for (int64_t i = 0; i < E; ++i) x[i] = to_float(row[i]);
    }
  }
}

// The states in front of a layer, for a head that reads them there.
void CpuForward::keep_tap(int64_t layer, Range rows) {
  if (!options_.keep_hidden) return;
  const int64_t E = model_.E;
  for (size_t i = 0; i < options_.tap_layers.size(); ++i) {
    if (options_.tap_layers[i] != layer) continue;
    for (int64_t r = rows.begin; r < rows.end; ++r)
      std::memcpy(s_.kept.as<float>() + r * kept_width() + static_cast<int64_t>(i) * E,
                  s_.residual.as<float>() + r * E, float_bytes(E));
  }
}

// x normalised, or as it is where there is no norm.
void CpuForward::norm_or_copy(const std::vector<float>& weight, const float* x, float* y) const {
  if (weight.empty())
    std::memcpy(y, x, float_bytes(model_.E));
  else
    model_.kernels->rms_norm(x, weight.data(), model_.epsilon, model_.E, y);
}

// Embedding and hidden state of the token before, each normalised, to what enters the first layer.
void CpuForward::mix(const Batch& batch, std::span<const Feature> features, int thread) {
  int64_t E = model_.E, T = batch.n_rows();
  Range rows = split_range(T, 1, pool_.size(), thread), packs = T > 1 ? rows : Range{0, T};
  float *row = s_.row.as<float>() + thread * row_width(), *residual = s_.residual.as<float>();
  if (T == 1) pool_.barrier().wait();  // its embedding is one thread's, its packing everyone's
  for (int64_t r = packs.begin; r < packs.end; ++r) {
    norm_or_copy(model_.embedding_norm, residual + r * E, row);
    norm_or_copy(model_.hidden_norm, features[static_cast<size_t>(r)].state, row + E);
    pack_activation(*model_.kernels, model_.fc, row, r, T, packed(T, thread));
  }
  // With one row nobody may write the residual while others still read it.
  if (T == 1) pool_.barrier().wait();
  product(model_.fc, T, residual, E, false, 1, thread);
  add_fc_bias(residual, rows);
}

void CpuForward::add_fc_bias(float* y, Range rows) const {
  if (model_.fc_bias.empty()) return;
  for (int64_t r = rows.begin; r < rows.end; ++r)
    for (int64_t i = 0; i < model_.E; ++i)
      y[r * model_.E + i] += model_.fc_bias[static_cast<size_t>(i)];
}

// The hidden state enters the first layer as it is, behind fc where it is the target's; embedding
// and hidden state, each normalised, are what its attention reads.
void CpuForward::mix_into_attention(const Batch& batch, std::span<const Feature> features,
                                    int thread) {
  int64_t E = model_.E, T = batch.n_rows(), m = static_cast<int64_t>(needs_fc_.size());
  float *residual = s_.residual.as<float>(), *fused = s_.fused.as<float>(),
        *joined = s_.joined.as<float>();
  Range own = split_range(m, 1, pool_.size(), thread), packs = m > 1 ? own : Range{0, m};
  for (int64_t i = packs.begin; i < packs.end; ++i)
    pack_activation(*model_.kernels, model_.fc,
                    features[static_cast<size_t>(needs_fc_[static_cast<size_t>(i)])].state, i, m,
                    packed(m, thread));
  if (m > 0) product(model_.fc, m, fused, E, false, 1, thread);
  add_fc_bias(fused, own);
  pool_.barrier().wait();
  Range rows = split_range(T, 1, pool_.size(), thread);
  auto nth = std::lower_bound(needs_fc_.begin(), needs_fc_.end(), rows.begin) - needs_fc_.begin();
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const Feature& f = features[static_cast<size_t>(r)];
    const float* state = f.needs_fc ? fused + nth++ * E : f.state;
    norm_or_copy(model_.embedding_norm, residual + r * E, joined + r * 2 * E);
    norm_or_copy(model_.hidden_norm, state, joined + r * 2 * E + E);
    std::memcpy(residual + r * E, state, float_bytes(E));
  }
}

void CpuForward::prepare_rope(const Batch& batch, Range rows) {
  int64_t half = model_.D / 2;
  for (int64_t r = rows.begin; r < rows.end; ++r)
    for (int64_t i = 0; i < half; ++i) {
      double angle = static_cast<double>(batch.positions[static_cast<size_t>(r)]) *
                     static_cast<double>(model_.rope.inverse[static_cast<size_t>(i)]);
      s_.cosine[static_cast<size_t>(r * half + i)] =
          static_cast<float>(std::cos(angle)) * model_.rope.attention_factor;
      s_.sine[static_cast<size_t>(r * half + i)] =
          static_cast<float>(std::sin(angle)) * model_.rope.attention_factor;
    }
}

// Where a thread packs its rows of m. One row is packed by every thread for itself: that costs no
// more time than waiting for the one who does it, and saves the barrier.
std::byte* CpuForward::packed(int64_t m, int thread) const {
  return m > 1 ? s_.packed.as() : s_.own_packed.as() + s_.own_packed_bytes * thread;
}

// What a thread packs of m rows for a product. Rows of one chunk lie beside each other at every
// step, so that threads which pack different rows would write to the same lines of memory all the
// time: there each takes some steps of all rows (and normalises them all, which is little). Where
// there are several chunks each takes rows.
CpuForward::Part CpuForward::part_of(const PackedMatrix& w, int64_t m, int thread) const {
  const int64_t whole_lines = w.is_float() ? 16 : 1;  // steps; of ints one is 40 bytes per row
  if (m == 1) return {{0, 1}, {0, w.n_steps}};
  if (m > chunk_rows(*model_.kernels, w.format, m))
    return {split_range(m, 1, pool_.size(), thread), {0, w.n_steps}};
  return {{0, m}, split_range(w.n_steps, whole_lines, pool_.size(), thread)};
}

// y = x W^T (or y += ...) over the m rows that were packed. All threads; y is complete for all of
// them on return. Neighbouring products take turns in `shares_`, so that one can be wound back.
void CpuForward::product(const PackedMatrix& w, int64_t m, float* y, int64_t ldy, bool add,
                         int which, int thread) {
  WorkShare& share = shares_[which % 2];
  if (m > 1) pool_.barrier().wait();
  multiply(*model_.kernels, {&w, packed(m, thread), m, y, ldy, add}, &share, thread);
  pool_.barrier().wait();
  if (thread == 0) share.reset();
}

void CpuForward::run_layer(const Batch& batch, int64_t layer, int thread) {
  const CpuLayer& w = model_.layers[static_cast<size_t>(layer)];
  const CpuKernels& k = *model_.kernels;
  int64_t T = batch.n_rows(), E = model_.E, F = model_.F, wide = model_.qkv_width();
  Range own = split_range(T, 1, pool_.size(), thread);
  float *residual = s_.residual.as<float>(), *attended = s_.attended.as<float>();
  float* row = s_.row.as<float>() + thread * row_width();

  if (model_.reads_wide(layer))
    pack_rows(w.qkv, s_.joined.as<float>(), T, thread);
  else
    normalise(w.attention_norm, w.qkv, T, thread);
  product(w.qkv, T, s_.qkv.as<float>(), wide, false, 0, thread);
  rotate_and_store(model_, batch, layer, own, {s_.cosine.data(), s_.sine.data()},
                   s_.qkv.as<float>(), plane_);
  pool_.barrier().wait();
  attention_.run(k, batch, *plane_, layer, s_.qkv.as<float>(), wide, attended, thread,
                 pool_.barrier());
  pool_.barrier().wait();
  pack_rows(w.o, attended, T, thread);
  product(w.o, T, residual, E, true, 1, thread);

  normalise(w.ffn_norm, w.gate_up, T, thread);
  product(w.gate_up, T, s_.gate_up.as<float>(), 2 * F, false, 2, thread);
  Part part = part_of(w.down, T, thread);
  int64_t first = part.steps.begin * step_width(w.down.format);
  int64_t end = std::min(F, part.steps.end * step_width(w.down.format));
  for (int64_t r = part.rows.begin; r < part.rows.end; ++r) {
    const float* gate = s_.gate_up.as<float>() + r * 2 * F;
    if (first < end) k.silu_mul(gate + first, gate + F + first, end - first, row + first);
    pack_activation(k, w.down, row, r, T, part.steps, packed(T, thread));
  }
  product(w.down, T, residual, E, true, 3, thread);
}

// Rows of x [m, K] packed for the product that follows.
void CpuForward::pack_rows(const PackedMatrix& next, const float* x, int64_t m, int thread) {
  Part part = part_of(next, m, thread);
  for (int64_t r = part.rows.begin; r < part.rows.end; ++r)
    pack_activation(*model_.kernels, next, x + r * next.k, r, m, part.steps, packed(m, thread));
}

// RMS norm (or, without one, the residual as it is) of rows of m, packed likewise.
void CpuForward::normalise(const std::vector<float>& weight, const PackedMatrix& next, int64_t m,
                           int thread) {
  float* row = s_.row.as<float>() + thread * row_width();
  Part part = part_of(next, m, thread);
  for (int64_t r = part.rows.begin; r < part.rows.end; ++r) {
    norm_or_copy(weight, s_.residual.as<float>() + r * model_.E, row);
    pack_activation(*model_.kernels, next, row, r, m, part.steps, packed(m, thread));
  }
}

void CpuForward::finish(const Batch& batch, int thread) {
  int64_t E = model_.E;
  const float* residual = s_.residual.as<float>();
  Range rows = split_range(static_cast<int64_t>(batch.logit_rows.size()), 1, pool_.size(), thread);
  for (int64_t i = rows.begin; i < rows.end; ++i) {
    const float* row = residual + batch.logit_rows[static_cast<size_t>(i)] * E;
    norm_or_copy(model_.final_norm, row, s_.hidden.as<float>() + i * E);
    if (model_.head_kind == HeadKind::kEagle3)
      std::memcpy(s_.own.as<float>() + i * E, row, float_bytes(E));
  }
  if (!options_.keep_hidden) return;
  Range all = split_range(batch.n_rows(), 1, pool_.size(), thread);
  keep_tap(model_.L, all);
  if (!options_.tap_layers.empty()) return;
  for (int64_t r = all.begin; r < all.end; ++r)
    norm_or_copy(model_.final_norm, residual + r * E, s_.kept.as<float>() + r * E);
}

View<float, 2> CpuForward::logits(int32_t first, int32_t n) {
  check(n <= options_.head_chunk_rows, "more logit rows at once than there is room for");
  View<float, 2> out{s_.logits.as<float>(), {n, model_.head_rows}};
  pool_.run([&](int thread) {
    pack_rows(model_.head, s_.hidden.as<float>() + first * model_.E, n, thread);
    product(model_.head, n, out.data, model_.head_rows, false, 0, thread);
  });
  return out;
}

}  // namespace pf
