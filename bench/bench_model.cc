#include "bench/bench_model.h"

#include <cstring>
#include <filesystem>

#include "base/dtype.h"
#include "base/philox.h"

namespace pf {
namespace {

struct Shape {
  const char* name;
  int64_t layers, width, ffn, heads, kv_heads, head_width, vocabulary;
  bool tied;
};
constexpr Shape kShapes[] = {
    {"smollm2-135m", 30, 576, 1536, 9, 3, 64, 49152, true},
    {"tinyllama-1.1b", 22, 2048, 5632, 32, 4, 64, 32000, false},
    {"tiny", 2, 64, 160, 4, 2, 16, 256, true},
};

// Random bits, cheap enough for a billion weights (xorshift64*, Vigna 2016).
class Bits {
 public:
  explicit Bits(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u | 1) {}
  uint64_t next() {
    state_ ^= state_ >> 12;
    state_ ^= state_ << 25;
    state_ ^= state_ >> 27;
    return state_ * 0x2545F4914F6CDD1Du;
  }

 private:
  uint64_t state_;
};

// Four weights of either sign, of magnitude 1/64 to 1/32.
uint64_t four_bf16(uint64_t bits) { return (bits & 0x807F807F807F807Fu) | 0x3C803C803C803C80u; }

void fill_bf16(Bits* bits, std::span<std::byte> out) {
  for (size_t i = 0; i + 8 <= out.size(); i += 8) {
    uint64_t four = four_bf16(bits->next());
    std::memcpy(&out[i], &four, 8);
  }
  for (size_t i = out.size() / 8 * 8; i < out.size(); i += 2) {
    uint64_t four = four_bf16(bits->next());
    std::memcpy(&out[i], &four, 2);
  }
}

// Blocks of 32: scale (and minimum), then random levels.
void fill_blocks(Bits* bits, TensorType type, std::span<std::byte> out) {
  size_t block = static_cast<size_t>(block_shape(type).bytes);
  bool four = type == TensorType::kQ4_1;
  uint16_t scale = to_f16(four ? 1.0f / 240 : 1.0f / 4096).bits;
  uint16_t minimum = to_f16(-1.0f / 32).bits;
  for (size_t at = 0; at < out.size(); at += block) {
    for (size_t i = 0; i < block; ++i) out[at + i] = static_cast<std::byte>(bits->next() >> 56);
    std::memcpy(&out[at], &scale, 2);
    if (four) std::memcpy(&out[at + 2], &minimum, 2);
  }
}

TensorType storage_of(CpuOptions::Weights w) {
  if (w == CpuOptions::Weights::kInt8) return TensorType::kQ8_0;
  if (w == CpuOptions::Weights::kInt4) return TensorType::kQ4_1;
  return TensorType::kBF16;
}

class Maker {
 public:
  Maker(TensorType type, uint64_t seed) : type_(type), seed_(seed) {}

  Tensor matrix(const std::string& name, int64_t rows, int64_t cols, TensorType type) {
    Tensor t{name, type, {rows, cols}, {}};
    std::span<std::byte> bytes =
        model_.storage.allocate(static_cast<size_t>(rows * row_bytes(type, cols)));
    Bits bits(seed_ + ++n_made_);
    if (is_quantised(type))
      fill_blocks(&bits, type, bytes);
    else
      fill_bf16(&bits, bytes);
    t.data = bytes;
    return t;
  }
  Tensor matrix(const std::string& name, int64_t rows, int64_t cols) {
    return matrix(name, rows, cols, type_);
  }
  Tensor ones(const std::string& name, int64_t n) {
    Tensor t{name, TensorType::kF32, {n}, {}};
    std::span<std::byte> bytes = model_.storage.allocate(static_cast<size_t>(n) * 4);
    for (int64_t i = 0; i < n; ++i) {
      float one = 1;
      std::memcpy(&bytes[static_cast<size_t>(i) * 4], &one, 4);
    }
    t.data = bytes;
    return t;
  }
  Model make(const Shape& s);

 private:
  TensorType type_;
  uint64_t seed_, n_made_ = 0;
  Model model_;
};

Model Maker::make(const Shape& s) {
  ModelConfig& c = model_.config;
  c.architecture = "llama";
  c.name = s.name;
  c.n_layers = s.layers;
  c.width = s.width;
  c.ffn_width = s.ffn;
  c.n_heads = s.heads;
  c.n_kv_heads = s.kv_heads;
  c.head_width = s.head_width;
  c.vocabulary_size = c.n_tokens = s.vocabulary;
  c.max_context = 8192;
  c.rope_theta = 10000;
  c.norm_epsilon = 1e-5f;
  c.tied_head = s.tied;
  int64_t q = s.heads * s.head_width, kv = s.kv_heads * s.head_width;
  model_.embedding = matrix("embedding", s.vocabulary, s.width, TensorType::kBF16);
  for (int64_t l = 0; l < s.layers; ++l) {
    LayerWeights w;
    w.attention_norm = ones("attention_norm", s.width);
    w.q = matrix("q", q, s.width);
    w.k = matrix("k", kv, s.width);
    w.v = matrix("v", kv, s.width);
    w.o = matrix("o", s.width, q);
    w.ffn_norm = ones("ffn_norm", s.width);
    w.gate = matrix("gate", s.ffn, s.width);
    w.up = matrix("up", s.ffn, s.width);
    w.down = matrix("down", s.width, s.ffn);
    model_.layers.push_back(std::move(w));
  }
  model_.final_norm = ones("final_norm", s.width);
  // A tied head in the products' storage type: quantising a table of this size would take longer
  // than the measurement, and only its bytes matter.
  model_.head = s.tied && type_ == TensorType::kBF16 ? model_.embedding
                                                     : matrix("head", s.vocabulary, s.width);
  return std::move(model_);
}

}  // namespace

std::vector<std::string> synthetic_names() {
  std::vector<std::string> names;
  for (const Shape& s : kShapes) names.emplace_back(s.name);
  return names;
}

Result<Model> synthetic_model(const std::string& name, CpuOptions::Weights weights, uint64_t seed) {
  for (const Shape& s : kShapes)
    if (name == s.name) return Maker(storage_of(weights), seed).make(s);
  return invalid("no synthetic model is called " + name);
}

Result<Model> open_model(const std::string& name_or_path, CpuOptions::Weights weights) {
  for (const Shape& s : kShapes)
    if (name_or_path == s.name) return synthetic_model(name_or_path, weights, 1);
  Result<Model> model = load_model(name_or_path);
  if (!model.ok()) return model;
  if (Status s = check_stands_alone(*model); !s.ok()) return s.within(name_or_path);
  return model;
}

Status check_model(const std::string& name_or_path) {
  for (const Shape& s : kShapes)
    if (name_or_path == s.name) return {};
  Result<Model> model = open_model(name_or_path, CpuOptions::Weights::kBf16);
  return model.ok() ? Status() : model.status();
}

std::string short_name(const std::string& name_or_path) {
  for (const Shape& s : kShapes)
    if (name_or_path == s.name) return name_or_path;
  std::filesystem::path path(name_or_path);
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

Result<CpuOptions::Weights> weights_of(const std::string& dtype) {
  constexpr const char* kNames[] = {"fp32", "bf16", "int8", "int4"};
  for (int i = 0; i < 4; ++i)
    if (dtype == kNames[i]) return static_cast<CpuOptions::Weights>(i);
  return invalid("--dtype " + dtype + " is not known; fp32, bf16, int8 and int4 are");
}

}  // namespace pf
