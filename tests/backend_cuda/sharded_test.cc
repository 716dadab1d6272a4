// Truth: a transformer written out in float64 (tests/backend/tiny_model.h), whatever number of
// devices shares the model; the same launches one by one; and the memory that is gone on each
// device. A kernel that touches another device's memory is a finding of the machine.
#include <cmath>

#include "backend/cuda/limits.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/peer_gather.h"
#include "ptxvm/host_calls.h"

namespace pf {
namespace {

using Numbers = CudaOptions::Numbers;

double relative_noise(const std::vector<std::vector<float>>& got,
                      const std::vector<std::vector<double>>& want) {
  double differences = 0, squares = 0;
  for (size_t p = 0; p < got.size(); ++p)
    for (size_t i = 0; i < got[p].size(); ++i) {
      differences += std::pow(static_cast<double>(got[p][i]) - want[p][i], 2);
      squares += want[p][i] * want[p][i];
    }
  return std::sqrt(differences / squares);
}

std::vector<std::vector<float>> logits_of(CudaRig* rig, const std::vector<int32_t>& text) {
  auto table = rig->table(static_cast<int32_t>(text.size()) / 8 + 1, 3);
  Batch batch;
  batch.add(text, 0, nullptr, table, Batch::Logits::kAll);
  rig->backend->forward(batch);
  return rig->logits(static_cast<int32_t>(text.size()));
}

// The bound of CudaForward.MatchesTheDefinition: sums in shares round in float, which is lost
// beside it. Vocabularies of 101 and 77 do not divide; with 4 devices each KV head is on two.
TEST(Sharded, MatchesTheDefinition) {
  TinyShape biased = cuda_shape(), windowed = cuda_shape(), wide = cuda_shape();
  biased.bias = true;
  windowed.sliding_window = 7;
  wide.head_width = 128, wide.kv_heads = 1, wide.vocabulary = 77;
  for (const TinyShape& shape : {biased, windowed, wide}) {
    Model m = bf16_model(shape);
    std::vector<int32_t> t = text_of(40);
    for (int32_t& id : t) id %= static_cast<int32_t>(shape.vocabulary);
    const auto want = define_logits(m, t);
    for (int32_t n : {2, 4})
      for (Numbers numbers : {Numbers::kBf16, Numbers::kF16}) {
        CudaRig rig(m, on_devices(n, {.numbers = numbers}));
        EXPECT_LT(relative_noise(logits_of(&rig, t), want),
                  2 * 1.3 * (numbers == Numbers::kF16 ? 0x1p-10 : 0x1p-7))
            << n << " devices";
      }
  }
}

// In int4, too, where a share of the columns is a share of their groups: the packed weights are
// those of one device, so only the order of float sums differs.
TEST(Sharded, Int4IsThatOfOneDeviceToTheNoiseOfBf16) {
  TinyShape shape = cuda_shape();
  shape.ffn = 128;
  Model m = bf16_model(shape);
  const std::vector<int32_t> t = text_of(40);
  CudaRig one(m, {.int4 = true});
  std::vector<std::vector<double>> want;
  for (const std::vector<float>& row : logits_of(&one, t))
    want.emplace_back(row.begin(), row.end());
  for (int32_t n : {2, 4}) {
    CudaRig rig(m, on_devices(n, {.int4 = true}));
    // Where a sum lies beside a rounding to bf16, another order goes to the other side: each of the
    // two has the noise of MatchesTheDefinition, at most.
    EXPECT_LT(relative_noise(logits_of(&rig, t), want), 2 * 1.3 * 0x1p-7) << n << " devices";
  }
}

TEST(Sharded, ExchangesTwiceInALayerAndOnceForLogits) {
  Model m = bf16_model(cuda_shape());  // 2 layers, E = 64, V = 101
  auto gather = std::make_shared<PeerGather>(2);
  CudaRig rig(m, on_devices(2, {}, gather));
  auto table = rig.table(20, 0);
  Batch batch;
  batch.add(text_of(150), 0, nullptr, table, Batch::Logits::kLast);
  rig.backend->forward(batch);
  EXPECT_EQ(gather->n_calls, 4);
  EXPECT_EQ(gather->n_bytes, 4 * 150 * 64 * 4);
  rig.logits(1);
  EXPECT_EQ(gather->n_calls, 5);
  EXPECT_EQ(gather->n_bytes, 4 * 150 * 64 * 4 + 51 * 4);
}

// A pass of few rows is captured over all devices at its second time; what is launched beside it
// (logits, moves) keeps its order, whatever the streams of the devices do meanwhile.
TEST(Sharded, GraphsAndSchedulesChangeNoBit) {
  Model m = bf16_model(cuda_shape());
  const std::vector<int32_t> t = text_of(40);
  std::vector<std::vector<float>> want;
  for (bool graphs : {false, true})
    for (uint32_t seed : {0u, 1u, 2u}) {
      ptxvm::settings().seed = seed;
      CudaOptions o = on_devices(2);
      o.graphs = graphs;
      CudaRig rig(m, o);
      auto table = rig.table(6, 3);
      std::vector<std::vector<float>> got;
      ptxvm::clear_host_calls();
      for (size_t at = 0; at < t.size();) {
        const size_t n = at < 24 ? 8 : 1;
        Batch batch;
        batch.add(std::span(t).subspan(at, n), static_cast<int64_t>(at), nullptr, table,
                  Batch::Logits::kLast);
        rig.backend->forward(batch);
        got.push_back(rig.logits(1)[0]);
        at += n;
      }
      EXPECT_EQ(ptxvm::host_calls().graphs, graphs ? 2u + 15u : 0u);
      if (want.empty()) want = got;
      EXPECT_EQ(got, want) << "graphs " << graphs << ", schedule " << seed;
    }
  ptxvm::settings().seed = 0;
}

std::vector<int64_t> free_bytes(int32_t n) {
  std::vector<int64_t> free;
  for (int32_t d = 0; d < n; ++d) {
    cuda_check(cudaSetDevice(d));
    free.push_back(cuda_free_bytes());
  }
  cuda_check(cudaSetDevice(0));
  return free;
}

TEST(Sharded, FootprintsAreTheMemoryThatEachDeviceGives) {
  TinyShape plain = cuda_shape(), other = cuda_shape();
  plain.bias = true;
  other.ffn = 128, other.head_width = 128, other.layers = 3;
  ThreadPool pool(1);
  for (int32_t n : {2, 4})
    for (const TinyShape& shape : {plain, other}) {
      const Model model = bf16_model(shape);
      CudaOptions o = on_devices(n);
      o.int4 = o.int8_kv = shape.ffn == 128;
      o.keep_hidden = !o.int4;
      o.tap_layers = {1};
      o.n_blocks = 37;
      o.max_rows = 70;
      o.max_context = 300'000;
      const std::vector<int64_t> before = free_bytes(n);
      EXPECT_EQ(cuda_free_bytes(n), *std::min_element(before.begin(), before.end()));
      auto backend = make_cuda_backend(model, nullptr, o, pool);
      ASSERT_TRUE(backend.ok()) << backend.status().message();
      const std::vector<int64_t> after = free_bytes(n);
      for (int32_t rank = 0; rank < n; ++rank) {
        const Footprint f = cuda_footprint(model, nullptr, o, rank);
        EXPECT_EQ(before[static_cast<size_t>(rank)] - after[static_cast<size_t>(rank)],
                  f.weight_bytes + o.n_blocks * f.kv_block_bytes + f.scratch_bytes)
            << "rank " << rank << " of " << n;
      }
      const Footprint f = cuda_footprint(model, nullptr, o);
      EXPECT_EQ((*backend)->info().scratch_bytes, f.scratch_bytes + f.graph_bytes);
      EXPECT_EQ((*backend)->info().kv_bytes, o.n_blocks * f.kv_block_bytes);
      EXPECT_EQ((*backend)->info().device, std::to_string(n) + " x ptxvm sm_80");
    }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

TEST(Sharded, RefusesWhatTheDevicesCannotShare) {
  ThreadPool pool(1);
  Model m = bf16_model(cuda_shape());
  auto message = [&](CudaOptions o) {
    o.n_blocks = 4;
    o.max_context = 16;
    auto made = make_cuda_backend(m, nullptr, o, pool);
    return made.ok() ? "" : made.status().message();
  };
  EXPECT_EQ(message(on_devices(3)),
            "--tensor-parallel-size 3: 4 attention heads do not divide by it; possible for this "
            "model: 1, 2, 4");
  EXPECT_EQ(message(on_devices(4, {.int4 = true})),
            "--tensor-parallel-size 4: down: rows of 96 weights do not divide into whole groups of "
            "32; possible for this model: 1");
  CudaOptions library = on_devices(2);
  library.prefill_gemm = CudaOptions::PrefillGemm::kCublas;
  EXPECT_EQ(message(library),
            "--prefill-gemm cublas serves one device; use own with --tensor-parallel-size");
  CudaOptions none = on_devices(4);
  ptxvm::settings().n_devices = 2;
  EXPECT_EQ(message(none), "--tensor-parallel-size 4: only 2 CUDA devices are visible");
}

TEST(Nccl, AMissingLibraryIsNamedWithWhatToInstall) {
  const char* const missing[] = {"libpilotfish-has-no-such.so.2"};
  Result<AllGather> none = load_nccl_from(missing, 2);
  ASSERT_FALSE(none.ok());
  for (const char* part :
       {"libpilotfish-has-no-such.so.2", "install NCCL", "--tensor-parallel-size 1"})
    EXPECT_NE(none.status().message().find(part), std::string::npos) << none.status().message();
  EXPECT_EQ(none.status().message().find('\n'), std::string::npos);
  const char* const other[] = {"libc.so.6"};
  Result<AllGather> wrong = load_nccl_from(other, 2);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("lacks functions of NCCL"), std::string::npos);
}

}  // namespace
}  // namespace pf
