// Truth: the kernels that the backend really launches on the PTX machine, in their order and with
// their grids.
#include "backend/cuda/launch_list.h"

#include "backend/cuda/multiprocessors.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/launched.h"

namespace pf {
namespace {

class Launches : public testing::TestWithParam<bool> {
 protected:
  Launches() : model(bf16_model(cuda_shape())), rig(model, options()), list(make_list()) {
    stop.max_new_tokens = 8;
    ptxvm::settings().note_launches = true;
    ptxvm::take_launches();
  }
  ~Launches() override { ptxvm::settings().note_launches = false; }

  static CudaOptions options() {
    CudaOptions o;
    o.int4 = GetParam();
    return o;
  }
  LaunchList make_list() const {
    CudaOptions o = rig.options;
    return LaunchList(model, nullptr, o, multiprocessors());
  }

  // Sequences of `n` tokens behind `base`, each with a chain of k nodes.
  void add(int32_t n, int64_t base, int32_t k) {
    auto s = static_cast<int32_t>(batch.segments.size());
    texts.push_back(std::make_unique<std::vector<int32_t>>(text_of(n, s)));
    tables.push_back(std::make_unique<std::vector<BlockId>>(
        rig.table(static_cast<int32_t>(base + n + k) / 8 + 1, 20 * s)));
    trees.push_back(std::make_unique<DraftTree>());
    int32_t parent = DraftTree::kRoot;
    for (int32_t i = 0; i < k; ++i) {
      trees.back()->add_one_hot(10 + i, parent, 0.5f);
      parent = i;
    }
    batch.add(*texts.back(), base, trees.back().get(), *tables.back(), Batch::Logits::kLast);
  }

  // One step: what was launched is what is listed.
  void expect_listed() {
    rig.backend->forward(batch);
    std::vector<AcceptJob> jobs;
    for (size_t s = 0; s < trees.size(); ++s) {
      AcceptInput in{};
      in.tree = trees[s].get();
      in.params = &greedy;
      in.stop = &stop;
      in.max_tokens = 10;
      jobs.push_back({static_cast<int32_t>(s), in});
    }
    std::vector<AcceptResult> results(jobs.size());
    rig.backend->accept(jobs, results);
    list.clear();
    list.forward(batch);
    list.accept(batch);
    EXPECT_EQ(listed(list), launched());
    EXPECT_EQ(list.n_waits(), 1);
  }

  Model model;
  CudaRig rig;
  LaunchList list;
  SamplingParams greedy;
  StopParams stop;
  Batch batch;
  std::vector<std::unique_ptr<std::vector<int32_t>>> texts;
  std::vector<std::unique_ptr<std::vector<BlockId>>> tables;
  std::vector<std::unique_ptr<DraftTree>> trees;
};

INSTANTIATE_TEST_SUITE_P(Weights, Launches, testing::Values(false, true),
                         [](const auto& i) { return i.param ? "Int4" : "Bf16"; });

TEST_P(Launches, OfDecodingOneSequence) {
  add(1, 5, 0);
  expect_listed();
}

TEST_P(Launches, OfVerifyingChainsOfSeveralSequencesInChunksOfTheHead) {
  for (int32_t s = 0; s < 9; ++s) add(1, 3 + s, 4);  // 45 logit rows, 33 at once
  expect_listed();
}

TEST_P(Launches, OfAPromptBesideADecodedSequence) {
  add(70, 0, 0);
  add(1, 40, 0);
  expect_listed();
}

TEST_P(Launches, OfDraftsOfUnequalLength) {
  std::vector<ProposeJob> jobs;
  for (int32_t s = 0; s < 3; ++s) {
    add(1 + s, 10, 4);
    ProposeJob job;
    job.committed = *texts.back();
    job.base = 10;
    job.blocks = *tables.back();
    job.n_draft = s == 1 ? 0 : 2 + s;
    job.params = &greedy;
    job.stop = &stop;
    jobs.push_back(job);
  }
  std::vector<DraftTree> grown(3);
  rig.backend->propose(jobs, grown);
  list.clear();
  list.propose(jobs);
  EXPECT_EQ(grown[2].size(), 4);
  EXPECT_EQ(listed(list), launched());
  EXPECT_EQ(list.n_waits(), 1);
}

// 32 features of 128 weights: 2,048 bytes of numbers and 4 or 1 groups of 32 scales and minimums.
TEST(LaunchList, GroupsOf128ReadAQuarterOfTheScales) {
  ThreadPool pool(1);
  Model model = wide_int4_model(TensorType::kQ4_1, pool);
  CudaOptions o;
  o.int4 = true;
  o.n_blocks = 4;
  const std::vector<BlockId> blocks = {0};
  const std::vector<int32_t> token = {1};
  Batch batch;
  batch.add(token, 0, nullptr, blocks, Batch::Logits::kNone);
  int64_t bytes[2];
  for (int i = 0; i < 2; ++i) {
    model.config.int4_group = i == 0 ? 128 : 32;
    LaunchList list(model, nullptr, o, {108, 164 << 10});
    list.forward(batch);
    bytes[i] = 0;
    for (const kernels::LaunchCost& c : list.launches()) bytes[i] += c.bytes_read;
  }
  const int64_t groups = 2 * (512 * 4 + 128 * 8 + 256 * 4 + 128 * 4);
  EXPECT_EQ(bytes[1] - bytes[0], groups / 4 * 3 * 4);
}

// Four sequences over the same 512 tokens: their blocks are read once.
TEST_P(Launches, ASharedPrefixCostsItsBytesOnce) {
  const std::vector<BlockId> blocks = rig.table(70, 0);
  const std::vector<int32_t> token = {1};
  auto key_bytes = [&](bool shared) {
    Batch b;
    std::vector<std::vector<BlockId>> own(4, blocks);
    for (int32_t s = 0; s < 4; ++s) {
      for (size_t i = 0; i < 70 && !shared; ++i) own[static_cast<size_t>(s)][i] += s;
      own[static_cast<size_t>(s)].back() += s;
      b.add(token, 512 + s, nullptr, own[static_cast<size_t>(s)], Batch::Logits::kLast);
    }
    list.clear();
    list.forward(b);
    int64_t bytes = 0;
    for (const kernels::LaunchCost& c : list.launches())
      if (c.kernel == std::string("attention_kernel")) bytes += c.bytes_read;
    return bytes;
  };
  const int64_t q = 2 * 2 * 4 * 4 * 64, per_key = 2 * 2 * 2 * 2 * 64;  // two layers
  const int64_t own = 513 + 514 + 515 + 516;
  EXPECT_EQ(key_bytes(false), q + per_key * own);
  EXPECT_EQ(key_bytes(true), q + per_key * (512 + own - 4 * 512));
}

}  // namespace
}  // namespace pf
