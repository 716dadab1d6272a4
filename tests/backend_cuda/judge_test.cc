// Truth: the CPU's accept rule and scores (src/sampling) over the very logits that the CUDA backend
// read back; and what a draft may propose.
#include <cmath>

#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/launched.h"
#include "ptxvm/host_calls.h"
#include "sampling/accept.h"
#include "sampling/grow.h"

namespace pf {
namespace {

class CudaJudging : public testing::Test {
 protected:
  CudaJudging() : model(bf16_model(cuda_shape())), rig(model) {}

  // Three sequences, one with a tree, one with a chain, one without a draft.
  void run() {
    trees.resize(3);
    for (int32_t i = 0; i < 2; ++i) trees[0].add_one_hot(10 + i, DraftTree::kRoot, 0.5f);
    trees[0].add_one_hot(50, 1, 0.7f);
    int32_t parent = DraftTree::kRoot;
    for (int32_t i = 0; i < 3; ++i) {
      auto first = static_cast<int32_t>(trees[1].q_entries.size());
      trees[1].q_entries.push_back({20 + i, 0.75f});
      trees[1].q_entries.push_back({60 + i, 0.25f});
      trees[1].add(20 + i, parent, first, 0.75f);
      parent = i;
    }
    for (int32_t s = 0; s < 3; ++s) {
      texts.push_back(text_of(9 + s, s));
      tables.push_back(rig.table(3, 20 * s));
    }
    for (size_t s = 0; s < 3; ++s)
      batch.add(texts[s], 0, &trees[s], tables[s], Batch::Logits::kLast);
    rig.backend->forward(batch);
    rows = rig.logits(static_cast<int32_t>(batch.logit_rows.size()));
  }

  AcceptInput input(size_t s, const SamplingParams& params, Acceptance rule) {
    AcceptInput in{};
    in.tree = &trees[s];
    in.params = &params;
    in.stop = &stop;
    in.policy.rule = rule;
    in.policy.alpha = 0.5f;
    in.key = {99, static_cast<uint32_t>(s)};
    in.position = static_cast<int64_t>(texts[s].size());
    in.want_logprobs = s != 1;
    in.n_top_logprobs = 3;
    in.max_tokens = 10;
    return in;
  }

