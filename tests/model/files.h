#pragma once

// Builders of small model files, written from the formats' specifications, sharing no code with
// src/, so that a test can also build what no writer would.

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace pf::test {

template <class T>
std::string raw(T v) {
  return std::string(reinterpret_cast<const char*>(&v), sizeof v);
}
inline std::string text(const std::string& s) { return raw<uint64_t>(s.size()) + s; }

inline std::span<const std::byte> bytes_of(const std::string& s) {
  return {reinterpret_cast<const std::byte*>(s.data()), s.size()};
}

inline std::string floats(const std::vector<float>& v) {
  return std::string(reinterpret_cast<const char*>(v.data()), v.size() * 4);
}

inline std::vector<float> random_floats(size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> out(n);
  for (float& v : out) v = normal(generator);
  return out;
}

// A GGUF file: header, keys, tensor table, padding, data.
struct GgufBytes {
  struct Row {
    std::string name;
    std::vector<uint64_t> ne;  // innermost first
    uint32_t type;
    std::string data;
  };
  uint32_t version = 3;
  uint64_t alignment = 32;
  std::vector<std::string> keys;
  std::vector<Row> rows;

  void u32(const std::string& k, uint32_t v) { keys.push_back(text(k) + raw(4u) + raw(v)); }
  void f32(const std::string& k, float v) { keys.push_back(text(k) + raw(6u) + raw(v)); }
  void str(const std::string& k, const std::string& v) {
    keys.push_back(text(k) + raw(8u) + text(v));
  }
  void f32_tensor(const std::string& name, std::vector<uint64_t> ne, const std::vector<float>& v) {
    rows.push_back({name, std::move(ne), 0, floats(v)});
  }

  std::string build() const {
    std::string out =
        "GGUF" + raw(version) + raw<uint64_t>(rows.size()) + raw<uint64_t>(keys.size());
    for (const std::string& k : keys) out += k;
    uint64_t offset = 0;
    for (const Row& r : rows) {
      out += text(r.name) + raw(static_cast<uint32_t>(r.ne.size()));
      for (uint64_t n : r.ne) out += raw(n);
      out += raw(r.type) + raw(offset);
      offset += (r.data.size() + alignment - 1) / alignment * alignment;
    }
    for (const Row& r : rows) {
      out.resize((out.size() + alignment - 1) / alignment * alignment);
      out += r.data;
    }
    return out;
  }
};

// A safetensors file from a header and data.
inline std::string safetensors(const std::string& header, const std::string& data) {
  return raw<uint64_t>(header.size()) + header + data;
}

struct StRow {
  std::string dtype;
  std::vector<int64_t> shape;
  std::string data;
};

inline std::string safetensors(const std::map<std::string, StRow>& rows) {
  std::string header = "{", data;
  for (const auto& [name, r] : rows) {
    std::string shape;
    for (int64_t n : r.shape) shape.append(shape.empty() ? "" : ",").append(std::to_string(n));
    if (header.size() > 1) header.append(",");
    header.append("\"").append(name).append("\":{\"dtype\":\"").append(r.dtype);
    header.append("\",\"shape\":[").append(shape).append("],\"data_offsets\":[");
    header.append(std::to_string(data.size())).append(",");
    header.append(std::to_string(data.size() + r.data.size())).append("]}");
    data += r.data;
  }
  return safetensors(header + "}", data);
}

// A folder under the test's temporary directory that goes away with the object.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "pf_model_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  std::string put(const std::string& name, const std::string& content) const {
    std::ofstream(*this / name, std::ios::binary) << content;
    return *this / name;
  }

 private:
  std::string path_;
};

// A tiny decoder: E = 64, F = 96, H = 2, G = 1, D = 32, V = 40, 2 layers, weights by seed.
// `names` are Hugging Face's.
inline std::map<std::string, StRow> tiny_tensors(bool bias, bool tied) {
  std::map<std::string, StRow> out;
  unsigned seed = 1;
  auto add = [&](const std::string& name, std::vector<int64_t> shape) {
    size_t n = 1;
    for (int64_t d : shape) n *= static_cast<size_t>(d);
    out[name] = {"F32", shape, floats(random_floats(n, seed++))};
  };
  add("model.embed_tokens.weight", {40, 64});
  if (!tied) add("lm_head.weight", {40, 64});
  add("model.norm.weight", {64});
  for (int i = 0; i < 2; ++i) {
    std::string p = std::string("model.layers.").append(std::to_string(i)).append(".");
    add(p + "input_layernorm.weight", {64});
    add(p + "post_attention_layernorm.weight", {64});
    add(p + "self_attn.q_proj.weight", {64, 64});
    add(p + "self_attn.k_proj.weight", {32, 64});
    add(p + "self_attn.v_proj.weight", {32, 64});
    add(p + "self_attn.o_proj.weight", {64, 64});
    add(p + "mlp.gate_proj.weight", {96, 64});
    add(p + "mlp.up_proj.weight", {96, 64});
    add(p + "mlp.down_proj.weight", {64, 96});
    if (!bias) continue;
    add(p + "self_attn.q_proj.bias", {64});
    add(p + "self_attn.k_proj.bias", {32});
    add(p + "self_attn.v_proj.bias", {32});
  }
  return out;
}

// config.json of the tiny decoder; `more` is JSON put before the closing brace, with its comma.
inline std::string tiny_config(const std::string& model_type, const std::string& more) {
  return R"({"model_type": ")" + model_type + R"(", "num_hidden_layers": 2, "hidden_size": 64,
    "intermediate_size": 96, "num_attention_heads": 2, "num_key_value_heads": 1,
    "max_position_embeddings": 512, "vocab_size": 40, "rms_norm_eps": 1e-6)" +
         more + "}";
}

}  // namespace pf::test
