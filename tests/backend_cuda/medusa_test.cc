// Truth: Medusa heads by their definition in double; the memory that is gone once they stand; the
// same heads on the CPU; and the kernels that the PTX machine saw.
#include <cuda_runtime_api.h>

#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/device_memory.h"
#include "backend/cuda/multiprocessors.h"
#include "backend/medusa_rig.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/launched.h"

namespace pf {
namespace {

// Heads over six states of a target that is not there: only its states are.
template <class A>
struct Rig {
  explicit Rig(const TinyMedusa& shape, bool int4 = false)
      : model(tiny_medusa(shape)), pool(1), device(6 * shape.width) {
    round_to_bf16(model);
    cuda_check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    std::mt19937 rng(3);
    std::normal_distribution<float> normal;
    std::vector<A> rows;
    for (int r = 0; r < 6; ++r) {
      states.emplace_back();
      for (int64_t i = 0; i < shape.width; ++i) {
        const float v = to_float(to_bf16(normal(rng)));
        if constexpr (std::is_same_v<A, f16>)
          rows.push_back(to_f16(v));
        else
          rows.push_back(to_bf16(v));
        floats.push_back(v);
        states.back().push_back(static_cast<double>(to_float(rows.back())));
      }
    }
    cuda_check(cudaMemcpy(device.data(), rows.data(), device.bytes(), cudaMemcpyHostToDevice));
    constexpr bool kHalf = std::is_same_v<A, f16>;
    options.numbers = kHalf ? CudaOptions::Numbers::kF16 : CudaOptions::Numbers::kBf16;
    options.int4 = int4;
    options.max_rows = 4;  // slots
    options.head_chunk_rows = 2;
    options.draft_top_n = 16;
    options.hidden_of = {
        device.data(), 6, shape.width, kHalf ? StateType::kF16 : StateType::kBf16, true, stream};
    make();
  }
  ~Rig() {
    heads.reset();
    cuda_check(cudaStreamDestroy(stream));
    for (const auto& f : ptxvm::take_findings()) ADD_FAILURE() << ptxvm::to_text(f);
  }
  void make() {
    auto made = make_cuda_backend(model, nullptr, options, pool);
    EXPECT_TRUE(made.ok()) << made.status().message();
    heads = made.take();
  }

