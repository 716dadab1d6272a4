#include "kernels/costs.h"

#include "kernels/sample_types.h"

namespace pf::kernels {
namespace {

int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

constexpr int64_t kEntryBytes = sizeof(TokenValue);

LaunchCost gemm_cost(int64_t T, int64_t N, int64_t K, int64_t weight_bytes, GemmTiling tiling,
                     OutputBytes out) {
  const GemmBlock block = gemm_block(tiling);
  LaunchCost c{"gemm_kernel", {ceil_div(T, block.rows), ceil_div(N, block.features), 1}};
  c.bytes_read = weight_bytes + 2 * T * K + out.read;
  c.bytes_written = out.written;
  c.flops = 2.0 * static_cast<double>(T * N) * static_cast<double>(K);
  c.tensor_cores = true;
  return c;
}

}  // namespace

LaunchCost gather_rows_cost(int64_t T, int64_t E, int64_t from_bytes, int64_t to_bytes) {
  return {"gather_rows_kernel", {T, 1, 1}, T * E * from_bytes + 4 * T, T * E * to_bytes};
}

LaunchCost start_pass_cost(int64_t T, int64_t E, int64_t D) {
  LaunchCost c{
      "start_pass_kernel", {T, 1, 1}, T * (2 * E + 8) + 4 * E + 2 * D, T * (6 * E + 4 * D)};
  // The norm; a sine and a cosine in double.
  c.flops = 4.0 * static_cast<double>(T * E) + 50.0 * static_cast<double>(T * D / 2);
  return c;
}

LaunchCost norm_picked_cost(int64_t R, int64_t E) {
  LaunchCost c{"norm_picked_kernel", {R, 1, 1}, R * (4 * E + 4) + 4 * E, 2 * R * E};
  c.flops = 4.0 * static_cast<double>(R * E);
  return c;
}

LaunchCost rms_norm_cost(int64_t T, int64_t E) {
  LaunchCost c{"rms_norm_kernel", {T, 1, 1}, 4 * T * E + 4 * E, 2 * T * E};
  c.flops = 4.0 * static_cast<double>(T * E);
  return c;
}

OutputBytes sum_output(int64_t T, int64_t E, bool norm) {
  return {4 * T * E + (norm ? 4 * E : 0), (norm ? 6 : 4) * T * E};
}

LaunchCost add_partials_cost(int64_t n, int64_t T, int64_t E) {
  LaunchCost c{
      "add_partials_kernel", {ceil_div(T * E / 4, 256), 1, 1}, 4 * (n + 1) * T * E, 4 * T * E};
  c.flops = static_cast<double>(n * T * E);
  return c;
}

LaunchCost residual_silu_cost(int64_t T, int64_t E) {
  LaunchCost c{"residual_silu_kernel", {ceil_div(T * E / 4, 256), 1, 1}, 6 * T * E, 2 * T * E};
  c.flops = 4.0 * static_cast<double>(T * E);
  return c;
}

OutputBytes rope_output(int64_t T, int64_t H, int64_t G, int64_t D, int64_t kv_row_bytes) {
  return {4 * T * D + 4 * T, T * (2 * H * D + 2 * G * kv_row_bytes)};
}

LaunchCost rope_kv_write_cost(int64_t T, int64_t H, int64_t G, int64_t D, int64_t kv_row_bytes) {
  const int64_t width = (H + 2 * G) * D;
  const OutputBytes out = rope_output(T, H, G, D, kv_row_bytes);
  LaunchCost c{"rope_kv_write_kernel",
               {T, ceil_div(width / 4, 128), 1},
               4 * T * width + out.read,
               out.written};
  c.flops = 3.0 * static_cast<double>(T * width);
  return c;
}

LaunchCost gemm_fp16_cost(int64_t T, int64_t N, int64_t K, OutputBytes out) {
  return gemm_cost(T, N, K, 2 * N * K, choose_gemm_tiling(T, N, true), out);
}

LaunchCost gemm_int4_cost(int64_t T, const Int4Shape& w, OutputBytes out) {
  return gemm_cost(T, w.N, w.K, packed_int4_bytes(w), choose_gemm_tiling(T, w.N, false), out);
}

LaunchCost attention_cost(const AttentionPlan& plan, int64_t T, int64_t n_rows, int64_t H,
                          int64_t G, int64_t D, int64_t kv_row_bytes, int32_t n_blocks) {
  LaunchCost c{"attention_kernel", {n_blocks, 1, 1}};
  int64_t keys = 0, pairs = 0;  // loaded; met by rows
  for (const AttentionRun& r : plan.runs()) {
    keys += r.end - r.begin;
    pairs += int64_t{r.end - r.begin} * r.n;
  }
  c.bytes_read = keys * G * 2 * kv_row_bytes + 2 * T * H * D;
  c.bytes_written = int64_t{plan.n_parts()} * H * (4 * D + 8) + 2 * n_rows * H * D;
  c.flops = 4.0 * static_cast<double>(pairs * H) * static_cast<double>(D);
  c.tensor_cores = true;
  return c;
}

LaunchCost make_laws_cost(int64_t R, int64_t V) {
  LaunchCost c{"laws_kernel", {R, 1, 1}, 4 * R * V, R * static_cast<int64_t>(sizeof(RowLaw))};
  c.flops = 10.0 * static_cast<double>(R * V);
  return c;
}

LaunchCost accept_cost(int64_t B, int64_t V) {
  LaunchCost c{"accept_kernel",
               {B, 1, 1},
               8 * B * V,
               4 * B * V + B * static_cast<int64_t>(sizeof(Accepted))};
  c.flops = 10.0 * static_cast<double>(B * V);
  return c;
}

LaunchCost slice_cost(int64_t R, int64_t V, int64_t n) {
  LaunchCost c{
      "slice_kernel", {n_slices_of(V), R, 1}, 4 * R * V, R * n_slices_of(V) * n * kEntryBytes};
  c.flops = 8.0 * static_cast<double>(R * V);
  return c;
}

LaunchCost merge_cost(int64_t R, int64_t V, int64_t n) {
  return {"merge_kernel",
          {R, 1, 1},
          R * n_slices_of(V) * n * kEntryBytes,
          R * (n * kEntryBytes + static_cast<int64_t>(sizeof(int32_t)))};
}

LaunchCost grow_trees_cost(int64_t B, int64_t W, int64_t n) {
  return {"grow_kernel", {B, 1, 1}, B * W * n * kEntryBytes, B * W * n * kEntryBytes};
}

}  // namespace pf::kernels
