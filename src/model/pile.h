#pragma once

#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "model/tensor.h"

namespace pf {

// The tensors of a file by name; each is taken at most once.
class Pile {
 public:
  explicit Pile(std::vector<Tensor> tensors) {
    for (Tensor& t : tensors) {
      std::string name = t.name;
      tensors_.emplace(std::move(name), std::move(t));
    }
  }

  bool has(const std::string& name) const { return tensors_.contains(name); }
  int64_t cols(const std::string& name) const {  // 0 without it
    auto at = tensors_.find(name);
    return at == tensors_.end() ? 0 : at->second.cols();
  }

  Tensor take(const std::string& name) {
    auto node = tensors_.extract(name);
    return node ? std::move(node.mapped()) : Tensor{};
  }

  // A weight of exactly this shape; vectors (norms, biases) must be finite.
  Status take_weight(const std::string& name, std::vector<int64_t> shape, Tensor* out) {
    Tensor t = take(name);
    if (t.shape.empty()) return invalid("tensor '" + name + "' is missing");
    if (is_integer(t.type)) {
      return invalid("tensor '" + name + "' has type " + std::string(type_name(t.type)) +
                     "; weights are floating-point or quantised");
    }
    if (t.shape != shape) {
      return invalid("tensor '" + name + "' has shape " + text_of(t.shape) +
                     "; the configuration asks for " + text_of(shape));
    }
    if (shape.size() == 1 && !rows_are_finite(t, 0, 1)) {
      return invalid("tensor '" + name + "' holds NaN or infinity");
    }
    *out = std::move(t);
    return {};
  }

  // The name of a tensor that nobody took and that would change the result; empty if none.
  std::string leftover() const {
    std::string least;
    for (const auto& [name, t] : tensors_) {
      if (name.ends_with("rotary_emb.inv_freq") || name == "rope_freqs.weight") continue;
      if (least.empty() || name < least) least = name;
    }
    return least;
  }

 private:
  static std::string text_of(std::span<const int64_t> shape) {
    std::string out = "[";
    for (size_t i = 0; i < shape.size(); ++i) out += (i ? ", " : "") + std::to_string(shape[i]);
    return out + "]";
  }

  std::unordered_map<std::string, Tensor> tensors_;
};

}  // namespace pf
