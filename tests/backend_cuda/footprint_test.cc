// Truth: the device memory that is gone once the backend stands.
#include <cuda_runtime_api.h>

#include "backend_cuda/cuda_rig.h"

namespace pf {
namespace {

TEST(CudaFootprint, IsTheMemoryThatTheBackendTakes) {
  TinyShape plain = cuda_shape(), other = cuda_shape();
  plain.bias = true;
  other.heads = 2;
  other.head_width = 128;
  other.layers = 3;
  ThreadPool pool(1);
  for (const TinyShape& shape : {plain, other})
    for (const auto& [int4, int8_kv] : {std::pair(false, false), std::pair(true, true)}) {
      const Model model = bf16_model(shape);
      CudaOptions o;
      o.int4 = int4;
      o.int8_kv = int8_kv;
      o.n_blocks = 37;
      o.max_rows = 70;
      o.max_context = 300'000;
      o.draft_top_n = 16;
      const int64_t before = cuda_free_bytes();
      auto backend = make_cuda_backend(model, nullptr, o, pool);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      const Footprint f = cuda_footprint(model, nullptr, o);
      EXPECT_EQ(before - cuda_free_bytes(),
                f.weight_bytes + o.n_blocks * f.kv_block_bytes + f.scratch_bytes);
      EXPECT_EQ((*backend)->info().scratch_bytes, f.scratch_bytes + f.graph_bytes);
      EXPECT_GT(f.graph_bytes, 0);
      EXPECT_EQ((*backend)->info().kv_bytes, o.n_blocks * f.kv_block_bytes);
    }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

}  // namespace
}  // namespace pf
