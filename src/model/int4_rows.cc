#include "model/int4_rows.h"

#include <cstring>
#include <string>
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

namespace {
bool is_int4(TensorType type) { return type == TensorType::kQ4_0 || type == TensorType::kQ4_1; }
}  // namespace

int int4_group_of(int int4_group, std::span<const Tensor* const> tensors) {
  for (const Tensor* t : tensors)
    if (!is_int4(t->type) || t->cols() % int4_group != 0) return kInt4Group;
  return int4_group;
}

Status read_int4_row(const Tensor& tensor, int64_t row, int group, const Int4Row& out) {
  TensorType type = tensor.type;
  const std::byte* blocks = tensor.data.data() + row * row_bytes(type, tensor.cols());
  std::vector<std::byte> made;
  if (!is_int4(type)) {
    type = TensorType::kQ4_1;
    std::vector<float> values(static_cast<size_t>(tensor.cols()));
    dequantize_rows(tensor, row, 1, values.data());
    made.resize(static_cast<size_t>(row_bytes(type, tensor.cols())));
    if (Status s = quantize_row(type, values.data(), tensor.cols(), made.data()); !s.ok()) return s;
    blocks = made.data();
  }
  const int64_t in_group = group / kInt4Group;
  for (int64_t b = 0; b < tensor.cols() / kInt4Group; ++b) {
    const int64_t g = b / in_group;
    f16 d, m;
    read_int4_block(blocks + b * block_shape(type).bytes, type == TensorType::kQ4_1,
                    out.q + b * kInt4Group, &d, &m);
    if (b % in_group == 0) {
      out.d[g] = d, out.m[g] = m;
    } else if (d.bits != out.d[g].bits || m.bits != out.m[g].bits) {
      return invalid("row " + std::to_string(row) +
                     " has blocks of different scales where the file says that groups of " +
                     std::to_string(group) + " weights share one; write it anew with `quantize`");
    }
  }
  return {};
}

}  // namespace pf
