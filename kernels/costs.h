#pragma once

#include <cstdint>

#include "kernels/attention_plan.h"
#include "kernels/gemm.h"
#include "kernels/pack_int4.h"

namespace pf::kernels {

// What each launcher of this folder launches for a shape, and what that moves and computes, beside
// the launchers and without a device: pure functions of the launcher's shapes. Letters as in the
// launchers' headers. Bytes are those of distinct data, each read or written once; what stays on
// the chip between the passes of one kernel is not counted twice.
struct LaunchCost {
  const char* kernel = "";  // as the .cu file calls it
  int64_t grid[3] = {1, 1, 1};
  int64_t bytes_read = 0, bytes_written = 0;
  double flops = 0;           // useful ones: padding of tiles is not counted
  bool tensor_cores = false;  // where they are done

  int64_t bytes() const { return bytes_read + bytes_written; }
};

LaunchCost gather_rows_cost(int64_t T, int64_t E, int64_t from_bytes, int64_t to_bytes);
LaunchCost start_pass_cost(int64_t T, int64_t E, int64_t D);
LaunchCost norm_picked_cost(int64_t R, int64_t E);
LaunchCost rms_norm_cost(int64_t T, int64_t E);
LaunchCost add_partials_cost(int64_t n, int64_t T, int64_t E);
LaunchCost residual_silu_cost(int64_t T, int64_t E);
LaunchCost rope_kv_write_cost(int64_t T, int64_t H, int64_t G, int64_t D, int64_t kv_row_bytes);

// What a product reads beside w and x, and writes (GemmOutput).
struct OutputBytes {
  int64_t read = 0, written = 0;
};
LaunchCost gemm_fp16_cost(int64_t T, int64_t N, int64_t K, OutputBytes out);
OutputBytes sum_output(int64_t T, int64_t E, bool norm);  // y += the product, and its norm
OutputBytes rope_output(int64_t T, int64_t H, int64_t G, int64_t D, int64_t kv_row_bytes);
LaunchCost gemm_int4_cost(int64_t T, const Int4Shape& w, OutputBytes out);

// Of what a plan holds: keys and values of an item are read once for all of its rows, those of
// several items by each of them, though the L2 serves all but the first (attention_plan.h): the
// estimate errs on the slow side. n_rows: of the output, padding included. kv_row_bytes: of a key
// or value as it is stored, its scale included.
LaunchCost attention_cost(const AttentionPlan& plan, int64_t T, int64_t n_rows, int64_t H,
                          int64_t G, int64_t D, int64_t kv_row_bytes, int32_t n_blocks);

LaunchCost make_laws_cost(int64_t R, int64_t V);
// B sequences; each meets about one rejection or draw of its own, which looks at all of p.
LaunchCost accept_cost(int64_t B, int64_t V);
// The two launches of list_candidates: n tokens of each row are listed.
LaunchCost slice_cost(int64_t R, int64_t V, int64_t n);
LaunchCost merge_cost(int64_t R, int64_t V, int64_t n);
// n candidates for each of B W places.
LaunchCost grow_trees_cost(int64_t B, int64_t W, int64_t n);

}  // namespace pf::kernels
