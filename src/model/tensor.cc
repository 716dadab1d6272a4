#include "model/tensor.h"

#include "base/check.h"

namespace pf {
namespace {

struct TypeRow {
  std::string_view name;
  BlockShape block;
};

// In the order of TensorType.
constexpr TypeRow kTypes[] = {{"F32", {1, 4}},      {"F16", {1, 2}},     {"BF16", {1, 2}},
                              {"I32", {1, 4}},      {"I64", {1, 8}},     {"I8", {1, 1}},
                              {"Q4_0", {32, 18}},   {"Q4_1", {32, 20}},  {"Q5_0", {32, 22}},
                              {"Q5_1", {32, 24}},   {"Q8_0", {32, 34}},  {"Q4_K", {256, 144}},
                              {"Q5_K", {256, 176}}, {"Q6_K", {256, 210}}};

const TypeRow& row_of(TensorType type) { return kTypes[static_cast<size_t>(type)]; }

}  // namespace

std::string_view type_name(TensorType type) { return row_of(type).name; }

BlockShape block_shape(TensorType type) { return row_of(type).block; }

int64_t row_bytes(TensorType type, int64_t cols) {
  BlockShape block = block_shape(type);
  check(cols >= 0 && cols % block.n_weights == 0, "a row that is no whole number of blocks");
  return cols / block.n_weights * block.bytes;
}

int64_t stored_bytes(const Tensor& t) {
  return t.shape.empty() ? 0 : t.rows() * row_bytes(t.type, t.cols());
}

Result<int64_t> tensor_bytes(TensorType type, std::span<const int64_t> shape) {
  constexpr int64_t kMost = int64_t{1} << 62;
  BlockShape block = block_shape(type);
  if (shape.empty()) return invalid("has no dimension");
  int64_t cols = shape.back();
  if (cols % block.n_weights != 0) {
    return invalid("has rows of " + std::to_string(cols) + " values, no multiple of the " +
                   std::to_string(block.n_weights) + " in a block of " +
                   std::string(type_name(type)));
  }
  int64_t bytes = block.bytes;
  for (size_t i = 0; i < shape.size(); ++i) {
    if (shape[i] < 1) return invalid("has a dimension of " + std::to_string(shape[i]));
    int64_t n = i + 1 < shape.size() ? shape[i] : cols / block.n_weights;
    if (n > kMost / bytes) return invalid("has a shape whose product is past 2^62");
    bytes *= n;
  }
  return bytes;
}

}  // namespace pf
