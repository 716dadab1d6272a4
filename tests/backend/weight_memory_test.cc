// Truth: addresses worked out by hand from the shapes, and what the kernel says of a mapping
// (/proc/self/smaps).
#include <gtest/gtest.h>

#include <cstdint>
#include <fstream>
#include <sstream>

#include "backend/cpu/cpu_model.h"
#include "backend/tiny_head.h"
#include "model/quantize.h"

namespace pf {
namespace {

constexpr size_t kHuge = size_t{2} << 20;

CpuModel pack(const Model& model, CpuOptions::Weights weights) {
  ThreadPool pool(2);
  CpuOptions options;
  options.weights = weights;
  CpuModel out;
  out.kernels = choose_kernels("");
  Status s = pack_model(model, nullptr, options, pool, &out);
  EXPECT_TRUE(s.ok()) << s.message();
  return out;
}

// All matrices in the order in which a step reads them.
std::vector<const PackedMatrix*> stream_of(const CpuModel& m) {
  std::vector<const PackedMatrix*> all;
  if (m.takes_hidden()) all.push_back(&m.fc);
  for (const CpuLayer& l : m.layers)
    for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up, &l.down}) all.push_back(w);
  all.push_back(&m.head);
  return all;
}

TEST(WeightMemory, MatricesStandBehindEachOtherInTheOrderOfAStep) {
  using Weights = CpuOptions::Weights;
  const TinyShape shape;
  const Model models[] = {tiny_model(shape), tiny_head(shape, {.kind = HeadKind::kEagle}),
                          tiny_head(shape, {.kind = HeadKind::kEagle3, .n_states = 3, .every = 2})};
  for (const Model& model : models)
    for (Weights weights : {Weights::kF32, Weights::kBf16, Weights::kInt8, Weights::kInt4}) {
      const CpuModel packed = pack(model, weights);
      const std::byte* at = packed.matrices.as();
      for (const PackedMatrix* w : stream_of(packed)) {
        EXPECT_EQ(w->data, at);
        EXPECT_EQ(reinterpret_cast<uintptr_t>(w->data) % 64, 0u);
        at += (w->bytes() + 63) / 64 * 64;  // int8 alone has steps that are no multiple of 64
      }
      EXPECT_EQ(at, packed.matrices.as() + packed.matrices.bytes()) << "nothing is left over";
    }
}

// Matrices with groups of 128 beside those whose width or type has none.
TEST(WeightMemory, GroupsOf128TakeTheRoomThatWasForetold) {
  ThreadPool pool(2);
  const TinyShape shape = {.width = 128, .ffn = 160, .heads = 4, .head_width = 32};
  const Model model =
      quantize_model(tiny_model(shape), {TensorType::kQ4_1, TensorType::kQ8_0, 128}, pool).take();
  const CpuModel packed = pack(model, CpuOptions::Weights::kInt4);
  const std::byte* at = packed.matrices.as();
  for (const PackedMatrix* w : stream_of(packed)) {
    EXPECT_EQ(w->data, at);
    at += w->bytes();
  }
  EXPECT_EQ(at, packed.matrices.as() + packed.matrices.bytes()) << "nothing is left over";
  for (const CpuLayer& l : packed.layers) {
    for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up})
      EXPECT_EQ(w->format, WeightFormat::kInt4Wide);
    EXPECT_EQ(l.down.format, WeightFormat::kInt4) << "160 is no multiple of 128";
  }
  EXPECT_EQ(packed.head.format, WeightFormat::kInt4) << "the file has it in 8 bits";
  CpuOptions options;
  options.weights = CpuOptions::Weights::kInt4;
  options.max_context = 64;
  EXPECT_EQ(cpu_footprint(model, nullptr, options, 2).weight_bytes,
            static_cast<int64_t>(packed.matrices.bytes() + packed.embedding.bytes()));
}

