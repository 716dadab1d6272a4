// One forward pass of a Llama-like decoder, top to bottom. All threads run it together and meet at
// a barrier wherever one reads what another has written.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_model.h"

namespace pf {
namespace {

size_t float_bytes(int64_t n) { return static_cast<size_t>(n) * sizeof(float); }

// The largest activation chunk that any product of this model reads.
size_t packed_bytes(const CpuModel& m, int64_t rows) {
  int64_t most = 0;
  auto see = [&](const PackedMatrix& w) {
    most = std::max(most, packed_rows_bytes(w.format, w.n_steps, rows));
  };
  for (const CpuLayer& l : m.layers)
    for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up, &l.down}) see(*w);
  for (const PackedMatrix* w : {&m.head, &m.fc}) see(*w);
  return static_cast<size_t>(most);
}

}  // namespace

CpuForward::CpuForward(const CpuModel& model, const CpuOptions& options, ThreadPool& pool,
                       KvPlane* plane)
    : model_(model),
      options_(options),
      pool_(pool),
      plane_(plane),
      max_rows_(std::max(options.max_rows, options.head_chunk_rows)),
      attention_(model.H, model.G, model.D, model.sliding_window, max_rows_, options.max_context,
                 pool.size()) {
  int64_t T = max_rows_, chunk = options.head_chunk_rows;
  s_.residual = Buffer(float_bytes(T * model.E));
  s_.qkv = Buffer(float_bytes(T * model.qkv_width()));
  s_.attended = Buffer(float_bytes(T * model.H * model.D));
  s_.gate_up = Buffer(float_bytes(T * 2 * model.F));
  s_.packed = Buffer(packed_bytes(model, T));
  s_.row = Buffer(float_bytes(pool.size() * row_width()));
  s_.hidden = Buffer(float_bytes(T * model.E));
  if (options.keep_hidden) s_.kept = Buffer(float_bytes(T * model.E));
  if (model.fc.n > 0) attention_.set_first_position(1);
  s_.logits = Buffer(float_bytes(chunk * model.head_rows));
  s_.cosine.resize(static_cast<size_t>(T * model.D / 2));
  s_.sine.resize(s_.cosine.size());
}

int64_t CpuForward::scratch_bytes() const {
  size_t total = s_.cosine.size() * 8;
  for (const Buffer* b : {&s_.residual, &s_.qkv, &s_.attended, &s_.gate_up, &s_.packed, &s_.row,
                          &s_.hidden, &s_.kept, &s_.logits})
    total += b->bytes();
  return static_cast<int64_t>(total) + attention_.bytes();
}

void CpuForward::run(const Batch& batch, std::span<const float* const> features, int64_t n_layers) {
  if (n_layers == 0) n_layers = model_.L;
  check(batch.n_rows() <= max_rows_, "more rows than the backend was made for");
  prepare_rope(batch);
  attention_.plan(batch, *plane_);
  pool_.run([&](int thread) {
    Range rows = split_range(batch.n_rows(), 1, pool_.size(), thread);
    embed(batch, rows);
    if (model_.fc.n > 0) mix(batch, features, rows, thread);
    for (int64_t layer = 0; layer < n_layers; ++layer) {
      if (options_.tap) {
        pool_.barrier().wait();
        if (thread == 0)
          options_.tap(layer - 1, {s_.residual.as<float>(), {batch.n_rows(), model_.E}});
        pool_.barrier().wait();
      }
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
    if (model_.f32) {
      std::memcpy(x, model_.embedding.as<float>() + token * E, float_bytes(E));
    } else {
      const bf16* row = model_.embedding.as<bf16>() + token * E;
      for (int64_t i = 0; i < E; ++i) x[i] = to_float(row[i]);
    }
  }
}

// Embedding and hidden state of the token before, each normalised, to what enters the first layer.
void CpuForward::mix(const Batch& batch, std::span<const float* const> features, Range rows,
                     int thread) {
  const CpuKernels& k = *model_.kernels;
  int64_t E = model_.E, T = batch.n_rows();
  check(static_cast<int64_t>(features.size()) == T, "a head needs a hidden state for every row");
  float *row = s_.row.as<float>() + thread * row_width(), *residual = s_.residual.as<float>();
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    k.rms_norm(residual + r * E, model_.embedding_norm.data(), model_.epsilon, E, row);
    k.rms_norm(features[static_cast<size_t>(r)], model_.hidden_norm.data(), model_.epsilon, E,
               row + E);
    pack_activation(k, model_.fc, row, r, T, s_.packed.as());
  }
  pool_.barrier().wait();
  multiply(k, {&model_.fc, s_.packed.as(), T, residual, E, false}, thread, pool_.size());
  pool_.barrier().wait();
}

void CpuForward::prepare_rope(const Batch& batch) {
  int64_t half = model_.D / 2;
  for (int64_t r = 0; r < batch.n_rows(); ++r)
    for (int64_t i = 0; i < half; ++i) {
      double angle = static_cast<double>(batch.positions[static_cast<size_t>(r)]) *
                     static_cast<double>(model_.rope.inverse[static_cast<size_t>(i)]);
      s_.cosine[static_cast<size_t>(r * half + i)] =
          static_cast<float>(std::cos(angle)) * model_.rope.attention_factor;
      s_.sine[static_cast<size_t>(r * half + i)] =
          static_cast<float>(std::sin(angle)) * model_.rope.attention_factor;
    }
}

void CpuForward::run_layer(const Batch& batch, int64_t layer, int thread) {
  const CpuLayer& w = model_.layers[static_cast<size_t>(layer)];
  const CpuKernels& k = *model_.kernels;
  SpinBarrier& barrier = pool_.barrier();
  int64_t T = batch.n_rows(), E = model_.E, F = model_.F, wide = model_.qkv_width();
  Range rows = split_range(T, 1, pool_.size(), thread);
  float* residual = s_.residual.as<float>();
  const std::byte* packed = s_.packed.as();
  auto product = [&](const PackedMatrix& matrix, float* y, int64_t ldy, bool add) {
    barrier.wait();
    multiply(k, {&matrix, packed, T, y, ldy, add}, thread, pool_.size());
    barrier.wait();
  };

  normalise(w.attention_norm, w.qkv, rows, T, thread);
  product(w.qkv, s_.qkv.as<float>(), wide, false);
  rotate_and_store(batch, layer, rows);
  barrier.wait();
  attention_.run(k, batch, *plane_, layer, s_.qkv.as<float>(), wide, s_.attended.as<float>(),
                 thread, barrier);
  for (int64_t r = rows.begin; r < rows.end; ++r)
    pack_activation(k, w.o, s_.attended.as<float>() + r * model_.H * model_.D, r, T,
                    s_.packed.as());
  product(w.o, residual, E, true);

  normalise(w.ffn_norm, w.gate_up, rows, T, thread);
  product(w.gate_up, s_.gate_up.as<float>(), 2 * F, false);
  float* row = s_.row.as<float>() + thread * row_width();
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    const float* gate = s_.gate_up.as<float>() + r * 2 * F;
    k.silu_mul(gate, gate + F, F, row);
    pack_activation(k, w.down, row, r, T, s_.packed.as());
  }
  product(w.down, residual, E, true);
}

