// Truth: the device memory that is gone once the backend stands.
#include <cuda_runtime_api.h>

#include <memory>

#include "backend/cuda/device_memory.h"
#include "backend/tiny_head.h"
#include "backend_cuda/cuda_rig.h"
#include "kernels/sample_types.h"

namespace pf {
namespace {

// What a backend took of the device, and says that it took, beside what was foretold.
void expect_taken(const Model& model, const Model* embedding_of, const CudaOptions& o,
                  int64_t bytes, const Backend& backend) {
  const Footprint f = cuda_footprint(model, embedding_of, o);
  EXPECT_EQ(bytes, f.weight_bytes + o.n_blocks * f.kv_block_bytes + f.scratch_bytes);
  EXPECT_EQ(backend.info().scratch_bytes, f.scratch_bytes + f.graph_bytes);
  EXPECT_EQ(backend.info().kv_bytes, o.n_blocks * f.kv_block_bytes);
}

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
      if (int4) o.head_chunk_rows = 130, o.max_sequences = 7;
      const int64_t before = cuda_free_bytes();
      auto backend = make_cuda_backend(model, nullptr, o, pool);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      expect_taken(model, nullptr, o, before - cuda_free_bytes(), **backend);
      EXPECT_GT(cuda_footprint(model, nullptr, o).graph_bytes, 0);
    }
  const Model wide = wide_int4_model(TensorType::kQ4_1, pool);
  CudaOptions o;
  o.int4 = true;
  o.n_blocks = 5;
  const int64_t before = cuda_free_bytes();
  auto backend = make_cuda_backend(wide, nullptr, o, pool);
  ASSERT_TRUE(backend.ok()) << backend.status().message();
  expect_taken(wide, nullptr, o, before - cuda_free_bytes(), **backend);
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// The stand-in takes what cuBLAS is given (blas.h); a model of 4-bit matrices takes no library.
TEST(CudaFootprint, CountsTheWorkspaceOfALibrary) {
  ThreadPool pool(1);
  const Model model = bf16_model(cuda_shape());
  for (bool int4 : {false, true}) {
    CudaOptions o;
    o.int4 = int4;
    o.n_blocks = 37;
    o.max_rows = 70;
    o.draft_top_n = 16;
    const Footprint own = cuda_footprint(model, nullptr, o);
    o.prefill_gemm = CudaOptions::PrefillGemm::kCublas;
    const int64_t before = cuda_free_bytes();
    auto workspace = std::make_shared<DeviceMemory>(int4 ? 0 : kBlasWorkspaceBytes);
    o.blas = [workspace](const BlasProduct&, cudaStream_t) {};
    auto backend = make_cuda_backend(model, nullptr, o, pool);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    expect_taken(model, nullptr, o, before - cuda_free_bytes(), **backend);
    // Beside the workspace, floats [T, (4 + 2 2) 64] of qkv and bf16 [T, 2 96] of gate and up.
    EXPECT_EQ(cuda_footprint(model, nullptr, o).scratch_bytes - own.scratch_bytes,
              int4 ? 0 : (32 << 20) + 70 * (4 * 8 * 64 + 2 * 2 * 96));
  }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(CudaFootprint, IsWhatAHeadAndItsTargetTake) {
  const TinyShape shape = cuda_shape();
  ThreadPool pool(1);
  const Model target = bf16_model(shape);
  for (const TinyHead& kind : {TinyHead{.kind = HeadKind::kEagle, .bare = true},
                               TinyHead{.kind = HeadKind::kEagle, .every = 3},
                               TinyHead{.kind = HeadKind::kEagle3, .n_states = 2, .every = 2}})
    for (bool int4 : {false, true}) {
      const Model head = tiny_head(shape, kind);
      CudaOptions o;
      o.n_blocks = 37;
      o.max_rows = 70;
      o.draft_top_n = 16;
      o.keep_hidden = true;
      if (kind.kind == HeadKind::kEagle3) o.tap_layers = {0, 2};
      int64_t before = cuda_free_bytes();
      auto over = make_cuda_backend(target, nullptr, o, pool);
      ASSERT_TRUE(over.ok()) << over.status().message();
      expect_taken(target, nullptr, o, before - cuda_free_bytes(), **over);
      o.keep_hidden = false;
      o.tap_layers.clear();
      o.hidden_of = (*over)->hidden_states();
      o.int4 = int4;
      before = cuda_free_bytes();
      auto drafts = make_cuda_backend(head, &target, o, pool);
      ASSERT_TRUE(drafts.ok()) << drafts.status().message();
      expect_taken(head, &target, o, before - cuda_free_bytes(), **drafts);
    }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// A draft that never judges: beside the target's room, no residual for each of 7 sequences of the
// vocabulary, no verdicts and no pinned start of theirs.
TEST(CudaFootprint, ADraftHasNoRoomToJudge) {
  const TinyShape shape = cuda_shape();
  ThreadPool pool(1);
  const Model model = bf16_model(shape);
  CudaOptions o;
  o.n_blocks = 37;
  o.max_rows = 70;
  o.draft_top_n = 16;
  o.max_sequences = 7;
  const Footprint judging = cuda_footprint(model, nullptr, o);
  o.judges = false;
  const int64_t before = cuda_free_bytes();
  auto draft = make_cuda_backend(model, nullptr, o, pool);
  ASSERT_TRUE(draft.ok()) << draft.status().message();
  expect_taken(model, nullptr, o, before - cuda_free_bytes(), **draft);
  using namespace kernels;
  const int64_t V = model.config.vocabulary_size;
  const auto verdicts = static_cast<int64_t>(
      70 * (sizeof(Accepted) + 32 * sizeof(TokenValue) + sizeof(RowLaw)) + alignof(RowLaw));
  EXPECT_EQ(judging.scratch_bytes - cuda_footprint(model, nullptr, o).scratch_bytes,
            7 * 4 * V + verdicts + (1 << 16));
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(CudaUpload, SendingCountsWhatTheFileHasOfTheMatrices) {
  const TinyShape shape = cuda_shape();
  ThreadPool pool(2);
  const Model target = bf16_model(shape),
              head = tiny_head(shape, {.kind = HeadKind::kEagle3, .n_states = 1, .every = 2});
  auto expect_counted = [&](const Model& model, const Model* embedding_of, CudaOptions o) {
    Progress progress;
    o.progress = &progress;
    o.n_blocks = 5;
    auto backend = make_cuda_backend(model, embedding_of, o, pool);
    ASSERT_TRUE(backend.ok()) << backend.status().message();
    EXPECT_EQ(progress.done(), cuda_footprint(model, embedding_of, o).read_bytes);
    EXPECT_GT(progress.done(), 0);
  };
  CudaOptions o;
  expect_counted(target, nullptr, o);
  o.int4 = true;
  expect_counted(target, nullptr, o);
  o.int4 = false;
  o.keep_hidden = true;
  o.n_blocks = 5;
  o.tap_layers = {1};
  auto over = make_cuda_backend(target, nullptr, o, pool);
  ASSERT_TRUE(over.ok()) << over.status().message();
  o.keep_hidden = false;
  o.tap_layers.clear();
  o.hidden_of = (*over)->hidden_states();
  expect_counted(head, &target, o);
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

}  // namespace
}  // namespace pf
