#include "model/lora.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <optional>

#include "base/dtype.h"
#include "model/families.h"
#include "model/json_file.h"
#include "model/safetensors.h"

namespace pf {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr size_t kMostConfigBytes = 1 << 20, kMostListed = 8;
constexpr double kMostRank = 1 << 16;

std::string text_of(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
  return out + "]";
}

// What is wrong, in one line that stays readable.
class Complaints {
 public:
  void add(const std::string& what) {
    if (++n_ <= kMostListed) text_ += (text_.empty() ? "" : "; ") + what;
  }
  Status verdict() const {
    if (n_ == 0) return {};
    return invalid(
        n_ <= kMostListed ? text_ : text_ + "; and " + std::to_string(n_ - kMostListed) + " more");
  }

 private:
  size_t n_ = 0;
  std::string text_;
};

// What of adapter_config.json decides the sum.
struct LoraConfig {
  int64_t rank = 0;
  double alpha = 0;
  bool rank_stabilised = false;
  std::vector<std::pair<std::string, double>> alpha_of;  // alpha_pattern
  std::string base;

  // Of a module, "model.layers.0.mlp.up_proj". The patterns are endings of its name. Of several
  // that disagree PEFT takes the first of the file, whose order a JSON object does not promise.
  Result<double> alpha_at(const std::string& module) const {
    std::optional<double> found;
    for (const auto& [ending, value] : alpha_of) {
      if (module != ending && !module.ends_with("." + ending)) continue;
      if (found && *found != value)
        return invalid("alpha_pattern has several values for '" + module + "'; leave one");
      found = value;
    }
    return found.value_or(alpha);
  }
  Result<double> scale(const std::string& module, int64_t r) const {
    Result<double> of_module = alpha_at(module);
    const auto n = static_cast<double>(r);
    if (of_module.ok()) *of_module /= rank_stabilised ? std::sqrt(n) : n;
    return of_module;
  }
};

bool says_something(const json* v) {
  return v != nullptr && !(v->is_boolean() && !v->get<bool>()) &&
         !((v->is_array() || v->is_object() || v->is_string()) && v->empty());
}

// Kinds of adapters whose sum is another one.
void refuse_other_kinds(const JsonKeys& keys, Complaints* wrong) {
  for (const char* key :
       {"use_dora", "use_qalora", "use_bdlora", "lora_bias", "layer_replication",
        "alora_invocation_tokens", "arrow_config", "trainable_token_indices", "target_parameters"})
    if (says_something(keys.find(key))) wrong->add(std::string(key) + " is not supported");
  if (const json* bias = keys.find("bias"); says_something(bias) && *bias != "none")
    wrong->add("bias is not \"none\": trained biases are not supported");
  const json* start = keys.find("init_lora_weights");
  if (start == nullptr || start->is_boolean()) return;
  for (const char* plain : {"gaussian", "eva", "orthogonal"})
    if (*start == plain) return;
  wrong->add(
      "init_lora_weights is one that begins by changing the base weights, which the file does not "
      "hold; convert the adapter to a plain one");
}

Result<LoraConfig> lora_config_of(std::string_view text) {
  auto parsed = parse_json(text, kMostConfigBytes);
  if (!parsed.ok()) return parsed.status();
  JsonKeys keys(*parsed);
  if (std::string type = keys.text("peft_type", ""); keys.status().ok() && type != "LORA")
    keys.fail("peft_type", "is '" + type.substr(0, 40) + "'; LORA is supported");
  LoraConfig c;
  c.rank = keys.need_integer("r");
  c.alpha = keys.need_number("lora_alpha");
  c.rank_stabilised = keys.boolean("use_rslora", false);
  c.base = keys.text("base_model_name_or_path", "");
  if (!keys.status().ok()) return keys.status();
  Complaints wrong;
  if (c.rank < 1 || static_cast<double>(c.rank) > kMostRank) wrong.add("r is out of range");
  if (!std::isfinite(c.alpha)) wrong.add("lora_alpha is not finite");
  refuse_other_kinds(keys, &wrong);
  if (const json* patterns = keys.find("alpha_pattern"); says_something(patterns)) {
    if (!patterns->is_object()) return invalid("alpha_pattern must be an object");
    for (const auto& [key, value] : patterns->items()) {
      const bool plain = std::all_of(key.begin(), key.end(), [](unsigned char ch) {
        return std::isalnum(ch) != 0 || ch == '.' || ch == '_';
      });
      if (!plain || !value.is_number())
        wrong.add(
            "alpha_pattern must have names of modules and numbers; regular expressions are "
            "not supported");
      else
        c.alpha_of.emplace_back(key, value.get<double>());
    }
  }
  if (Status s = wrong.verdict(); !s.ok()) return s;
  return c;
}

bool cut(std::string* name, std::string_view ending) {
  if (!name->ends_with(ending)) return false;
  name->resize(name->size() - ending.size());
  return true;
}

// Sorts the tensors of the file to the matrices that they belong to.
class Sorter {
 public:
  explicit Sorter(const LoraConfig& config) : config_(config) {}

