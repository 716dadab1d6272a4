// Truth: files built by the test from the GGUF specification; each hostile one is refused with a
// message that names what is wrong.
#include "model/gguf.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/model/files.h"

namespace pf {
namespace {

using test::bytes_of;
using test::GgufBytes;
using test::raw;
using test::text;
using testing::HasSubstr;

std::string refusal(const std::string& file) {
  auto parsed = GgufFile::parse(bytes_of(file));
  return parsed.ok() ? "accepted" : parsed.status().message();
}

GgufBytes small() {
  GgufBytes g;
  g.str("general.architecture", "llama");
  g.f32_tensor("a", {4, 2}, {0, 1, 2, 3, 4, 5, 6, 7});
  g.f32_tensor("b", {3}, {8, 9, 10});
  return g;
}

TEST(Gguf, ReadsKeysAndTensorsOfBothVersions) {
  for (uint32_t version : {2u, 3u}) {
    GgufBytes g = small();
    g.version = version;
    g.u32("count", 7);
    g.f32("rate", 0.5f);
    g.keys.push_back(text("yes") + raw(7u) + raw<uint8_t>(1));
    g.keys.push_back(text("signed") + raw(5u) + raw<int32_t>(-3));
    g.keys.push_back(text("wide") + raw(10u) + raw<uint64_t>(UINT64_MAX));
    g.keys.push_back(text("names") + raw(9u) + raw(8u) + raw<uint64_t>(2) + text("x") + text(""));
    g.keys.push_back(text("numbers") + raw(9u) + raw(3u) + raw<uint64_t>(2) + raw<int16_t>(-1) +
                     raw<int16_t>(2));
    g.keys.push_back(text("scores") + raw(9u) + raw(6u) + raw<uint64_t>(1) + raw(1.5f));
    std::string bytes = g.build();
    auto file = GgufFile::parse(bytes_of(bytes));
    ASSERT_TRUE(file.ok()) << file.status().message();
    EXPECT_EQ(file->version(), version);
    EXPECT_EQ(file->find<std::string_view>("general.architecture"), "llama");
    EXPECT_EQ(file->find<int64_t>("count"), 7);
    EXPECT_EQ(file->find<float>("rate"), 0.5f);
    EXPECT_EQ(file->find<float>("count"), 7.0f);
    EXPECT_EQ(file->find<bool>("yes"), true);
    EXPECT_EQ(file->find<int32_t>("signed"), -3);
    EXPECT_EQ(file->find<uint32_t>("signed"), std::nullopt);
    EXPECT_EQ(file->find<int64_t>("wide"), std::nullopt);
    EXPECT_EQ(file->find<uint64_t>("wide"), UINT64_MAX);
    EXPECT_EQ(file->find<int64_t>("rate"), std::nullopt);
    EXPECT_EQ(file->find<int64_t>("absent"), std::nullopt);
    EXPECT_THAT(*file->find_strings("names"), testing::ElementsAre("x", ""));
    EXPECT_THAT(*file->find_integers("numbers"), testing::ElementsAre(-1, 2));
    EXPECT_THAT(*file->find_floats("scores"), testing::ElementsAre(1.5f));
    EXPECT_FALSE(file->find_strings("numbers").has_value());
    ASSERT_NE(file->tensor("a"), nullptr);
    EXPECT_EQ(file->tensor("a")->shape, (std::vector<int64_t>{2, 4}));
    float row[4];
    dequantize_rows(*file->tensor("a"), 1, 1, row);
    EXPECT_THAT(row, testing::ElementsAre(4, 5, 6, 7));
    EXPECT_EQ(file->tensor("c"), nullptr);
  }
}

TEST(Gguf, AnotherAlignmentIsFollowed) {
  GgufBytes g = small();
  g.alignment = 64;
  g.u32("general.alignment", 64);
  std::string bytes = g.build();
  auto file = GgufFile::parse(bytes_of(bytes));
  ASSERT_TRUE(file.ok()) << file.status().message();
  float row[3];
  dequantize_rows(*file->tensor("b"), 0, 1, row);
  EXPECT_THAT(row, testing::ElementsAre(8, 9, 10));
}

TEST(Gguf, EveryTruncationIsRefused) {
  std::string whole = small().build();
  ASSERT_EQ(refusal(whole), "accepted");
  for (size_t n = 0; n < whole.size(); ++n) {
    std::string part = whole.substr(0, n);
    EXPECT_NE(refusal(part), "accepted") << n;
  }
}

TEST(Gguf, ForeignHeadersAreRefused) {
  std::string whole = small().build();
  auto with = [&](size_t at, const std::string& bytes) {
    std::string file = whole;
    return file.replace(at, bytes.size(), bytes);
  };
  EXPECT_THAT(refusal(with(0, "GGML")), HasSubstr("not a GGUF file"));
  EXPECT_THAT(refusal(with(4, raw(1u))), HasSubstr("version 1"));
  EXPECT_THAT(refusal(with(4, raw(4u))), HasSubstr("version 4"));
  EXPECT_THAT(refusal(with(4, std::string("\0\0\0\3", 4))), HasSubstr("big-endian"));
  EXPECT_THAT(refusal(with(8, raw(uint64_t{1} << 60))), HasSubstr("tensors does not fit"));
  EXPECT_THAT(refusal(with(16, raw(uint64_t{1} << 60))), HasSubstr("keys does not fit"));
  EXPECT_THAT(refusal(with(24, raw(UINT64_MAX))), HasSubstr("truncated"));  // length of a key
}

TEST(Gguf, HostileKeysAreRefusedByName) {
  auto with = [](const std::string& key_bytes) {
    GgufBytes g = small();
    g.keys.push_back(key_bytes);
    return refusal(g.build());
  };
  EXPECT_THAT(with(text("k") + raw(13u) + raw(0u)), HasSubstr("'k'"));
  EXPECT_THAT(with(text("k") + raw(UINT32_MAX) + raw(0u)), HasSubstr("unknown type"));
  EXPECT_THAT(with(text("k") + raw(8u) + raw(UINT64_MAX)), HasSubstr("'k'"));
  EXPECT_THAT(with(text("k") + raw(9u) + raw(9u) + raw<uint64_t>(1)), HasSubstr("array of"));
  EXPECT_THAT(with(text("k") + raw(9u) + raw(77u) + raw<uint64_t>(1)), HasSubstr("type 77"));
  for (uint32_t type : {0u, 4u, 8u, 10u, 12u}) {
    EXPECT_THAT(with(text("k") + raw(9u) + raw(type) + raw(uint64_t{1} << 61)), HasSubstr("'k'"));
  }
  EXPECT_THAT(with(text("general.architecture") + raw(4u) + raw(1u)), HasSubstr("twice"));
  EXPECT_THAT(with(text("line\nbreak") + raw(13u)), testing::Not(HasSubstr("\n")));
  for (uint32_t alignment : {0u, 3u, 24u, 1u << 21}) {
    EXPECT_THAT(with(text("general.alignment") + raw(4u) + raw(alignment)),
                HasSubstr("general.alignment"));
  }
  EXPECT_THAT(with(text("general.alignment") + raw(8u) + text("32")),
              HasSubstr("general.alignment"));
}

TEST(Gguf, HostileTensorsAreRefusedByName) {
  // The tensor row of "a" in small(): name, n_dims, 2 dims, type, offset.
  GgufBytes g = small();
  std::string whole = g.build();
  size_t row = whole.find(text("a") + raw(2u)) + 9;
  auto with = [&](size_t at, const std::string& bytes) {
    std::string file = whole;
    return refusal(file.replace(row + at, bytes.size(), bytes));
  };
  EXPECT_THAT(with(0, raw(0u)), HasSubstr("'a'"));
  EXPECT_THAT(with(0, raw(5u)), HasSubstr("5 dimensions"));
  EXPECT_THAT(with(4, raw<uint64_t>(0)), HasSubstr("tensor 'a': has a dimension of 0"));
  EXPECT_THAT(with(12, raw<uint64_t>(0)), HasSubstr("'a'"));
  EXPECT_THAT(with(4, raw(UINT64_MAX)), HasSubstr("'a'"));
  EXPECT_THAT(with(4, raw(uint64_t{1} << 61)), HasSubstr("'a'"));
  EXPECT_THAT(with(12, raw(uint64_t{1} << 62)), HasSubstr("'a'"));
  EXPECT_THAT(with(20, raw(2u)), HasSubstr("block of Q4_0"));  // rows of 4
  EXPECT_THAT(with(20, raw(10u)), HasSubstr("tensor type 10"));
  EXPECT_THAT(with(20, raw(UINT32_MAX)), HasSubstr("'a'"));
  EXPECT_THAT(with(24, raw<uint64_t>(4)), HasSubstr("multiple of 32"));
  std::string overlapping = whole;  // "b" begins where "a" does
  overlapping.replace(whole.find(test::text("b") + raw(1u)) + 9 + 16, 8, raw<uint64_t>(0));
  EXPECT_THAT(refusal(overlapping), HasSubstr("overlaps"));
  EXPECT_THAT(with(24, raw<uint64_t>(1 << 20)), HasSubstr("'a'"));
  EXPECT_THAT(with(24, raw(UINT64_MAX - 31)), HasSubstr("'a'"));
  GgufBytes twice = small();
  twice.rows[1].name = "a";
  EXPECT_THAT(refusal(twice.build()), HasSubstr("twice"));
  twice.rows[1].name = std::string(256, 'n');
  EXPECT_THAT(refusal(twice.build()), HasSubstr("256 bytes"));
}

TEST(Gguf, RandomDamageNeverCrashes) {
  std::string whole = small().build();
  std::mt19937 random(11);
  for (int i = 0; i < 20000; ++i) {
    std::string file = whole;
    for (unsigned n = 1 + random() % 4; n > 0; --n) file[random() % file.size()] = char(random());
    auto parsed = GgufFile::parse(bytes_of(file));
    if (!parsed.ok()) continue;
    for (const Tensor& t : parsed->tensors()) {  // what was accepted lies inside of the file
      auto* begin = reinterpret_cast<const char*>(t.data.data());
      ASSERT_GE(begin, file.data());
      ASSERT_LE(begin + t.data.size(), file.data() + file.size());
    }
  }
}

}  // namespace
}  // namespace pf
