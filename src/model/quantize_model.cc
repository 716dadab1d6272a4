#include <cmath>
#include <cstring>

#include "base/dtype.h"
#include "model/families.h"
#include "model/quantize.h"

namespace pf {
namespace {

constexpr int64_t kGroup = 32;

struct Errors {
  double squares = 0;     // of the differences
  double magnitudes = 0;  // squares of the values
};

// One row to F16 or F32.
Status store_plain(TensorType type, const float* x, int64_t n, std::byte* out) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return invalid("holds NaN or infinity");
    if (type == TensorType::kF32) {
      std::memcpy(out + 4 * i, x + i, 4);
      continue;
    }
    f16 h = to_f16(x[i]);
    if (!std::isfinite(to_float(h))) return invalid("holds a magnitude above 65504");
    std::memcpy(out + 2 * i, &h.bits, 2);
  }
  return {};
}

// Rows [range.begin, range.end) of `from` into `to`, whose bytes are `out`.
Status convert_rows(const Tensor& from, const Tensor& to, int group, Range range, std::byte* out,
                    Errors* errors) {
  int64_t n = from.cols(), bytes = row_bytes(to.type, n);
  std::vector<float> before(static_cast<size_t>(n)), after(before);
  for (int64_t row = range.begin; row < range.end; ++row) {
    dequantize_rows(from, row, 1, before.data());
    std::byte* at = out + row * bytes;
    Status s = is_quantised(to.type) ? quantize_row(to.type, before.data(), n, at, group)
                                     : store_plain(to.type, before.data(), n, at);
    if (!s.ok()) return s;
    dequantize_rows(to, row, 1, after.data());
    double squares = 0, magnitudes = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      double e = double{after[i]} - before[i];
      squares += e * e;
      magnitudes += double{before[i]} * before[i];
    }
    errors->squares += squares;
    errors->magnitudes += magnitudes;
  }
  return {};
}

class Quantizer {
 public:
  // Groups of 4-bit rows as they are in the model and as they are wanted.
  Quantizer(ThreadPool& pool, ModelStorage& storage, int group_of_from, int group)
      : pool_(pool), storage_(storage), group_of_from_(group_of_from), group_(group) {}

  Status run(const Tensor& from, TensorType wanted, Tensor* out) {
    TensorType type = wanted;
    if (from.shape.size() < 2)
      type = TensorType::kF32;
    else if (from.cols() % kGroup != 0)
      type = TensorType::kF16;
    std::span<std::byte> bytes =
        storage_.allocate(static_cast<size_t>(from.rows() * row_bytes(type, from.cols())));
    *out = {from.name, type, from.shape, bytes};
    Errors errors;
    Status s;
    const int group = group_of(type, from.cols());
    const bool has_group = group <= group_of_from_ || type == TensorType::kQ8_0;
    if (type == from.type && has_group && rows_are_finite(from, 0, from.rows())) {
      std::memcpy(bytes.data(), from.data.data(), bytes.size());
    } else {
      s = convert(from, *out, group, bytes.data(), &errors);
    }
    if (!s.ok()) return s.within("tensor '" + from.name + "'");
    double error = errors.magnitudes > 0 ? std::sqrt(errors.squares / errors.magnitudes) : 0;
    report.tensors.push_back({from.name, from.type, type, static_cast<int64_t>(from.data.size()),
                              static_cast<int64_t>(bytes.size()), error});
    report.bytes_before += static_cast<int64_t>(from.data.size());
    report.bytes_after += static_cast<int64_t>(bytes.size());
    return {};
  }

  QuantizeReport report;

 private:
  int group_of(TensorType type, int64_t cols) const {
    return type != TensorType::kQ8_0 && cols % group_ == 0 ? group_ : int{kGroup};
  }

  Status convert(const Tensor& from, const Tensor& to, int group, std::byte* out, Errors* errors) {
    std::vector<Errors> parts(static_cast<size_t>(pool_.size()));
    std::vector<Status> status(parts.size());
    pool_.run([&](int t) {
      auto i = static_cast<size_t>(t);
      Range range = split_range(from.rows(), 1, pool_.size(), t);
      status[i] = convert_rows(from, to, group, range, out, &parts[i]);
    });
    for (size_t i = 0; i < parts.size(); ++i) {
      if (!status[i].ok()) return status[i];
      errors->squares += parts[i].squares;
      errors->magnitudes += parts[i].magnitudes;
    }
    return {};
  }

  ThreadPool& pool_;
  ModelStorage& storage_;
  const int group_of_from_, group_;
};

}  // namespace

QuantizeTypes default_types(const Model& model, TensorType type) {
  bool is_draft = model.shares_embedding || !model.head_tokens.empty();
  return {type, is_draft ? type : TensorType::kQ8_0, 32};
}

Result<Model> quantize_model(const Model& model, QuantizeTypes types, ThreadPool& pool,
                             QuantizeReport* report) {
  for (TensorType type : {types.layers, types.tables}) {
    if (can_quantize(type)) continue;
    return invalid("weights cannot be quantised to " + std::string(type_name(type)) +
                   " (Q4_0, Q4_1 and Q8_0 are possible)");
  }
  if (types.int4_group != 32 && types.int4_group != 128)
    return invalid("groups of " + std::to_string(types.int4_group) +
                   " weights are not possible (32 and 128 are)");
  Model out;
  out.config = model.config;
  out.config.int4_group = types.int4_group;
  out.head_tokens = model.head_tokens;
  out.shares_embedding = model.shares_embedding;
  out.shares_head = model.shares_head;
  out.head_kind = model.head_kind;
  out.gguf_path = model.gguf_path;
  Quantizer quantizer(pool, out.storage, model.config.int4_group, types.int4_group);
  auto run = [&](const Tensor& from, TensorType type, Tensor* to) {
    return from.empty() ? Status() : quantizer.run(from, type, to);
  };
  Status s = run(model.embedding, types.tables, &out.embedding);
  if (s.ok()) s = run(model.embedding_norm, TensorType::kF32, &out.embedding_norm);
  if (s.ok()) s = run(model.hidden_norm, TensorType::kF32, &out.hidden_norm);
  if (s.ok()) s = run(model.fc, types.layers, &out.fc);
  if (s.ok()) s = run(model.fc_bias, TensorType::kF32, &out.fc_bias);
  for (const LayerWeights& from : model.layers) {
    LayerWeights& to = out.layers.emplace_back();
    for (const LayerTensorName& n : layer_tensor_names()) {
      if (s.ok()) s = run(from.*n.place, types.layers, &(to.*n.place));
    }
  }
  if (s.ok()) s = run(model.final_norm, TensorType::kF32, &out.final_norm);
  if (model.config.tied_head) {
    out.head = out.embedding;
  } else if (s.ok()) {
    s = run(model.head, types.tables, &out.head);
  }
  if (!s.ok()) return s;
  if (report != nullptr) *report = std::move(quantizer.report);
  return out;
}

}  // namespace pf