  void add(const Tensor& t) {
    if (is_integer(t.type) || t.size() == 0 || !rows_are_finite(t, 0, t.rows()))
      return wrong_.add("tensor '" + t.name + "' holds no finite numbers");
    std::string module = t.name;
    if (module.starts_with("base_model.model.")) module.erase(0, 17);
    if (cut(&module, ".lora_A.weight")) return put(module, t, false, &Matrix::a);
    if (cut(&module, ".lora_B.weight")) return put(module, t, false, &Matrix::b);
    if (cut(&module, ".lora_embedding_A")) return put(module, t, true, &Matrix::a);
    if (cut(&module, ".lora_embedding_B")) return put(module, t, true, &Matrix::b);
    if (!cut(&module, ".weight") || module.find("lora_") != std::string::npos)
      return wrong_.add("tensor '" + t.name + "' is no part of a LoRA adapter");
    cut(&module, ".base_layer");  // an embedding is saved with what is added to it
    cut(&module, ".modules_to_save");
    whole_.push_back(t);
    whole_.back().name = name_of(module);
  }

  Status finish(LoraAdapter* out) {
    for (auto& [module, m] : matrices_) {
      if (m.a.empty() || m.b.empty()) {
        wrong_.add("'" + module + "' has only one of A and B");
      } else if (m.a.shape.size() != 2 || m.b.shape.size() != 2 || m.a.rows() != m.b.cols()) {
        wrong_.add("'" + module + "': A " + text_of(m.a.shape) + " and B " + text_of(m.b.shape) +
                   " have no rank in common");
      } else if (Result<double> scale = config_.scale(module, m.rank()); !scale.ok()) {
        wrong_.add(scale.status().message());
      } else {
        m.scale = *scale;
        out->matrices.push_back(std::move(m));
      }
    }
    out->whole = std::move(whole_);
    out->base = config_.base;
    if (matrices_.empty() && out->whole.empty()) wrong_.add("there are no tensors");
    return wrong_.verdict();
  }

 private:
  using Matrix = LoraAdapter::Matrix;

  static std::string name_of(const std::string& module) {
    const bool inside = !module.starts_with("model.") && !module.starts_with("lm_head");
    return (inside ? "model." : "") + module + ".weight";
  }
  void put(const std::string& module, const Tensor& t, bool transposed, Tensor Matrix::*place) {
    Matrix& m = matrices_[module];
    m.name = name_of(module);
    m.transposed = transposed;
    m.*place = t;
  }

