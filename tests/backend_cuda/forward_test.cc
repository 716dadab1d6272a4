// Truth: a transformer written out in float64 (tests/backend/tiny_model.h); and bit equality
// between all ways to compute one row (invariant 7 of the step), on the PTX machine.
#include "backend/cpu/cpu_backend.h"
#include "backend/cuda/launch_list.h"
#include "backend_cuda/cuda_rig.h"
#include "backend_cuda/peer_gather.h"
#include "sampling/draft_tree.h"

namespace pf {
namespace {

using Numbers = CudaOptions::Numbers;

TEST(CudaForward, MatchesTheDefinition) {
  // A rounding to b bits behind the point is off by 2^-b / sqrt(12) of its power of two at the root
  // mean square, at most 2^-(b+1) / sqrt(3) of the value. A layer rounds what enters 4 products,
  // q, k, v, the weights of attention and gate and up: 10; 2 layers and the head's: 21, each passed
  // on about as it is: sqrt(21 / 3) 2^-(b+1) = 1.3 * 2^-b; b = 7 for bf16, 10 for f16. Twice that.
  TinyShape biased = cuda_shape(), wide = cuda_shape(), windowed = cuda_shape();
  biased.bias = true;
  wide.head_width = 128, wide.kv_heads = 1, wide.vocabulary = 77;
  windowed.sliding_window = 7;
  for (const TinyShape& shape : {cuda_shape(), biased, wide, windowed}) {
    Model m = bf16_model(shape);
    std::vector<int32_t> t = text_of(40);
    for (int32_t& id : t) id %= static_cast<int32_t>(shape.vocabulary);
    auto want = define_logits(m, t);
    for (Numbers numbers : {Numbers::kBf16, Numbers::kF16}) {
      CudaRig rig(m, {.numbers = numbers});
      auto table = rig.table(5, 3);
      Batch batch;
      batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
      rig.backend->forward(batch);
      EXPECT_LT(relative_noise(rig.logits(40), want),
                2 * 1.3 * (numbers == Numbers::kF16 ? 0x1p-10 : 0x1p-7));
    }
  }
}

// int8 on the CPU in float32 is the twin. A key or value that comes within e of the twin's lies
// beside another whole number with probability e / s, and is then off by the scale s: sqrt(e s) at
// the root mean square. e = 2^-11 of it in f16, s at most 4 of its deviations / 127 = 2^-5: 2^-8,
// for k and v of 2 layers sqrt(4) 2^-8. That beside the noise of f16 above, and twice the sum.
TEST(CudaForward, Int8KvIsTheCpusToTheNoiseOfF16) {
  for (int64_t D : {64, 128}) {
    TinyShape shape = cuda_shape();
    shape.head_width = D;
    Model m = bf16_model(shape);
    std::vector<int32_t> t = text_of(40);
    CudaRig rig(m, {.numbers = Numbers::kF16, .int8_kv = true});
    EXPECT_EQ(rig.backend->info().kv_bytes,
              int64_t{2} * rig.n_blocks * 8 * 2 * 2 * (D + 4));  // layers, tokens, K and V, G
    CpuOptions o;
    o.weights = CpuOptions::Weights::kF32;
    o.int8_kv = true;
    o.n_blocks = rig.n_blocks;
    o.block_tokens = 8;
    o.max_context = 1024;
    auto cpu = make_cpu_backend(m, nullptr, o, rig.pool).take();
    EXPECT_EQ(cpu->info().kv_bytes, rig.backend->info().kv_bytes);
    auto table = rig.table(5, 3);
    Batch batch;
    batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
    rig.backend->forward(batch);
    cpu->forward(batch);
    std::vector<float> flat(static_cast<size_t>(40 * rig.V));
    cpu->read_logits(0, 40, {flat.data(), {40, rig.V}});
    std::vector<std::vector<double>> want;
    for (int64_t r = 0; r < 40; ++r)
      want.emplace_back(flat.begin() + r * rig.V, flat.begin() + (r + 1) * rig.V);
    EXPECT_LT(relative_noise(rig.logits(40), want), 2 * (1.3 * 0x1p-10 + 0x1p-7));
  }
}

// A draft whose file shares scales by 128 weights takes the head of a target whose blocks of 32
// have scales of their own. bf16 as above; no weight changes, since both files hold 4 bits.
TEST(CudaForward, ADraftInGroupsOf128TakesAHeadInGroupsOf32) {
  ThreadPool pool(1);
  TinyShape shape = cuda_shape();
  shape.width = shape.ffn = 128;
  const Model target = quantize_model(bf16_model(shape), TensorType::kQ4_0, pool).take();
  Model draft = wide_int4_model(TensorType::kQ4_1, pool);
  ASSERT_EQ(draft.config.int4_group, 128);
  draft.shares_head = true;
  draft.head = {};
  CudaOptions o;
  o.int4 = true;
  o.n_blocks = 20;
  o.block_tokens = 8;
  o.max_rows = 64;
  o.max_context = 128;
  auto made = make_cuda_backend(draft, &target, o, pool);
  ASSERT_TRUE(made.ok()) << made.status().message();
  const Footprint foretold = cuda_footprint(draft, &target, o);
  EXPECT_EQ((*made)->info().scratch_bytes, foretold.scratch_bytes + foretold.graph_bytes);
  CpuOptions c;
  c.weights = CpuOptions::Weights::kF32;
  c.n_blocks = 20;
  c.block_tokens = 8;
  c.max_context = 128;
  auto cpu = make_cpu_backend(draft, &target, c, pool).take();
  const std::vector<int32_t> t = text_of(20);
  const std::vector<BlockId> table = {3, 1, 7};
  Batch batch;
  batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
  (*made)->forward(batch);
  cpu->forward(batch);
  std::vector<float> got(20 * 101), want(20 * 101);
  (*made)->read_logits(0, 20, {got.data(), {20, 101}});
  cpu->read_logits(0, 20, {want.data(), {20, 101}});
  std::vector<std::vector<float>> got_rows;
  std::vector<std::vector<double>> want_rows;
  for (int r = 0; r < 20; ++r) {
    got_rows.emplace_back(got.begin() + r * 101, got.begin() + (r + 1) * 101);
    want_rows.emplace_back(want.begin() + r * 101, want.begin() + (r + 1) * 101);
  }
  EXPECT_LT(relative_noise(got_rows, want_rows), 2 * 1.3 * 0x1p-7);
  // The list of launches reads the same head: 101 rows of 4 groups, padded to 128; and one state.
  LaunchList list(draft, &target, o, {108, 164 << 10});
  list.forward(batch);
  list.accept(batch);
  int64_t head_bytes = 0;
  for (const kernels::LaunchCost& l : list.launches())
    if (l.kernel == std::string("gemm_kernel")) head_bytes = l.bytes_read;
  EXPECT_EQ(head_bytes, 128 * (128 / 2 + 4 * 2) + 2 * 128);
  EXPECT_TRUE(ptxvm::take_findings().empty());
}

// Rows of the same text, however they come: one pass, chunks, single tokens, beside others.
enum class Kind { kBf16, kInt4, kWideInt4, kInt8Kv, kTwoDevices, kFourDevices, kTwoDevicesPacked };
class CudaBits : public testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    if (!ptxvm::on_machine() && GetParam() >= Kind::kTwoDevices) GTEST_SKIP() << "of one device";
  }
  static CudaOptions options() {
    const Kind kind = GetParam();
    const bool packed = kind == Kind::kTwoDevicesPacked;
    CudaOptions o{.int8_kv = packed || kind == Kind::kInt8Kv,
                  .int4 = packed || kind == Kind::kInt4 || kind == Kind::kWideInt4};
    return kind == Kind::kFourDevices            ? on_devices(4, o)
           : packed || kind == Kind::kTwoDevices ? on_devices(2, o)
                                                 : o;
  }
  static Model model() {
    if (GetParam() == Kind::kWideInt4) {
      ThreadPool pool(1);
      return wide_int4_model(TensorType::kQ4_1, pool);
    }
    TinyShape shape = cuda_shape();
    shape.ffn = 128;  // whole groups of 32 for two devices
    return bf16_model(shape);
  }
};

