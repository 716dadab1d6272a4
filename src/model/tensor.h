#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pf {

// How a row of numbers is stored. The quantised types are those of GGUF: a row is a run of
// blocks, and a block holds its own scale, for some types also a minimum (layouts: dequantize.cc).
enum class TensorType : uint8_t {
  kF32,
  kF16,
  kBF16,
  kI32,
  kI64,
  kI8,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ4_K,
  kQ5_K,
  kQ6_K,
};

std::string_view type_name(TensorType type);  // "F32", "Q4_1", ...

// The smallest unit that a row of this type is made of; a plain type has one weight per block.
struct BlockShape {
  int64_t n_weights, bytes;
};
BlockShape block_shape(TensorType type);

inline bool is_quantised(TensorType type) { return type >= TensorType::kQ4_0; }
inline bool is_integer(TensorType type) {
  return type == TensorType::kI32 || type == TensorType::kI64 || type == TensorType::kI8;
}

// A named, borrowed, dense array in one storage type. Whoever owns the bytes must outlive it.
struct Tensor {
  std::string name;  // as in the file that it came from
  TensorType type = TensorType::kF32;
  std::vector<int64_t> shape;       // outermost first: [rows, cols]
  std::span<const std::byte> data;  // rows() * row_bytes(type, cols()); any alignment

  int64_t cols() const { return shape.empty() ? 0 : shape.back(); }
  int64_t rows() const {  // of all dimensions but the last; 1 for a vector
    int64_t n = shape.empty() ? 0 : 1;
    for (size_t i = 0; i + 1 < shape.size(); ++i) n *= shape[i];
    return n;
  }
  int64_t size() const { return rows() * cols(); }
  bool empty() const { return data.empty(); }
};

// Requires: cols is a multiple of the type's block.
int64_t row_bytes(TensorType type, int64_t cols);
// Of all rows, from the shape alone. An empty tensor has none.
int64_t stored_bytes(const Tensor& tensor);

// Bytes of a tensor of this type and shape, or why there is no such tensor: a dimension below 1, a
// row that is no whole number of blocks, a size past 2^62. Multiplies only after checking.
Result<int64_t> tensor_bytes(TensorType type, std::span<const int64_t> shape);

// Writes rows [first, first + n) as f32 [n, cols], exactly as the format defines each value (one
// rounding per float operation, in the format's own order). Requires: the type is no integer.
void dequantize_rows(const Tensor& tensor, int64_t first, int64_t n, float* out);

// False when a row in [first, first + n) holds NaN or infinity: looks at every value of a plain
// type, and at the scales of a quantised one.
bool rows_are_finite(const Tensor& tensor, int64_t first, int64_t n);

}  // namespace pf
