#include "model/int4_rows.h"

#include <cstring>
#include <vector>

#include "model/quantize.h"

namespace pf {

void read_int4_block(const std::byte* block, bool has_minimum, uint8_t* q, f16* d, f16* m) {
  std::memcpy(d, block, 2);
  if (has_minimum)
    std::memcpy(m, block + 2, 2);
  else
    *m = to_f16(-8.0f * to_float(*d));  // exact: a shift of the exponent
  const uint8_t* nibbles = reinterpret_cast<const uint8_t*>(block) + (has_minimum ? 4 : 2);
  for (int i = 0; i < 16; ++i) {
    q[i] = nibbles[i] & 15;
    q[16 + i] = nibbles[i] >> 4;
  }
}

Status read_int4_row(const Tensor& tensor, int64_t row, const Int4Row& out) {
  TensorType type = tensor.type;
  const std::byte* blocks = tensor.data.data() + row * row_bytes(type, tensor.cols());
  std::vector<std::byte> made;
  if (type != TensorType::kQ4_0 && type != TensorType::kQ4_1) {
    type = TensorType::kQ4_1;
    std::vector<float> values(static_cast<size_t>(tensor.cols()));
    dequantize_rows(tensor, row, 1, values.data());
    made.resize(static_cast<size_t>(row_bytes(type, tensor.cols())));
    if (Status s = quantize_row(type, values.data(), tensor.cols(), made.data()); !s.ok()) return s;
    blocks = made.data();
  }
  for (int64_t g = 0; g < tensor.cols() / kInt4Group; ++g)
    read_int4_block(blocks + g * block_shape(type).bytes, type == TensorType::kQ4_1,
                    out.q + g * kInt4Group, out.d + g, out.m + g);
  return {};
}

}  // namespace pf