TEST_P(CudaBits, ChunksDecodeAndNeighboursGiveTheBitsOfOnePass) {
  Model m = model();
  CudaRig rig(m, options());
  std::vector<int32_t> t = text_of(70);
  auto table = rig.table(9, 3), other = rig.table(9, 100);
  Batch batch;
  batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
  rig.backend->forward(batch);
  auto whole = rig.logits(70);
  for (int32_t at = 0, round = 0; at < 70; ++round) {
    int32_t n = std::min(at < 64 ? 1 + round * 13 % 29 : 1, 70 - at);
    batch.clear();
    // A neighbour of one row in front moves this one's rows to another place.
    batch.add(std::span(t).first(1), 0, nullptr, table, Batch::Logits::kAll);
    batch.add(std::span(t).subspan(static_cast<size_t>(at), static_cast<size_t>(n)), at, nullptr,
              other, Batch::Logits::kAll);
    rig.backend->forward(batch);
    auto part = rig.logits(1 + n);
    for (int32_t i = 0; i < n; ++i)
      ASSERT_EQ(part[static_cast<size_t>(1 + i)], whole[static_cast<size_t>(at + i)])
          << "row " << at + i;
    at += n;
  }
}

TEST_P(CudaBits, TreeNodesHaveTheBitsOfTheirChains) {
  Model m = model();
  CudaRig rig(m, options());
  std::vector<int32_t> t = text_of(61);  // the tree's paths cross the tile at 64
  DraftTree tree;
  for (int32_t i = 0; i < 3; ++i) tree.add_one_hot(10 + i, DraftTree::kRoot);
  for (int32_t i = 0; i < 3; ++i) tree.add_one_hot(20 + i, i);
  tree.add_one_hot(30, 4);
  for (int32_t d = 0; d < 3; ++d) tree.add_one_hot(40 + d, tree.size() - 1);
  auto table = rig.table(12, 0), chain_table = rig.table(12, 100);
  Batch batch;
  batch.add(std::span(t).first(60), 0, nullptr, table, Batch::Logits::kNone);
  rig.backend->forward(batch);
  batch.clear();
  batch.add(std::span(t).last(1), 60, &tree, table, Batch::Logits::kLast);
  rig.backend->forward(batch);
  auto rows = rig.logits(1 + tree.size());
  for (int32_t leaf : {3, 5, tree.size() - 1}) {
    std::vector<int32_t> path;
    for (int32_t n = leaf; n >= 0; n = tree.parents[static_cast<size_t>(n)])
      path.insert(path.begin(), n);
    std::vector<int32_t> chain = t;
    for (int32_t n : path) chain.push_back(tree.tokens[static_cast<size_t>(n)]);
    batch.clear();
    batch.add(chain, 0, nullptr, chain_table, Batch::Logits::kAll);
    rig.backend->forward(batch);
    auto want = rig.logits(static_cast<int32_t>(chain.size()));
    for (size_t d = 0; d < path.size(); ++d)
      ASSERT_EQ(rows[static_cast<size_t>(1 + path[d])], want[61 + d]) << "node " << path[d];
  }
}