// RMS norm of this thread's rows, packed for the product that follows.
void CpuForward::normalise(const std::vector<float>& weight, const PackedMatrix& next, Range rows,
                           int64_t m, int thread) {
  float* row = s_.row.as<float>() + thread * row_width();
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    model_.kernels->rms_norm(s_.residual.as<float>() + r * model_.E, weight.data(), model_.epsilon,
                             model_.E, row);
    pack_activation(*model_.kernels, next, row, r, m, s_.packed.as());
  }
}

// Bias, rotary position, K and V into their slots; queries scaled by 1 / sqrt(D).
void CpuForward::rotate_and_store(const Batch& batch, int64_t layer, Range rows) {
  const CpuLayer& w = model_.layers[static_cast<size_t>(layer)];
  int64_t D = model_.D, half = D / 2;
  float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t r = rows.begin; r < rows.end; ++r) {
    float* x = s_.qkv.as<float>() + r * model_.qkv_width();
    if (!w.qkv_bias.empty())
      for (int64_t i = 0; i < model_.qkv_width(); ++i) x[i] += w.qkv_bias[static_cast<size_t>(i)];
    const float *cosine = &s_.cosine[static_cast<size_t>(r * half)],
                *sine = &s_.sine[static_cast<size_t>(r * half)];
    for (int64_t h = 0; h < model_.H + model_.G; ++h) {
      float *a = x + h * D, *b = a + half, by = h < model_.H ? scale : 1.0f;
      for (int64_t i = 0; i < half; ++i) {
        float u = a[i], v = b[i];
        a[i] = (u * cosine[i] - v * sine[i]) * by;
        b[i] = (v * cosine[i] + u * sine[i]) * by;
      }
    }
    size_t row = static_cast<size_t>(r);
    const Segment& s = batch.segments[static_cast<size_t>(batch.row_segment[row])];
    for (int which = 0; which < 2; ++which)
      for (int64_t g = 0; g < model_.G; ++g) {
        const float* from = x + (model_.H + which * model_.G + g) * D;
        std::byte* to = plane_->slot(layer, s, batch.slots[row], which, g);
        if (plane_->f32()) {
          std::memcpy(to, from, float_bytes(D));
        } else {
          for (int64_t i = 0; i < D; ++i) reinterpret_cast<bf16*>(to)[i] = to_bf16(from[i]);
        }
      }
  }
}

void CpuForward::finish(const Batch& batch, int thread) {
  int64_t E = model_.E;
  auto norm = [&](int64_t row, float* out) {
    model_.kernels->rms_norm(s_.residual.as<float>() + row * E, model_.final_norm.data(),
                             model_.epsilon, E, out);
  };
  Range rows = split_range(static_cast<int64_t>(batch.logit_rows.size()), 1, pool_.size(), thread);
  for (int64_t i = rows.begin; i < rows.end; ++i)
    norm(batch.logit_rows[static_cast<size_t>(i)], s_.hidden.as<float>() + i * E);
  if (!options_.keep_hidden) return;
  Range all = split_range(batch.n_rows(), 1, pool_.size(), thread);
  for (int64_t r = all.begin; r < all.end; ++r) norm(r, s_.kept.as<float>() + r * E);
}

View<float, 2> CpuForward::logits(int32_t first, int32_t n) {
  check(n <= options_.head_chunk_rows, "more logit rows at once than there is room for");
  View<float, 2> out{s_.logits.as<float>(), {n, model_.head_rows}};
  pool_.run([&](int thread) {
    Range rows = split_range(n, 1, pool_.size(), thread);
    for (int64_t r = rows.begin; r < rows.end; ++r)
      pack_activation(*model_.kernels, model_.head, s_.hidden.as<float>() + (first + r) * model_.E,
                      r, n, s_.packed.as());
    pool_.barrier().wait();
    multiply(*model_.kernels, {&model_.head, s_.packed.as(), n, out.data, model_.head_rows}, thread,
             pool_.size());
  });
  return out;
}

}  // namespace pf
