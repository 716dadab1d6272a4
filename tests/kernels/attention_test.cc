// Truth: softmax(q k) v over the keys that a row sees, as a float64 loop (level 1), and the row
// itself: it has the same bits alone, in a batch, in a tree, in chunks, with and without sharing.
#include "ptxvm/ptxvm.h"
#include "tests/kernels/attention_scene.h"

namespace pf::kernels {
namespace {

constexpr int32_t kSplits = 1 << 20, kGroups = 0;  // min_blocks: one unit or the other

class Attention : public testing::TestWithParam<uint32_t> {
 protected:
  void SetUp() override { ptxvm::settings().seed = GetParam(); }
  void TearDown() override {
    ptxvm::settings().seed = 0;
    EXPECT_TRUE(ptxvm::take_findings().empty());
  }
};

// A weight and the result are rounded to T (half an ulp each: u = 2^-11 or 2^-8 / 2); a float score
// of D products below 20 is off by 2^-24 * 64 * 20 at most and exp2 by 2 ulp: 2^-13 of the mass.
template <class T>
void expect_definition(Scene<T>& scene, const Shape& shape, int32_t min_blocks) {
  auto got = scene.run(1000, min_blocks);
  const double u = std::is_same_v<T, f16> ? 0x1p-11 : 0x1p-8;
  for (int32_t r = 0; r < scene.n_rows(); ++r)
    for (int32_t h = 0; h < shape.H; ++h) {
      auto [want, mass] = scene.expected(r, h);
      for (size_t d = 0; d < want.size(); ++d)
        ASSERT_NEAR(as_float(got.at(scene.row_tokens()[size_t(r)])[size_t(h * shape.D) + d]),
                    want[d], u * (mass[d] + std::abs(want[d])) + 0x1p-13 * mass[d])
            << "row " << r << " head " << h << " element " << d;
    }
}

template <class T>
void expect_same(const std::map<Token, std::vector<T>>& some,
                 const std::map<Token, std::vector<T>>& all) {
  for (const auto& [token, row] : some) {
    ASSERT_TRUE(all.contains(token)) << token;
    EXPECT_EQ(bits_of(row), bits_of(all.at(token))) << "token " << token;
  }
}

Member sequence(uint32_t name, size_t fed, size_t plain) {
  return {tokens(name, 0, fed), tokens(name, fed, fed + plain), {}, {}};
}
// A tree of 8 nodes: two children of the root, one of them with a long arm, a branch on the way.
Member with_tree(Member m, uint32_t name) {
  m.parents = {-1, -1, 0, 1, 2, 2, 4, 6};
  m.nodes = tokens(name, 90000, 90008);
  return m;
}

TEST_P(Attention, ARowIsTheDefinition) {
  for (Shape shape : {Shape{4, 2, 64}, Shape{3, 1, 128}, Shape{9, 3, 64, 32}, Shape{2, 2, 128}})
    for (int32_t min_blocks : {kSplits, kGroups}) {
      std::vector<Member> members = {sequence(1, 0, 1),   sequence(2, 63, 1),
                                     sequence(3, 64, 2),  sequence(4, 255, 1),
                                     sequence(5, 256, 1), with_tree(sequence(6, 300, 1), 7)};
      Scene<f16> half(shape, members);
      expect_definition(half, shape, min_blocks);
      Scene<bf16> brain(shape, members);
      expect_definition(brain, shape, min_blocks);
    }
}

// Where a window opens in the middle of a tile, at its edge, in the first split and beyond.
TEST_P(Attention, AWindowIsTheDefinition) {
  for (int32_t window : {1, 64, 100, 300})
    for (int32_t min_blocks : {kSplits, kGroups}) {
      Shape shape{4, 2, 64, 16, window};
      Scene<f16> scene(shape, {sequence(1, 0, 1), sequence(2, 130, 3),
                               with_tree(sequence(3, 638, 2), 4), sequence(5, 260, 20)});
      expect_definition(scene, shape, min_blocks);
    }
}

// Beyond one group: 2,200 positions, parts of parts.
TEST_P(Attention, ALongRowIsTheDefinition) {
  Shape shape{2, 1, 64};
  Scene<f16> scene(shape, {sequence(1, 2199, 2), sequence(2, 2047, 2)});
  expect_definition(scene, shape, kSplits);
  expect_definition(scene, shape, kGroups);
}

TEST_P(Attention, NoRowsDoNothing) {
  Scene<f16> scene({}, {});
  uint64_t before = ptxvm::n_launches();
  EXPECT_TRUE(scene.run(1, kSplits).empty());
  EXPECT_EQ(ptxvm::n_launches(), before);
}

template <class T>
void expect_bits_of_a_row_alone(Shape shape) {
  const std::vector<Member> members = {sequence(1, 70, 1), with_tree(sequence(2, 300, 1), 3),
                                       sequence(4, 0, 40), with_tree(sequence(5, 511, 3), 6),
                                       sequence(7, 2050, 2)};
  Scene<T> all(shape, members);
  auto together = all.run(1000, kSplits);
  expect_same(together, all.run(1000, kGroups));
  expect_same(together, all.run(1000, kSplits, 1));
  expect_same(together, all.run(14, kSplits));  // several plans, one after the other
  for (const Member& m : members) {  // each row as the only one of its step, without a tree
    std::vector<Token> path = m.fed;
    for (Token t : m.plain) {
      expect_same(Scene<T>(shape, {{path, {t}, {}, {}}}).run(1000, kSplits), together);
      path.push_back(t);
    }
    for (size_t i = 0; i < m.nodes.size(); ++i) {
      std::vector<Token> above;
      for (int32_t n = m.parents[i]; n >= 0; n = m.parents[size_t(n)])
        above.insert(above.begin(), m.nodes[size_t(n)]);
      above.insert(above.begin(), path.begin(), path.end());
      expect_same(Scene<T>(shape, {{above, {m.nodes[i]}, {}, {}}}).run(1000, kSplits), together);
    }
  }
}

TEST_P(Attention, ARowAloneHasTheBitsItHasInABatchAndInATree) {
  expect_bits_of_a_row_alone<f16>({4, 2, 64});
  expect_bits_of_a_row_alone<bf16>({3, 1, 128});
}
TEST_P(Attention, AWindowedRowAloneHasTheSameBits) {
  expect_bits_of_a_row_alone<f16>({4, 2, 64, 16, 90});
}

TEST_P(Attention, ChunksOfAPromptGiveTheSameBits) {
  const Shape shape{4, 1, 64};
  auto whole = Scene<f16>(shape, {sequence(1, 0, 330)}).run(1000, kGroups);
  expect_same(Scene<f16>(shape, {sequence(1, 0, 65)}).run(1000, kSplits), whole);
  expect_same(Scene<f16>(shape, {sequence(1, 65, 250)}).run(1000, kSplits), whole);
  expect_same(Scene<f16>(shape, {sequence(1, 315, 15)}).run(1000, kGroups), whole);
}

// Four sequences with a common prefix of 320 tokens, held in the same blocks or each in its own.
TEST_P(Attention, ASharedPrefixGivesTheSameBits) {
  const Shape shape{4, 2, 64};
  std::vector<Member> members;
  for (uint32_t name = 1; name <= 4; ++name) {
    Member m = sequence(name, 320 + 9 * name, 1);
    std::vector<Token> prefix = tokens(9, 0, 320);
    std::copy(prefix.begin(), prefix.end(), m.fed.begin());
    members.push_back(name == 2 ? with_tree(m, 8) : m);
  }
  std::vector<Member> sharing = members;
  for (size_t i = 1; i < 4; ++i) sharing[i].shares = 0, sharing[i].shared = 20;
  for (int32_t min_blocks : {kSplits, kGroups}) {
    Scene<f16> apart(shape, members), shared(shape, sharing);
    expect_same(apart.run(1000, min_blocks), shared.run(1000, min_blocks));
    expect_definition(shared, shape, min_blocks);
  }
}

INSTANTIATE_TEST_SUITE_P(Schedules, Attention, testing::Values(0u, 1u));

}  // namespace
}  // namespace pf::kernels