TEST_P(CudaBits, SharedPrefixMovedPathsAndCopiedBlocks) {
  Model m = model();
  CudaRig rig(m, options());
  std::vector<int32_t> t = text_of(24);
  auto table = rig.table(6, 0);
  Batch batch;
  batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
  rig.backend->forward(batch);
  auto whole = rig.logits(24);
  // Two sequences share 16 tokens; the second has its own copy of the third block.
  auto sibling = table;
  sibling[2] = 150, sibling[3] = 151;
  rig.backend->copy_blocks(std::vector<BlockCopy>{{table[2], sibling[2]}});
  batch.clear();
  batch.add(std::span(t).last(1), 23, nullptr, table, Batch::Logits::kLast);
  batch.add(std::span(t).last(1), 23, nullptr, sibling, Batch::Logits::kLast);
  rig.backend->forward(batch);
  auto both = rig.logits(2);
  EXPECT_EQ(both[0], whole[23]);
  EXPECT_EQ(both[1], whole[23]);
  // A tree whose second branch is kept: its K and V move behind the committed ones.
  DraftTree tree;
  tree.add_one_hot(7, DraftTree::kRoot);
  tree.add_one_hot(8, DraftTree::kRoot);
  tree.add_one_hot(9, 0);
  tree.add_one_hot(11, 1);
  batch.clear();
  batch.add(std::span(t).last(1), 23, &tree, table, Batch::Logits::kLast);
  rig.backend->forward(batch);
  rig.backend->move_slots(std::vector<SlotMove>{{table, 25, 24}, {table, 27, 25}});
  batch.clear();
  std::vector<int32_t> next = {12};
  batch.add(next, 26, nullptr, table, Batch::Logits::kLast);
  rig.backend->forward(batch);
  auto moved = rig.logits(1);
  std::vector<int32_t> all = t;
  for (int32_t token : {8, 11, 12}) all.push_back(token);
  auto fresh = rig.table(6, 100);
  batch.clear();
  batch.add(all, 0, nullptr, fresh, Batch::Logits::kLast);
  rig.backend->forward(batch);
  EXPECT_EQ(moved[0], rig.logits(1)[0]);
}

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  static constexpr const char* kNames[] = {"Bf16",       "Int4",        "WideInt4",        "Int8Kv",
                                           "TwoDevices", "FourDevices", "TwoDevicesPacked"};
  return kNames[static_cast<int>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Held, CudaBits,
                         testing::Values(Kind::kBf16, Kind::kInt4, Kind::kWideInt4, Kind::kInt8Kv,
                                         Kind::kTwoDevices, Kind::kFourDevices,
                                         Kind::kTwoDevicesPacked),
                         name_of);

