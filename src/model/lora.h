#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "model/model.h"

namespace pf {

// A LoRA adapter in the form that PEFT publishes: a folder with adapter_config.json and
// adapter_model.safetensors. Beside a matrix W [out, in] stand A [r, in] and B [out, r], and what
// is computed with is W + s B A, s = alpha / r (Hu et al. 2021, "LoRA"), or alpha / sqrt(r) with
// use_rslora (Kalajdzievski 2023). An embedding [V, E] has A [r, V] and B [E, r]: W + s (B A)^T.
struct LoraAdapter {
  struct Matrix {
    std::string name;  // of W, as in a Hugging Face file: "model.layers.0.mlp.up_proj.weight"
    Tensor a, b;       // as in the file
    bool transposed = false;  // of an embedding
    double scale = 0;         // s
    int64_t rank() const { return a.rows(); }
  };
  std::string base;  // the model that it was trained for, in its own words; may be empty
  std::vector<Matrix> matrices;  // by name
  std::vector<Tensor> whole;     // tensors that stand in place of the model's (modules_to_save)
  ModelStorage storage;
};

// Whether the folder holds one.
bool is_lora_folder(const std::string& path);

// Refuses, with the list, what would make the sum another one than is said above: DoRA, biases,
// starts from changed base weights (PiSSA, OLoRA, ...), tensors of unknown kinds.
Result<LoraAdapter> read_lora(const std::string& folder);

// Adds it to the model's own matrices, in f32. Plain types stay as they are, rounded to nearest;
// quantised matrices become f32. A head that was tied to the embedding stands for itself from then
// on, as the adapter was trained: what is added to one of the two is not added to the other.
// Refuses, with the list, matrices that the model does not have, or has in another shape, and sums
// beyond the range of their type; then no tensor is changed. With kShapes no number of the model is
// read: types and shapes become those of the sums, which have addresses only.
Status merge_lora(const LoraAdapter& adapter, Content content, Model* model);

}  // namespace pf
