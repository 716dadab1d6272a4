// Truth: tests/golden/heads.json, small EAGLE-1 and EAGLE-3 heads by an implementation in plain
// Python, loaded from the layouts that published heads have.
#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/published_head.h"
#include "backend/tiny_model.h"
#include "support/real_model.h"

namespace pf {
namespace {

using P = PublishedHead;

// What a head borrows of its target.
Model target_with(const std::vector<float>& embedding, const std::vector<float>& head) {
  Model m = tiny_model({.width = P::E, .vocabulary = P::V});
  auto put = [&](const std::vector<float>& values, Tensor* t) {
    auto bytes = m.storage.allocate(values.size() * 4);
    std::memcpy(bytes.data(), values.data(), bytes.size());
    t->data = bytes;
  };
  put(embedding, &m.embedding);
  put(head, &m.head);
  return m;
}

// The case's draft of n tokens, and the logits behind all but the last of them.
void compare(const Model& head, const Model& target, const nlohmann::json& c, int threads) {
  auto text = c["text"].get<std::vector<int32_t>>();
  auto draft = c["draft"].get<std::vector<int32_t>>();
  const auto n_states = static_cast<int64_t>(text.size()) - 1;
  std::vector<float> states =
      P::values(P::kStates + c["number"].get<int64_t>(), n_states * head.hidden_width(), 1);
  ThreadPool pool(threads);
  CpuOptions o;
  o.weights = CpuOptions::Weights::kF32;
  o.n_blocks = 16;
  o.block_tokens = 4;
  o.max_context = 64;
  o.draft_top_n = P::V;
  o.hidden_of = {states.data(), n_states, head.hidden_width()};
  auto made = make_cpu_backend(head, &target, o, pool);
  ASSERT_TRUE(made.ok()) << made.status().message();
  std::vector<BlockId> blocks = {3, 9, 1, 15, 0, 7, 8, 2};
  std::vector<HiddenRef> hidden;
  for (int32_t row = 0; row < n_states; ++row) hidden.push_back({HiddenRef::In::kForward, row});
  SamplingParams greedy;
  StopParams stop;
  ProposeJob job;
  job.committed = std::span(text).subspan(1);
  job.base = 1;
  job.hidden = hidden;
  job.blocks = blocks;
  job.params = &greedy;
  job.stop = &stop;
  for (int32_t n = 1; n <= 4; ++n) {
    job.n_draft = n;
    DraftTree tree;
    (*made)->propose({&job, 1}, {&tree, 1});
    ASSERT_EQ(tree.tokens, std::vector<int32_t>(draft.begin(), draft.begin() + n));
    // The last pass that it took is the one behind all tokens but the last.
    std::vector<float> got(P::V);
    (*made)->read_logits(0, 1, {got.data(), {1, P::V}});
    auto want = c["logits"][static_cast<size_t>(n - 1)].get<std::vector<double>>();
    for (size_t r = 0; r < want.size(); ++r) {
      auto token = static_cast<int64_t>(r);
      if (head.head_kind == HeadKind::kEagle3) token = P::token_of_row(token);
      // float beside double through one layer of width 32, at logits of about 1; 6 decimals.
      EXPECT_NEAR(got[static_cast<size_t>(token)], want[r], 2e-5) << "row " << r;
      got[static_cast<size_t>(token)] = -INFINITY;
    }
    for (float v : got) EXPECT_EQ(v, -INFINITY) << "a token that the head does not have";
  }
}

class PublishedHeads : public testing::TestWithParam<int> {};

TEST_P(PublishedHeads, SayWhatThePlainReferenceSays) {
  Model target = target_with(P::values(P::kEmbed, P::V * P::E, 1),
                             P::values(P::kTargetHead, P::V * P::E, 0.25f));
  nlohmann::json truth = golden("heads.json");
  int n = 0;
  for (auto& c : truth["cases"]) {
    const bool eagle3 = c["kind"] == "eagle3";
    test::Folder folder;
    auto head = P::load(folder, P::tensors(eagle3, eagle3 ? "midlayer." : "layers.0."));
    ASSERT_TRUE(head.ok()) << head.status().message();
    compare(*head, target, c, GetParam());
    ++n;
  }
  EXPECT_EQ(n, 6);
}

INSTANTIATE_TEST_SUITE_P(Threads, PublishedHeads, testing::Values(1, 3));

// An embedding in the file stands in for the target's; a head under layers.0, as some write it, is
// the same one.
TEST(PublishedHead, ItsOwnEmbeddingIsUsed) {
  Model target =
      target_with(P::values(P::kUp, P::V * P::E, 1), P::values(P::kTargetHead, P::V * P::E, 1));
  P::Rows rows = P::tensors(true, "layers.0.");
  P::add(&rows, "embed_tokens.weight", P::kEmbed, {P::V, P::E}, 1);
  test::Folder folder;
  auto head = P::load(folder, rows);
  ASSERT_TRUE(head.ok()) << head.status().message();
  EXPECT_FALSE(head->shares_embedding);
  nlohmann::json truth = golden("heads.json");
  compare(*head, target, truth["cases"][4], 1);
}

// Rows of a reduced head in any order of their tokens are put in order at load.
TEST(PublishedHead, RowsOutOfOrderSayTheSame) {
  Model target =
      target_with(P::values(P::kEmbed, P::V * P::E, 1), P::values(P::kTargetHead, P::V * P::E, 1));
  P::Rows rows = P::tensors(true, "midlayer.");
  std::string head, d2t;
  for (int64_t i = 0; i < P::kDraft; ++i) {
    int64_t row = P::kDraft - 1 - i;
    head += rows["lm_head.weight"].data.substr(static_cast<size_t>(row * P::E * 4), P::E * 4);
    d2t += test::raw<int64_t>(P::token_of_row(row) - i);
  }
  rows["lm_head.weight"].data = head;
  rows["d2t"].data = d2t;
  test::Folder folder;
  auto loaded = P::load(folder, rows);
  ASSERT_TRUE(loaded.ok()) << loaded.status().message();
  nlohmann::json truth = golden("heads.json");
  compare(*loaded, target, truth["cases"][5], 1);
}

// States in front of chosen layers, side by side.
TEST(KeptHidden, TapsAreTheResidualStreamInFrontOfLayers) {
  Model m = tiny_model({.layers = 4});
  std::vector<std::vector<float>> seen;  // in front of layer i
  ThreadPool pool(2);
  CpuOptions o;
  o.weights = CpuOptions::Weights::kF32;
  o.n_blocks = 8;
  o.max_context = 64;
  o.keep_hidden = true;
  o.tap_layers = {3, 0, 4};
  o.tap = [&](int64_t, View<const float, 2> x) { seen.emplace_back(x.data, x.data + x.size()); };
  auto backend = make_cpu_backend(m, nullptr, o, pool).take();
  std::vector<BlockId> blocks = {0, 1, 2, 3};
  std::vector<int32_t> text(20, 7);
  Batch batch;
  batch.add(text, 0, nullptr, blocks, Batch::Logits::kLast);
  backend->forward(batch);
  ASSERT_EQ(seen.size(), 5u);
  HiddenStates states = backend->hidden_states();
  ASSERT_EQ(states.width, 3 * 48);
  const auto* got = static_cast<const float*>(states.data);
  for (size_t row = 0; row < 20; ++row)
    for (size_t i = 0; i < 3; ++i)
      for (size_t e = 0; e < 48; ++e)
        ASSERT_EQ(got[(row * 3 + i) * 48 + e],
                  seen[static_cast<size_t>(o.tap_layers[i])][row * 48 + e]);
}

}  // namespace
}  // namespace pf
