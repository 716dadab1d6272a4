#pragma once

// The small heads of tests/golden/heads.json in the layouts that published heads have. Weights by
// the formula of tests/golden/make_heads.py.

#include <gtest/gtest.h>

#include "model/files.h"
#include "model/model.h"

namespace pf {

struct PublishedHead {
  static constexpr int64_t E = 32, H = 2, G = 1, D = 16, F = 48, V = 40, kDraft = 24, kTaps = 3;
  enum Tensor {
    kEmbed,
    kTargetHead,
    kFc,
    kFcBias,
    kHiddenNorm,
    kInputNorm,
    kQ,
    kK,
    kV,
    kO,
    kPostNorm,
    kGate,
    kUp,
    kDown,
    kNorm,
    kHead,
    kStates
  };

  static float value(int64_t tensor, int64_t i) {
    uint64_t z = static_cast<uint64_t>(tensor * 1000003 + i + 1) * 0x9E3779B97F4A7C15u;
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9u;
    z = (z ^ z >> 27) * 0x94D049BB133111EBu;
    z ^= z >> 31;
    return static_cast<float>(static_cast<int64_t>(z % 255) - 127) / 128;
  }
  static std::vector<float> values(int64_t tensor, int64_t n, float by, float plus = 0) {
    std::vector<float> out;
    for (int64_t i = 0; i < n; ++i) out.push_back(plus + value(tensor, i) * by);
    return out;
  }
  static int64_t token_of_row(int64_t row) { return row + row / 2; }

  using Rows = std::map<std::string, test::StRow>;
  static void add(Rows* rows, const std::string& name, Tensor t, std::vector<int64_t> shape,
                  float by = 0.25f, float plus = 0) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    (*rows)[name] = {"F32", shape, test::floats(values(t, n, by, plus))};
  }

  // `layer`: what stands before the names of the layer's tensors.
  static Rows tensors(bool eagle3, const std::string& layer) {
    Rows r;
    const int64_t input = eagle3 ? 2 * E : E;
    add(&r, layer + "self_attn.q_proj.weight", kQ, {H * D, input});
    add(&r, layer + "self_attn.k_proj.weight", kK, {G * D, input});
    add(&r, layer + "self_attn.v_proj.weight", kV, {G * D, input});
    add(&r, layer + "self_attn.o_proj.weight", kO, {E, H * D});
    add(&r, layer + "post_attention_layernorm.weight", kPostNorm, {E}, 0.25f, 1);
    add(&r, layer + "mlp.gate_proj.weight", kGate, {F, E});
    add(&r, layer + "mlp.up_proj.weight", kUp, {F, E});
    add(&r, layer + "mlp.down_proj.weight", kDown, {E, F});
    add(&r, "fc.weight", kFc, {E, eagle3 ? kTaps * E : 2 * E});
    if (!eagle3) {
      add(&r, "fc.bias", kFcBias, {E});
      return r;
    }
    add(&r, layer + "hidden_norm.weight", kHiddenNorm, {E}, 0.25f, 1);
    add(&r, layer + "input_layernorm.weight", kInputNorm, {E}, 0.25f, 1);
    add(&r, "norm.weight", kNorm, {E}, 0.25f, 1);
    add(&r, "lm_head.weight", kHead, {kDraft, E});
    std::string d2t, t2d(static_cast<size_t>(V), '\0');
    for (int64_t row = 0; row < kDraft; ++row) {
      d2t += test::raw<int64_t>(token_of_row(row) - row);
      t2d[static_cast<size_t>(token_of_row(row))] = '\1';
    }
    r["d2t"] = {"I64", {kDraft}, d2t};
    r["t2d"] = {"BOOL", {V}, t2d};
    return r;
  }

  static std::string config(const std::string& more = "") {
    return R"({"model_type": "llama", "hidden_size": 32, "intermediate_size": 48,
      "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "num_hidden_layers": 1,
      "vocab_size": 40, "draft_vocab_size": 24, "max_position_embeddings": 512,
      "rms_norm_eps": 1e-5, "rope_theta": 10000.0)" +
           more + "}";
  }
  static Result<Model> load(const test::Folder& folder, const Rows& rows,
                            const std::string& more = "") {
    folder.put("config.json", config(more));
    folder.put("model.safetensors", test::safetensors(rows));
    return load_model(folder.path(), Role::kDraft);
  }
};

}  // namespace pf
