// Truth: a transformer written out in float64 (tests/backend/tiny_model.h), whatever number of
// devices shares the model; and the memory that is gone on each device. A kernel that touches
// another device's memory is a finding of the machine.
#include <map>

#include "backend/cuda/launch_list.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/multiprocessors.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/launched.h"
#include "backend_cuda/peer_gather.h"
#include "engine/memory_plan.h"
#include "ptxvm/host_calls.h"

namespace pf {
namespace {

using Numbers = CudaOptions::Numbers;

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

// The streams of the devices run ahead of each other in any order, prompts and tokens in turn.
TEST(Sharded, SchedulesChangeNoBit) {
  Model m = bf16_model(cuda_shape());
  const std::vector<int32_t> t = text_of(40);
  std::vector<std::vector<float>> want;
  for (uint32_t seed : {0u, 1u, 2u, 3u}) {
    ptxvm::settings().seed = seed;
    CudaRig rig(m, on_devices(seed == 3 ? 4 : 2));
    auto table = rig.table(6, 3);
    std::vector<std::vector<float>> got;
    ptxvm::clear_host_calls();
    for (size_t at = 0; at < t.size();) {
      const size_t n = at < 24 ? 8 : 1;
      Batch batch;
      batch.add(std::span(t).subspan(at, n), static_cast<int64_t>(at), nullptr, table,
                Batch::Logits::kLast);
      rig.backend->forward(batch);
      if (at % 3 == 0) got.push_back(rig.logits(1)[0]);
      at += n;
    }
    EXPECT_EQ(ptxvm::host_calls().graphs, 0u);
    if (seed == 0) want = got;
    if (seed < 3) {
      EXPECT_EQ(got, want) << "schedule " << seed;
    }
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
      Progress progress;
      o.progress = &progress;
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
        progress.expect(f.read_bytes);
      }
      EXPECT_EQ(progress.done(), progress.total());
      const Footprint f = cuda_footprint(model, nullptr, o);
      EXPECT_EQ((*backend)->info().scratch_bytes, f.scratch_bytes);
      EXPECT_EQ((*backend)->info().kv_bytes, o.n_blocks * f.kv_block_bytes);
      EXPECT_EQ((*backend)->info().device, std::to_string(n) + " x ptxvm sm_80");
    }
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// As `pilotfish plan` prints it, with a draft on the first device.
TEST(Sharded, ThePlanIsTheMemoryThatEachDeviceGives) {
  const Model target = bf16_model(cuda_shape()), draft = bf16_model(cuda_shape());
  EngineOptions o;
  o.max_num_seqs = 3;
  o.max_num_batched_tokens = 70;
  o.max_model_len = 200;
  ResidentModel shared;
  shared.name = "target";
  shared.model = &target;
  shared.weights = "bf16";
  shared.max_rows = 70;
  shared.device = Device::kCuda;
  shared.n_devices = 2;
  ResidentModel drafts = shared;
  drafts.name = "draft model";
  drafts.model = &draft;
  drafts.weights = "int4";
  drafts.n_devices = 1;
  on_devices(2);
  Result<MemoryPlan> plan = plan_memory(o, {Device::kCuda, 1, int64_t{4} << 30}, {shared, drafts});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  ThreadPool pool(1);
  const std::vector<int64_t> before = free_bytes(2);
  auto first =
      make_cuda_backend(target, nullptr, on_devices(2, cuda_options(o, plan->residents[0])), pool);
  auto second = make_cuda_backend(draft, nullptr, cuda_options(o, plan->residents[1]), pool);
  ASSERT_TRUE(first.ok() && second.ok());
  const std::vector<int64_t> after = free_bytes(2);
  // What is set aside for the draft's graphs and for NCCL is not taken here.
  const int64_t graphs = kGraphNodes * kGraphNodeBytes;
  EXPECT_EQ(before[0] - after[0], plan->total_bytes() - graphs - kCollectiveBytes);
  EXPECT_EQ(before[1] - after[1], plan->other_device_bytes - kCollectiveBytes);
}

// A pass has each launch of the list on every device; the judge's are on the first alone.
TEST(Sharded, TheListIsWhatIsLaunchedAndExchanged) {
  TinyShape shape = cuda_shape();
  shape.ffn = 128;
  const Model m = bf16_model(shape);
  for (bool int4 : {false, true})
    for (int32_t n : {2, 4}) {
      auto gather = std::make_shared<PeerGather>(n);
      CudaRig rig(m, on_devices(n, {.int4 = int4}, gather));
      LaunchList list(m, nullptr, rig.options, multiprocessors()),
          judge(m, nullptr, rig.options, multiprocessors());
      auto table = rig.table(6, 3);
      Batch batch;
      const std::vector<int32_t> text = text_of(5);
      batch.add(text, 12, nullptr, table, Batch::Logits::kLast);
      ptxvm::settings().note_launches = true;
      ptxvm::take_launches();
      rig.backend->forward(batch);
      AcceptInput in{};
      const DraftTree tree;
      const SamplingParams greedy;
      StopParams stop;
      in.tree = &tree;
      in.params = &greedy;
      in.stop = &stop;
      in.max_tokens = 10;
      std::vector<AcceptJob> jobs = {{0, in}};
      std::vector<AcceptResult> results(1);
      rig.backend->accept(jobs, results);
      ptxvm::settings().note_launches = false;
      list.forward(batch);
      judge.accept(batch);
      std::map<std::string, int> want;
      for (const std::string& l : listed(list)) want[l] += n;
      for (const std::string& l : listed(judge))
        want[l] += l.starts_with("gather") || l.starts_with("gemm") ? n : 1;  // logits; the rule
      std::map<std::string, int> got;
      for (const std::string& l : launched()) ++got[l];
      EXPECT_EQ(got, want);
      EXPECT_EQ(gather->n_calls, list.n_exchanges() + judge.n_exchanges());
      EXPECT_EQ(gather->n_bytes * (n - 1), list.exchanged_bytes() + judge.exchanged_bytes());
    }
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
  CudaOptions none = on_devices(4);
  ptxvm::settings().n_devices = 2;
  EXPECT_EQ(message(none), "--tensor-parallel-size 4: CUDA devices visible: 2");
}

}  // namespace
}  // namespace pf
