#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "model/model.h"

namespace pf {

// Makes a tiny model's float tensors, one behind the other from one seed.
class TinyTensors {
 public:
  TinyTensors(uint32_t seed, ModelStorage* storage) : rng_(seed), storage_(storage) {}

  // Numbers of a normal distribution around `offset`.
  Tensor operator()(const std::string& name, std::vector<int64_t> shape, float scale,
                    float offset = 0) {
    Tensor t;
    t.name = name;
    t.type = TensorType::kF32;
    t.shape = std::move(shape);
    std::normal_distribution<float> normal(0, scale);
    std::vector<float> values(static_cast<size_t>(t.size()));
    for (float& v : values) v = normal(rng_) + offset;
    auto bytes = storage_->allocate(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    t.data = bytes;
    return t;
  }

 private:
  std::mt19937 rng_;
  ModelStorage* storage_;
};

}  // namespace pf