  Model model;
  CudaRig rig;
  StopParams stop;
  std::vector<DraftTree> trees;
  std::vector<std::vector<int32_t>> texts;
  std::vector<std::vector<BlockId>> tables;
  Batch batch;
  std::vector<std::vector<float>> rows;
};

TEST_F(CudaJudging, AcceptsWhatTheHostAccepts) {
  run();
  SamplingParams greedy, warm;
  warm.temperature = 3;  // so that the draft's tokens have a chance
  warm.top_k = 60;
  warm.presence_penalty = 0.3f;
  for (Acceptance rule : {Acceptance::kRejection, Acceptance::kCoupled, Acceptance::kThreshold,
                          Acceptance::kThresholdLiteral, Acceptance::kTypical})
    for (const SamplingParams& params : {greedy, warm}) {
      std::vector<TokenCounts> counts(3);
      std::vector<AcceptJob> jobs;
      for (size_t s = 0; s < 3; ++s) {
        counts[s].add_prompt(texts[s]);
        AcceptInput in = input(s, params, rule);
        in.counts = params.has_penalties() ? &counts[s] : nullptr;
        jobs.push_back({static_cast<int32_t>(s), in});
      }
      std::vector<AcceptResult> got(3);
      rig.backend->accept(jobs, got);
      for (size_t s = 0; s < 3; ++s) {
        AcceptInput in = jobs[s].input;
        const Segment& segment = batch.segments[s];
        std::vector<float> flat;
        for (int32_t r = 0; r < Batch::n_logit_rows(segment); ++r) {
          const auto& row = rows[static_cast<size_t>(batch.first_logit_row(segment) + r)];
          flat.insert(flat.end(), row.begin(), row.end());
        }
        in.logits = {flat.data(), {Batch::n_logit_rows(segment), rig.V}};
        AcceptResult want;
        accept(in, &want);
        SCOPED_TRACE("sequence " + std::to_string(s) + " rule " +
                     std::to_string(static_cast<int>(rule)));
        EXPECT_EQ(got[s].tokens, want.tokens);
        EXPECT_EQ(got[s].origins, want.origins);
        EXPECT_EQ(got[s].path, want.path);
        EXPECT_EQ(got[s].n_accepted, want.n_accepted);
        ASSERT_EQ(got[s].logprobs.size(), want.logprobs.size());
        for (size_t i = 0; i < want.logprobs.size(); ++i) {
          EXPECT_NEAR(got[s].logprobs[i].logprob, want.logprobs[i].logprob, 1e-5);
          ASSERT_EQ(got[s].logprobs[i].top.size(), 3u);
          for (size_t t = 0; t < 3; ++t)
            EXPECT_EQ(got[s].logprobs[i].top[t].token, want.logprobs[i].top[t].token);
        }
      }
    }
}

// Nine sequences of five rows. Rooms for 65 rows at once, for 17 and for two sequences' residuals
// give the same tokens, losses and log-probabilities, bit by bit, in one wait and two copies.
TEST(CudaJudgeRooms, PartsOfAStepAreJudgedAsTheWhole) {
  const Model model = bf16_model(cuda_shape());
  SamplingParams warm;
  warm.temperature = 3;
  StopParams stop;
  std::vector<AcceptResult> whole;
  std::vector<int> n_heads;
  for (const auto& [rows, sequences] : {std::pair(64, 64), std::pair(17, 64), std::pair(64, 2)}) {
    CudaOptions o;
    o.head_chunk_rows = rows;
    o.max_sequences = sequences;
    CudaRig rig(model, o);
    std::vector<DraftTree> trees(9);
    std::vector<std::vector<int32_t>> texts;
    std::vector<std::vector<BlockId>> tables;
    Batch batch;
    for (int32_t s = 0; s < 9; ++s) {
      texts.push_back(text_of(4 + s, s));
      tables.push_back(rig.table(3, 20 * s));
      for (int32_t i = 0; i < 4; ++i) {
        auto first = static_cast<int32_t>(trees[static_cast<size_t>(s)].q_entries.size());
        trees[static_cast<size_t>(s)].q_entries.push_back({5 * s + i, 0.75f});
        trees[static_cast<size_t>(s)].q_entries.push_back({60 + i, 0.25f});
        trees[static_cast<size_t>(s)].add(5 * s + i, i - 1, first, 0.75f);
      }
    }
    for (size_t s = 0; s < 9; ++s)
      batch.add(texts[s], 0, &trees[s], tables[s], Batch::Logits::kLast);
    rig.backend->forward(batch);
    std::vector<AcceptJob> jobs;
    for (int32_t s = 0; s < 9; ++s) {
      AcceptInput in{};
      in.tree = &trees[static_cast<size_t>(s)];
      in.params = &warm;
      in.stop = &stop;
      in.policy.rule = s % 3 == 0 ? Acceptance::kThreshold : Acceptance::kRejection;
      in.policy.alpha = 0.2f;
      in.key = {99, static_cast<uint32_t>(s)};
      in.position = 4 + s;
      in.want_logprobs = true;
      in.n_top_logprobs = s % 4;
      in.watched = s == 7 ? 0b101 : 0;
      in.max_tokens = 10;
      jobs.push_back({s, in});
    }
    std::vector<AcceptResult> got(9);
    rig.logits(1);  // waits for the pass
    if (ptxvm::on_machine()) {
      ptxvm::clear_host_calls();
      ptxvm::settings().note_launches = true;
      ptxvm::take_launches();
    }
    rig.backend->accept(jobs, got);
    if (ptxvm::on_machine()) {
      ptxvm::settings().note_launches = false;
      EXPECT_EQ(ptxvm::host_calls().waits, 1u);
      EXPECT_EQ(ptxvm::host_calls().copies, 2u);
      int heads = 0;
      for (const std::string& l : launched()) heads += l.starts_with("gemm_kernel");
      n_heads.push_back(heads);
    }
    if (whole.empty()) whole = got;
    for (size_t s = 0; s < 9; ++s) {
      EXPECT_EQ(got[s].tokens, whole[s].tokens);
      EXPECT_EQ(got[s].path, whole[s].path);
      EXPECT_EQ(got[s].losses, whole[s].losses);
      EXPECT_EQ(got[s].argmax, whole[s].argmax);
      ASSERT_EQ(got[s].logprobs.size(), whole[s].logprobs.size());
      for (size_t i = 0; i < got[s].logprobs.size(); ++i) {
        EXPECT_EQ(got[s].logprobs[i].logprob, whole[s].logprobs[i].logprob);
        ASSERT_EQ(got[s].logprobs[i].top.size(), s % 4);
        for (size_t t = 0; t < s % 4; ++t)
          EXPECT_EQ(got[s].logprobs[i].top[t].token, whole[s].logprobs[i].top[t].token);
      }
    }
  }
  EXPECT_FALSE(whole[7].argmax.empty());
  // 45 rows; 3 sequences in 17 rows; 2 in 2 residuals.
  if (ptxvm::on_machine()) {
    EXPECT_EQ(n_heads, (std::vector<int>{1, 3, 5}));
  }
}

// 70 of them, where the head has room for 33: three parts in one wait and two copies.
TEST_F(CudaJudging, ScoresKnownTokensAsTheHostDoes) {
  run();
  std::vector<ScoreJob> jobs;
  for (int32_t j = 0; j < 70; ++j)
    jobs.push_back({j % static_cast<int32_t>(rows.size()), j, j % 4});
  std::vector<TokenLogprob> got(jobs.size());
  if (ptxvm::on_machine()) ptxvm::clear_host_calls();
  rig.backend->score(jobs, got);
  if (ptxvm::on_machine()) {
    EXPECT_EQ(ptxvm::host_calls().waits, 1u);
    EXPECT_EQ(ptxvm::host_calls().copies, 2u);
  }
  for (size_t j = 0; j < jobs.size(); ++j) {
    TokenLogprob want =
        logprobs_of(rows[static_cast<size_t>(jobs[j].logit_row)], jobs[j].token, jobs[j].n_top);
    EXPECT_NEAR(got[j].logprob, want.logprob, 1e-5);
    ASSERT_EQ(got[j].top.size(), want.top.size());
    for (size_t t = 0; t < want.top.size(); ++t) {
      EXPECT_EQ(got[j].top[t].token, want.top[t].token);
      EXPECT_NEAR(got[j].top[t].logprob, want.top[t].logprob, 1e-5);
    }
  }
}

// A chain drafted on the device in one go, and level by level through the host, are the same.
TEST_F(CudaJudging, ChainsOnTheDeviceAreThoseOfTheHost) {
  SamplingParams greedy, warm;
  warm.temperature = 1.5f;
  for (const SamplingParams& params : {greedy, warm})
    for (Acceptance rule : {Acceptance::kRejection, Acceptance::kCoupled}) {
      std::vector<std::vector<int32_t>> committed;
      std::vector<ProposeJob> jobs;
      std::vector<std::vector<BlockId>> blocks;
      for (int32_t s = 0; s < 3; ++s) {
        committed.push_back(text_of(5 + 4 * s, s));
        blocks.push_back(rig.table(4, 30 * s));
      }
      for (int32_t s = 0; s < 3; ++s) {
        ProposeJob job;
        job.committed = committed[static_cast<size_t>(s)];
        job.blocks = blocks[static_cast<size_t>(s)];
        job.n_draft = 2 + 2 * s % 3;  // 2, 4, 3: not sorted
        job.policy.rule = rule;
        job.params = &params;
        job.stop = &stop;
        job.key = {7, static_cast<uint32_t>(s)};
        jobs.push_back(job);
      }
      std::vector<DraftTree> on_device(3), on_host(3);
      rig.backend->propose(jobs, on_device);
      // Widths of one are a chain that takes the way of the trees.
      static constexpr int32_t kOnes[] = {1, 1, 1, 1};
      for (ProposeJob& job : jobs)
        job.widths = std::span(kOnes).first(static_cast<size_t>(job.n_draft));
      rig.backend->propose(jobs, on_host);
      for (size_t s = 0; s < 3; ++s) {
        EXPECT_EQ(on_device[s].size(), jobs[s].n_draft);
        EXPECT_EQ(on_device[s].tokens, on_host[s].tokens);
        EXPECT_EQ(on_device[s].parents, on_host[s].parents);
        EXPECT_EQ(on_device[s].depths, on_host[s].depths);
        EXPECT_EQ(on_device[s].q_end, on_host[s].q_end);
        ASSERT_EQ(on_device[s].q_entries.size(), on_host[s].q_entries.size());
        for (size_t i = 0; i < on_host[s].q_entries.size(); ++i) {
          EXPECT_EQ(on_device[s].q_entries[i].token, on_host[s].q_entries[i].token);
          EXPECT_NEAR(on_device[s].q_entries[i].probability, on_host[s].q_entries[i].probability,
                      1e-6);
        }
      }
    }
}

}  // namespace
}  // namespace pf