// The same numbers with a scale for 128 weights and with four equal ones.
TEST(CudaForward, GroupsOf128GiveTheBitsOfGroupsOf32) {
  ThreadPool pool(1);
  for (TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1}) {
    Model m = wide_int4_model(type, pool);
    const std::vector<int32_t> t = text_of(40);
    std::vector<std::vector<float>> logits[2];
    int64_t bytes[2];
    for (int i = 0; i < 2; ++i) {
      m.config.int4_group = i == 0 ? 128 : 32;
      CudaRig rig(m, {.int4 = true});
      const std::vector<BlockId> table = rig.table(5, 3);
      Batch batch;
      batch.add(t, 0, nullptr, table, Batch::Logits::kAll);
      rig.backend->forward(batch);
      logits[i] = rig.logits(40);
      bytes[i] = rig.backend->info().weight_bytes;
    }
    EXPECT_EQ(logits[0], logits[1]);
    // Two layers of [512, 128], [128, 256], [256, 128] and [128, 128] in units of 32 rows: three of
    // four scales (and minimums) of 2 bytes are gone.
    const int64_t groups = 2 * (512 * 4 + 128 * 8 + 256 * 4 + 128 * 4);
    EXPECT_EQ(bytes[1] - bytes[0], groups / 4 * 3 * (type == TensorType::kQ4_1 ? 4 : 2));
  }
}

// A file whose word of its groups is not true.
TEST(CudaForward, RefusesGroupsThatAreNone) {
  ThreadPool pool(1);
  TinyShape shape = cuda_shape();
  shape.width = shape.ffn = 128;
  Model m = quantize_model(bf16_model(shape), TensorType::kQ4_0, pool).take();
  m.config.int4_group = 128;
  auto refused =
      make_cuda_backend(m, nullptr, {.int4 = true, .n_blocks = 4, .max_context = 16}, pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("groups of 128"), std::string::npos);
}

TEST(CudaForward, RefusesShapesThatNoKernelServes) {
  ThreadPool pool(1);
  Model narrow = tiny_model({.head_width = 32});
  auto refused = make_cuda_backend(narrow, nullptr, {.n_blocks = 4, .max_context = 16}, pool);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().message(),
            "the CUDA kernels serve heads of width 64 and 128, not 32; run it with --device cpu");
}

}  // namespace
}  // namespace pf