  Model model;
  ThreadPool pool;
  DeviceBuffer<A> device;
  std::vector<float> floats;
  cudaStream_t stream = nullptr;
  States states;
  CudaOptions options;
  std::unique_ptr<Backend> heads;
};

// Scores are of q over the 16 likeliest: wider than all tokens' softmax, so only order and tokens
// are compared with the definition here, and scores with the CPU's twin below.
template <class A>
void expect_order(const Model& m, const std::vector<double>& state, const DraftTree& tree,
                  const std::vector<int32_t>& widths, double apart) {
  int32_t node = 0, n_above = 1;
  for (size_t level = 0; level < widths.size(); ++level) {
    const std::vector<int32_t> want =
        likeliest(define_medusa(m, level, state), widths[level], apart);
    for (int32_t above = 0; above < n_above; ++above)
      for (int32_t token : want) {
        ASSERT_LT(node, tree.size());
        EXPECT_EQ(tree.tokens[static_cast<size_t>(node++)], token);
      }
    n_above *= widths[level];
  }
  EXPECT_EQ(node, tree.size());
}

TEST(CudaMedusa, SaysWhatTheDefinitionSays) {
  for (int32_t blocks : {1, 2}) {
    Rig<f16> rig({.width = 64, .vocabulary = 101, .n_heads = 3, .n_blocks = blocks});
    rig.heads->keep_hidden(std::vector<HiddenKeep>{{0, 2}, {5, 0}, {3, 3}});
    const std::vector<int32_t> widths = {2, 2, 1};
    MedusaJobs jobs({2, 0, 3}, 2 + 4 + 4, widths);  // three jobs, two at a time
    rig.heads->propose(jobs.jobs, jobs.trees);
    // x is rounded to f16 behind each block: 2^-11 of values of about 4, 64 of them as noise.
    expect_order<f16>(rig.model, rig.states[0], jobs.trees[0], widths, 0.004);
    expect_order<f16>(rig.model, rig.states[5], jobs.trees[1], widths, 0.004);
    expect_order<f16>(rig.model, rig.states[3], jobs.trees[2], widths, 0.004);
  }
}

// The same drafts, their scores within bf16 (f16), as on the CPU in float.
TEST(CudaMedusa, DraftsAsOnTheCpu) {
  Rig<bf16> rig({.width = 64, .vocabulary = 101, .n_heads = 3});
  CpuOptions c;
  c.weights = CpuOptions::Weights::kF32;
  c.max_rows = 4;
  c.draft_top_n = 16;
  c.hidden_of = {rig.floats.data(), 6, 64};
  auto cpu = make_cpu_backend(rig.model, nullptr, c, rig.pool).take();
  const std::vector<HiddenKeep> keeps = {{4, 1}, {2, 0}};
  rig.heads->keep_hidden(keeps);
  cpu->keep_hidden(keeps);
  MedusaJobs on_cuda({1, 0}, 3), on_cpu({1, 0}, 3);
  rig.heads->propose(on_cuda.jobs, on_cuda.trees);
  cpu->propose(on_cpu.jobs, on_cpu.trees);
  for (size_t j = 0; j < 2; ++j) {
    EXPECT_EQ(on_cuda.trees[j].tokens, on_cpu.trees[j].tokens);
    for (size_t n = 0; n < 3; ++n)
      EXPECT_NEAR(on_cuda.trees[j].scores[n], on_cpu.trees[j].scores[n], 0.02);
  }
}

TEST(CudaMedusa, TakesTheMemoryThatWasForetold) {
  for (bool int4 : {false, true}) {
    Rig<f16> rig({.width = 64, .vocabulary = 101, .n_heads = 2, .n_blocks = 2}, int4);
    rig.heads.reset();
    const int64_t before = cuda_free_bytes();
    rig.make();
    const Footprint f = cuda_footprint(rig.model, nullptr, rig.options);
    EXPECT_EQ(before - cuda_free_bytes(), f.weight_bytes + f.scratch_bytes);
    EXPECT_EQ(rig.heads->info().weight_bytes, f.weight_bytes);
    EXPECT_EQ(rig.heads->info().scratch_bytes, f.scratch_bytes);
    EXPECT_EQ(f.kv_block_bytes, 0);
    EXPECT_EQ(f.graph_bytes, 0);
  }
}

// Three jobs, two at a time, that ask for two heads of three.
TEST(CudaMedusa, LaunchesWhatIsListed) {
  const Model target = bf16_model(cuda_shape());  // 64 wide, as the heads
  for (bool int4 : {false, true}) {
    Rig<bf16> rig({.width = 64, .vocabulary = 101, .n_heads = 3, .n_blocks = 2}, int4);
    rig.heads->keep_hidden(std::vector<HiddenKeep>{{0, 0}, {1, 1}, {2, 2}});
    MedusaJobs jobs({0, 1, 2}, 2);
    cuda_check(cudaDeviceSynchronize());
    ptxvm::settings().note_launches = true;
    ptxvm::take_launches();
    rig.heads->propose(jobs.jobs, jobs.trees);
    const std::vector<std::string> seen = launched();
    ptxvm::settings().note_launches = false;
    LaunchList list(target, nullptr, rig.options, multiprocessors());
    list.propose_heads(rig.model, 3, 2);
    EXPECT_EQ(seen, listed(list));
    EXPECT_EQ(seen.size(), 2u * (1 + 2 * (2 * 2 + 3)));
    EXPECT_EQ(list.n_waits(), 2);
  }
}

TEST(CudaMedusa, RefusesWhatTheKernelsDoNotServe) {
  ThreadPool pool(1);
  CudaOptions o;
  o.hidden_of = {nullptr, 1, 60, StateType::kBf16, true, nullptr};
  EXPECT_NE(make_cuda_backend(tiny_medusa({.width = 60}), nullptr, o, pool)
                .status()
                .message()
                .find("multiple of 8"),
            std::string::npos);
  EXPECT_NE(make_cuda_backend(tiny_medusa({.width = 64}), nullptr, o, pool)
                .status()
                .message()
                .find("hidden states of width 64, its target gives 60"),
            std::string::npos);
  o.hidden_of.on_device = false;
  EXPECT_NE(make_cuda_backend(tiny_medusa({.width = 64}), nullptr, o, pool)
                .status()
                .message()
                .find("a target there"),
            std::string::npos);
}

}  // namespace
}  // namespace pf