TEST(WeightMemory, PackingCountsWhatTheFileHasOfTheMatrices) {
  using Weights = CpuOptions::Weights;
  // By hand: F32 matrices of 2 layers, q and o [96, 48] each way, k and v [32, 48], gate, up and
  // down of 80 x 48; the embedding is the head [101, 48].
  constexpr int64_t kLayers = 2 * 4 * 48 * (2 * 96 + 2 * 32 + 3 * 80), kEmbedding = 4 * 101 * 48;
  const Model model = tiny_model({}), reduced = reduced_model({}, 3);
  ThreadPool pool(2);
  auto counted = [&](const Model& m, Weights weights) {
    CpuOptions o;
    Progress progress;
    o.weights = weights;
    o.progress = &progress;
    progress.expect(cpu_footprint(m, nullptr, o, 2).read_bytes);
    CpuModel out;
    out.kernels = choose_kernels("");
    EXPECT_TRUE(pack_model(m, nullptr, o, pool, &out).ok());
    EXPECT_EQ(progress.done(), progress.total());
    return progress.done();
  };
  // Packed as floats one copy serves for both; as ints both are read.
  EXPECT_EQ(counted(model, Weights::kF32), kLayers + kEmbedding);
  EXPECT_EQ(counted(model, Weights::kBf16), kLayers + kEmbedding);
  EXPECT_EQ(counted(model, Weights::kInt8), kLayers + 2 * kEmbedding);
  EXPECT_EQ(counted(model, Weights::kInt4), kLayers + 2 * kEmbedding);
  // One layer, and every third token (1, 4, ... 100) in the head.
  EXPECT_EQ(counted(reduced, Weights::kBf16), kLayers / 2 + kEmbedding + 4 * 34 * 48);
  for (const TinyHead& kind :
       {TinyHead{}, TinyHead{.kind = HeadKind::kEagle3, .n_states = 3, .every = 2}})
    for (Weights weights : {Weights::kBf16, Weights::kInt4}) counted(tiny_head({}, kind), weights);
}

// Whether the kernel was asked for large pages at this address. Empty: it does not tell, or it was
// built without them.
std::string huge_flag_at(const std::byte* p) {
  std::ifstream maps("/proc/self/smaps");
  const auto address = reinterpret_cast<uintptr_t>(p);
  bool inside = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream words(line);
    if (line.find(':') > line.find('-') && words >> std::hex >> begin >> dash >> end && dash == '-')
      inside = begin <= address && address < end;
    else if (inside && line.rfind("VmFlags:", 0) == 0)
      return line.find(" hg") != std::string::npos ? "asked" : "not asked";
  }
  return "";
}

TEST(WeightMemory, LargePagesAreAskedForWhereTheyWouldBeHalfFull) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "this kernel has no transparent huge pages";
  struct Case {
    size_t bytes;
    const char *first, *last;
  };
  for (const Case& c :
       {Case{4096, "not asked", "not asked"}, Case{kHuge - 1, "not asked", "not asked"},
        Case{kHuge, "asked", "asked"}, Case{3 * kHuge + kHuge / 2, "asked", "asked"}}) {
    Buffer buffer(c.bytes);
    ASSERT_FALSE(huge_flag_at(buffer.as()).empty());
    EXPECT_EQ(huge_flag_at(buffer.as()), c.first) << c.bytes;
    EXPECT_EQ(huge_flag_at(buffer.as() + c.bytes - 1), c.last) << c.bytes;
  }
  // A page that is filled to less than half stays small, so that it costs no memory that is not
  // used: the mapping's large part ends in front of it.
  Buffer little(kHuge + 8192), much(kHuge + kHuge / 2);
  EXPECT_EQ(huge_flag_at(little.as() + kHuge + 8192), "not asked");
  EXPECT_EQ(huge_flag_at(much.as() + 2 * kHuge - 1), "asked");
  EXPECT_EQ(reinterpret_cast<uintptr_t>(little.as()) % kHuge, 0u);
}

TEST(WeightMemory, ABufferIsZeroedToItsLastByte) {
  for (size_t bytes : {size_t{1}, size_t{4096}, kHuge - 1, kHuge, kHuge + 1, 2 * kHuge - 1}) {
    Buffer buffer(bytes), moved;
    const std::byte* at = buffer.as();
    for (size_t i = 0; i < bytes; ++i) ASSERT_EQ(at[i], std::byte{0});
    buffer.as()[bytes - 1] = std::byte{7};
    moved = std::move(buffer);
    EXPECT_EQ(moved.as(), at) << "who moves it may keep addresses";
    EXPECT_EQ(moved.as()[bytes - 1], std::byte{7});
  }
}

}  // namespace
}  // namespace pf
