// Truth: an EAGLE head by its definition, in double: x = fc [norm(embedding); norm(hidden state of
// the token before)], then the decoder's layer; behind the target's hidden states a drafted token's
// own row takes what the head said of the row before.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "backend/tiny_head.h"

namespace pf {
namespace {

using Row = std::vector<double>;

Model head_of_48() { return tiny_head({.width = 48, .seed = 5}, {}); }

std::vector<float> random_hidden(int64_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  std::vector<float> h(static_cast<size_t>(n * 48));
  for (float& v : h) v = normal(rng);
  return h;
}

struct Rig {
  explicit Rig(const Model& model, CpuOptions::Weights weights = CpuOptions::Weights::kF32)
      : pool(2) {
    CpuOptions o;
    o.weights = weights;
    o.n_blocks = 64;
    o.block_tokens = 4;
    o.max_rows = 96;
    o.max_context = 200;
    o.draft_top_n = 101;
    states.resize(200 * 48);
    o.hidden_of = {states.data(), 200, 48};
    backend = make_cpu_backend(model, nullptr, o, pool).take();
    for (int32_t row = 0; row < 200; ++row) refs.push_back({HiddenRef::In::kForward, row});
    for (BlockId b = 0; b < 40; ++b) blocks.push_back(b * 7 % 64);
    sampled.temperature = 1;
  }
  // Tokens 1.. of `text` at slots 1.., the last one the root; `hidden` becomes the target's states
  // from row `first` on.
  ProposeJob job(const std::vector<int32_t>& text, const std::vector<float>& hidden, int32_t n,
                 int32_t first = 0) {
    std::copy(hidden.begin(), hidden.end(), states.begin() + first * 48);
    ProposeJob j;
    j.committed = std::span(text).subspan(1);
    j.base = 1;
    j.hidden = std::span(refs).subspan(static_cast<size_t>(first), j.committed.size());
    j.blocks = blocks;
    j.n_draft = n;
    j.params = &greedy;
    j.stop = &stop;
    return j;
  }
  DraftTree draft(const ProposeJob& j) {
    DraftTree tree;
    backend->propose({&j, 1}, {&tree, 1});
    return tree;
  }
  ThreadPool pool;
  std::unique_ptr<Backend> backend;
  std::vector<BlockId> blocks;
  std::vector<float> states;
  std::vector<HiddenRef> refs;
  SamplingParams greedy, sampled;
  StopParams stop;
};

std::vector<int32_t> some_text(int32_t n) {
  std::vector<int32_t> t;
  for (int32_t i = 0; i < n; ++i) t.push_back((i * i * 31 + i * 7) % 101);
  return t;
}

// The distribution that the head gives behind the last of `tokens`.
Row define(const Model& m, const std::vector<int32_t>& tokens, std::vector<Row> hidden) {
  Row logits;
  while (true) {
    std::vector<Row> outputs;
    std::vector<int32_t> fed(tokens.begin(),
                             tokens.begin() + static_cast<std::ptrdiff_t>(hidden.size()));
    logits = define_logits(m, fed, &hidden, &outputs).back();
    if (hidden.size() == tokens.size()) break;
    hidden.push_back(outputs.back());
  }
  double max = *std::max_element(logits.begin(), logits.end()), sum = 0;
  for (double& l : logits) sum += l = std::exp(l - max);
  for (double& l : logits) l /= sum;
  return logits;
}

TEST(EagleHead, MatchesTheDefinitionAtEveryNode) {
  Model m = head_of_48();
  Rig rig(m);
  for (int32_t n : {2, 3, 17, 70}) {
    std::vector<int32_t> text = some_text(n);
    std::vector<float> hidden = random_hidden(n - 1, static_cast<uint32_t>(n));
    std::vector<Row> rows;
    for (int32_t i = 0; i + 1 < n; ++i)
      rows.emplace_back(hidden.begin() + i * 48, hidden.begin() + (i + 1) * 48);
    for (const std::vector<int32_t>& widths : {std::vector<int32_t>{1, 1, 1}, {3, 2, 1}, {}}) {
      ProposeJob job = rig.job(text, hidden, widths.empty() ? 4 : 15);
      job.widths = widths;
      DraftTree tree = rig.draft(job);
      ASSERT_GE(tree.size(), 3);
      for (int32_t node = 0; node < tree.size(); ++node) {
        size_t i = static_cast<size_t>(node);
        std::vector<int32_t> path;
        for (int32_t p = tree.parents[i]; p >= 0; p = tree.parents[static_cast<size_t>(p)])
          path.insert(path.begin(), tree.tokens[static_cast<size_t>(p)]);
        std::vector<int32_t> tokens(text.begin() + 1, text.end());
        tokens.insert(tokens.end(), path.begin(), path.end());
        Row p = define(m, tokens, rows);
        // f32 against double through one layer of width 48.
        EXPECT_NEAR(tree.scores[i], p[static_cast<size_t>(tree.tokens[i])], 2e-4);
      }
    }
  }
}

// What is fed in pieces, beside other sequences, or again, gives the same bits.
TEST(EagleHead, ChunksAndNeighboursChangeNothing) {
  Model m = head_of_48();
  for (auto weights : {CpuOptions::Weights::kF32, CpuOptions::Weights::kBf16}) {
    Rig whole(m, weights), parts(m, weights);
    std::vector<int32_t> text = some_text(40), other = some_text(9);
    std::vector<float> hidden = random_hidden(39, 3), others = random_hidden(8, 4);
    DraftTree want = whole.draft(whole.job(text, hidden, 5));
    for (int32_t from = 1; from < 39; from += 5) {
      ProposeJob piece = parts.job(text, hidden, 0);
      piece.base = from;
      size_t n = static_cast<size_t>(std::min(5, 39 - from));
      piece.committed = std::span(text).subspan(static_cast<size_t>(from), n);
      piece.hidden = std::span(parts.refs).subspan(static_cast<size_t>(from - 1), n);
      parts.draft(piece);
    }
    ProposeJob jobs[2] = {parts.job(other, others, 3, 100), parts.job(text, hidden, 5)};
    std::vector<BlockId> elsewhere = {1, 2, 3, 4, 5};
    jobs[0].blocks = elsewhere;
    jobs[1].base = 39;
    jobs[1].committed = std::span(text).last(1);
    jobs[1].hidden = std::span(parts.refs).subspan(38, 1);
    DraftTree trees[2];
    parts.backend->propose(jobs, trees);
    EXPECT_EQ(trees[1].tokens, want.tokens);
    EXPECT_EQ(trees[1].scores, want.scores);
  }
}

TEST(KeptHidden, AreTheStatesThatTheHeadReads) {
  Model m = tiny_model({});
  ThreadPool pool(2);
  CpuOptions o;
  o.weights = CpuOptions::Weights::kF32;
  o.n_blocks = 8;
  o.max_context = 64;
  o.keep_hidden = true;
  auto backend = make_cpu_backend(m, nullptr, o, pool).take();
  std::vector<BlockId> blocks = {0, 1, 2, 3};
  std::vector<int32_t> text = some_text(20);
  Batch batch;
  batch.add(text, 0, nullptr, blocks, Batch::Logits::kLast);
  backend->forward(batch);
  std::vector<Row> outputs;
  define_logits(m, text, nullptr, &outputs);
  HiddenStates states = backend->hidden_states();
  ASSERT_EQ(states.width, 48);
  const auto* got = static_cast<const float*>(states.data);
  for (size_t row = 0; row < 20; ++row)
    for (size_t i = 0; i < 48; ++i) ASSERT_NEAR(got[row * 48 + i], outputs[row][i], 1e-3);
}

}  // namespace
}  // namespace pf
