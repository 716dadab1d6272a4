// Models without their weights: from a config alone, and the configs of some models by name, so
// that one can plan for a model before it is there.
#include <algorithm>

#include "model/families.h"
#include "model/model.h"

namespace pf {
namespace {

// As the makers' config.json says.
struct Shape {
  const char *name, *architecture;
  int64_t layers, width, ffn, heads, kv_heads, head_width, vocabulary, context;
  float rope_theta, epsilon;
  bool tied;
  float llama3_factor;  // of rope_scaling; 0: none
};
constexpr Shape kShapes[] = {
    {"llama-3.1-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 131072, 5e5f, 1e-5f, false, 8},
    {"llama-3.2-1b", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5f, 1e-5f, true, 32},
    {"mistral-7b", "mistral", 32, 4096, 14336, 32, 8, 128, 32768, 32768, 1e6f, 1e-5f, false, 0},
    {"qwen2.5-0.5b", "qwen2", 24, 896, 4864, 14, 2, 64, 151936, 32768, 1e6f, 1e-6f, true, 0},
    {"qwen2.5-1.5b", "qwen2", 28, 1536, 8960, 12, 2, 128, 151936, 131072, 1e6f, 1e-6f, true, 0},
    {"qwen2.5-7b", "qwen2", 28, 3584, 18944, 28, 4, 128, 152064, 131072, 1e6f, 1e-6f, false, 0},
    {"smollm2-135m", "llama", 30, 576, 1536, 9, 3, 64, 49152, 8192, 1e5f, 1e-5f, true, 0},
    {"tinyllama-1.1b", "llama", 22, 2048, 5632, 32, 4, 64, 32000, 2048, 1e4f, 1e-5f, false, 0},
};

ModelConfig config_of(const Shape& s) {
  ModelConfig c;
  c.architecture = s.architecture;
  c.name = s.name;
  c.n_layers = s.layers;
  c.width = s.width;
  c.ffn_width = s.ffn;
  c.n_heads = s.heads;
  c.n_kv_heads = s.kv_heads;
  c.head_width = s.head_width;
  c.vocabulary_size = s.vocabulary;
  c.max_context = s.context;
  c.rope_theta = s.rope_theta;
  c.norm_epsilon = s.epsilon;
  c.tied_head = s.tied;
  if (s.llama3_factor > 0) {
    c.rope_scaling.kind = RopeScaling::Kind::kLlama3;
    c.rope_scaling.factor = s.llama3_factor;
    c.rope_scaling.original_max_position = 8192;
  }
  return c;
}

// Every tensor that the config asks for, in Hugging Face's names.
std::vector<Tensor> list_tensors(const ModelConfig& c, bool qkv_bias) {
  std::vector<Tensor> out;
  auto add = [&](std::string name, std::vector<int64_t> shape) {
    out.push_back({std::move(name), TensorType::kF16, std::move(shape), {}});
  };
  OuterNames names = outer_names(Naming::kHuggingFace);
  add(std::string(names.embedding), {c.vocabulary_size, c.width});
  add(std::string(names.final_norm), {c.width});
  if (!c.tied_head) add(std::string(names.head), {c.vocabulary_size, c.width});
  for (int64_t layer = 0; layer < c.n_layers; ++layer)
    for (const LayerTensorName& n : layer_tensor_names())
      if (qkv_bias || !is_bias(n.place))
        add(layer_tensor_name(Naming::kHuggingFace, layer, n), shape_in_layer(n.place, c, c.width));
  return out;
}

}  // namespace

std::vector<std::string> known_shape_names() {
  std::vector<std::string> names;
  for (const Shape& s : kShapes) names.push_back(s.name);
  return names;
}

Result<Model> known_shape(const std::string& name) {
  for (const Shape& s : kShapes)
    if (name == s.name) return model_without_weights(config_of(s));
  std::string all;
  for (const std::string& known : known_shape_names()) all += (all.empty() ? "" : ", ") + known;
  return invalid(name + ": no such file or folder, and none of the known shapes: " + all);
}

Result<Model> model_without_weights(ModelConfig config) {
  auto family = find_family(config.architecture);
  if (!family.ok()) return family.status();
  if (config.vocabulary_size < 1) return invalid("the configuration does not say vocab_size");
  std::vector<Tensor> tensors = list_tensors(config, (*family)->needs_qkv_bias || config.qkv_bias);
  // Matrices share one range of addresses, vectors (which are looked at) one run of zeros.
  size_t matrix = 0, vector = 0;
  for (const Tensor& t : tensors) {
    Result<int64_t> bytes = tensor_bytes(t.type, t.shape);
    if (!bytes.ok()) return bytes.status().within(t.name);
    size_t& most = t.shape.size() > 1 ? matrix : vector;
    most = std::max(most, static_cast<size_t>(*bytes));
  }
  ModelStorage storage;
  storage.ranges.emplace_back(matrix);
  std::span<std::byte> zeros = storage.allocate(vector);
  std::fill(zeros.begin(), zeros.end(), std::byte{0});
  for (Tensor& t : tensors) {
    auto from = t.shape.size() > 1 ? storage.ranges[0].bytes() : std::span<const std::byte>(zeros);
    t.data = from.first(static_cast<size_t>(t.rows() * row_bytes(t.type, t.cols())));
  }
  return assemble(std::move(config), std::move(tensors), Naming::kHuggingFace, std::move(storage));
}

}  // namespace pf