  const LoraConfig& config_;
  std::map<std::string, Matrix> matrices_;  // by module
  std::vector<Tensor> whole_;
  Complaints wrong_;
};

// The model's tensors under the names of a Hugging Face file.
std::map<std::string, Tensor*> places_of(Model* m) {
  const OuterNames names = outer_names(Naming::kHuggingFace);
  std::map<std::string, Tensor*> out;
  auto add = [&](std::string name, Tensor* t) {
    if (!t->empty()) out.emplace(std::move(name), t);
  };
  add(std::string(names.embedding), &m->embedding);
  add(std::string(names.final_norm), &m->final_norm);
  add(std::string(names.head), &m->head);
  for (size_t i = 0; i < m->layers.size(); ++i)
    for (const LayerTensorName& n : layer_tensor_names())
      add(layer_tensor_name(Naming::kHuggingFace, static_cast<int64_t>(i), n),
          &(m->layers[i].*n.place));
  return out;
}

std::vector<float> floats_of(const Tensor& t) {
  std::vector<float> out(static_cast<size_t>(t.size()));
  dequantize_rows(t, 0, t.rows(), out.data());
  return out;
}

std::vector<float> turned(const std::vector<float>& x, int64_t rows, int64_t cols) {
  std::vector<float> out(x.size());
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      out[static_cast<size_t>(c * rows + r)] = x[static_cast<size_t>(r * cols + c)];
  return out;
}

// Whether the row, rounded to the type, is finite.
bool store_row(TensorType type, const std::vector<float>& row, std::byte* to) {
  bool finite = true;
  if (type == TensorType::kF32) {
    for (float x : row) finite &= std::isfinite(x);
    std::memcpy(to, row.data(), row.size() * sizeof(float));
    return finite;
  }
  const bool f16 = type == TensorType::kF16;
  const int exponent = f16 ? 0x7c00 : 0x7f80;
  for (size_t i = 0; i < row.size(); ++i) {
    uint16_t bits = f16 ? to_f16(row[i]).bits : to_bf16(row[i]).bits;
    finite &= (bits & exponent) != exponent;
    std::memcpy(to + 2 * i, &bits, 2);
  }
  return finite;
}

TensorType type_of_sum(const Tensor& w) { return is_quantised(w.type) ? TensorType::kF32 : w.type; }

// Like w, of this type, without its numbers.
Tensor addresses_of(const Tensor& w, TensorType type, ModelStorage* storage) {
  storage->ranges.emplace_back(static_cast<size_t>(w.rows() * row_bytes(type, w.cols())));
  return {w.name, type, w.shape, storage->ranges.back().bytes()};
}

// W + s B A, row by row. An error where the type of W cannot hold it.
Result<Tensor> sum_of(const Tensor& w, const LoraAdapter::Matrix& m, ModelStorage* storage) {
  const int64_t r = m.rank(), cols = w.cols();
  std::vector<float> a = floats_of(m.a), b = floats_of(m.b);
  if (m.transposed) {
    a = turned(a, r, m.a.cols());  // [V, r]: the rows' own factors
    b = turned(b, m.b.rows(), r);  // [r, E]
    std::swap(a, b);
  }
  const TensorType type = type_of_sum(w);
  const int64_t bytes = row_bytes(type, cols);
  std::span<std::byte> to = storage->allocate(static_cast<size_t>(w.rows() * bytes));
  std::vector<float> row(static_cast<size_t>(cols));
  const auto scale = static_cast<float>(m.scale);
  bool finite = true;
  for (int64_t o = 0; o < w.rows(); ++o) {
    dequantize_rows(w, o, 1, row.data());
    for (int64_t k = 0; k < r; ++k) {
      const float factor = scale * b[static_cast<size_t>(o * r + k)];
      const float* add = a.data() + k * cols;
      for (size_t i = 0; i < row.size(); ++i) row[i] += factor * add[i];
    }
    finite &= store_row(type, row, to.data() + o * bytes);
  }
  if (!finite)
    return invalid("'" + m.name + "' with the adapter is beyond the range of " +
                   std::string(type_name(type)) +
                   (type == TensorType::kF16 ? "; convert the model to bf16 or f32" : ""));
  return Tensor{w.name, type, w.shape, to};
}

// What does not fit the model.
Status check_lora(const LoraAdapter& adapter, const std::map<std::string, Tensor*>& places) {
  Complaints wrong;
  for (const LoraAdapter::Matrix& m : adapter.matrices) {
    auto at = places.find(m.name);
    const int64_t out = m.transposed ? m.a.cols() : m.b.rows();
    const int64_t in = m.transposed ? m.b.rows() : m.a.cols();
    if (at == places.end())
      wrong.add("the model has no '" + m.name + "'");
    else if (at->second->shape != std::vector<int64_t>{out, in})
      wrong.add("'" + m.name + "' is " + text_of(at->second->shape) + ", the adapter's " +
                text_of({out, in}));
  }
  for (const Tensor& t : adapter.whole) {
    auto at = places.find(t.name);
    if (at == places.end())
      wrong.add("the model has no '" + t.name + "'");
    else if (at->second->shape != t.shape)
      wrong.add("'" + t.name + "' is " + text_of(at->second->shape) + ", the adapter's " +
                text_of(t.shape));
  }
  return wrong.verdict();
}

Result<std::string> text_in(const fs::path& path) {
  auto file = MappedFile::open(path.string());
  if (!file.ok()) return file.status();
  auto bytes = file->bytes();
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

bool is_lora_folder(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::path(path) / "adapter_config.json", error);
}

Result<LoraAdapter> read_lora(const std::string& folder) {
  const fs::path config_path = fs::path(folder) / "adapter_config.json",
                 weights_path = fs::path(folder) / "adapter_model.safetensors";
  auto text = text_in(config_path);
  if (!text.ok()) return text.status();
  auto config = lora_config_of(*text);
  if (!config.ok()) return config.status().within(config_path.string());
  auto file = SafetensorsFile::open(weights_path.string());
  if (!file.ok()) return file.status();
  Sorter sorter(*config);
  for (const Tensor& t : file->tensors()) sorter.add(t);
  LoraAdapter out;
  if (Status s = sorter.finish(&out); !s.ok()) return s.within(weights_path.string());
  out.storage.files.push_back(file->release());
  return out;
}

Status merge_lora(const LoraAdapter& adapter, Content content, Model* model) {
  std::map<std::string, Tensor*> places = places_of(model);
  if (Status s = check_lora(adapter, places); !s.ok()) return s;
  std::map<std::string, Tensor> next;  // what takes a place, once nothing is wrong
  for (const Tensor& t : adapter.whole) {
    if (content == Content::kShapes && t.shape.size() > 1) {  // vectors are looked at
      next[t.name] = addresses_of(t, t.type, &model->storage);
      continue;
    }
    std::span<std::byte> own = model->storage.allocate(t.data.size());
    std::memcpy(own.data(), t.data.data(), t.data.size());
    next[t.name] = {t.name, t.type, t.shape, own};
  }
  Complaints wrong;
  for (const LoraAdapter::Matrix& m : adapter.matrices) {
    auto whole = next.find(m.name);
    const Tensor& w = whole != next.end() ? whole->second : *places.at(m.name);
    Result<Tensor> sum = content == Content::kShapes
                             ? addresses_of(w, type_of_sum(w), &model->storage)
                             : sum_of(w, m, &model->storage);
    if (sum.ok())
      next[m.name] = sum.take();
    else
      wrong.add(sum.status().message());
  }
  if (Status s = wrong.verdict(); !s.ok()) return s;
  const OuterNames names = outer_names(Naming::kHuggingFace);
  for (auto& [name, tensor] : next) {
    *places.at(name) = std::move(tensor);
    if (name == names.embedding || name == names.head) model->config.tied_head = false;
  }
  return {};
}

}  // namespace pf
