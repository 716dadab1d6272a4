// Truth: files built by the test from the safetensors specification; each hostile one is refused
// at once with a message that names the tensor.
#include "model/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "tests/model/files.h"

namespace pf {
namespace {

using test::bytes_of;
using test::raw;
using test::safetensors;
using testing::HasSubstr;

std::string refusal(const std::string& file) {
  auto parsed = SafetensorsFile::parse(bytes_of(file));
  return parsed.ok() ? "accepted" : parsed.status().message();
}

std::string row(const std::string& dtype, const std::string& shape, const std::string& offsets) {
  return R"({"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}";
}

TEST(Safetensors, ReadsTypesAndShapes) {
  std::string file = safetensors(
      R"({"__metadata__":{"format":"pt"},"w":)" + row("F32", "[2,1]", "[0,8]") + R"(,"h":)" +
          row("BF16", "[2]", "[8,12]") + R"(,"s":)" + row("I64", "[]", "[12,20]") + "}",
      raw(1.5f) + raw(-2.0f) + raw(0x40003f80u) + raw<int64_t>(5));
  auto parsed = SafetensorsFile::parse(bytes_of(file));
  ASSERT_TRUE(parsed.ok()) << parsed.status().message();
  ASSERT_EQ(parsed->tensors().size(), 3u);
  const Tensor& w = parsed->tensors()[0];
  EXPECT_EQ(w.name, "w");
  EXPECT_EQ(w.shape, (std::vector<int64_t>{2, 1}));
  float out[2];
  dequantize_rows(w, 0, 2, out);
  EXPECT_THAT(out, testing::ElementsAre(1.5f, -2.0f));
  dequantize_rows(parsed->tensors()[1], 0, 1, out);  // 0x3f80 = 1, 0x4000 = 2
  EXPECT_THAT(out, testing::ElementsAre(1.0f, 2.0f));
  EXPECT_EQ(parsed->tensors()[2].shape, (std::vector<int64_t>{1}));
}

TEST(Safetensors, HostileHeadersAreRefused) {
  std::string good = safetensors("{\"a\":" + row("I8", "[4]", "[0,4]") + "}", "abcd");
  ASSERT_EQ(refusal(good), "accepted");
  for (size_t n = 0; n < good.size(); ++n) EXPECT_NE(refusal(good.substr(0, n)), "accepted") << n;
  for (uint64_t n :
       {uint64_t{0}, uint64_t{1}, uint64_t{7}, good.size() - 7, uint64_t{1} << 63, UINT64_MAX}) {
    std::string file = good;
    EXPECT_NE(refusal(file.replace(0, 8, raw(n))), "accepted") << n;
  }
  EXPECT_THAT(refusal(good + "x"), HasSubstr("1 bytes after"));
  EXPECT_THAT(refusal(safetensors("[1]", "")), HasSubstr("no JSON object"));
  EXPECT_THAT(refusal(safetensors("{\"a\":", "")), HasSubstr("not valid JSON"));
  EXPECT_THAT(refusal(safetensors("{\"a\":" + std::string("\xff\xfe") + "}", "")),
              HasSubstr("not valid JSON"));
}

TEST(Safetensors, DeepJsonIsRefusedAtOnce) {
  std::string deep = "{\"a\":" + std::string(100000, '[') + std::string(100000, ']') + "}";
  EXPECT_THAT(refusal(safetensors(deep, "")), HasSubstr("deep"));
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"a\":";
  EXPECT_THAT(refusal(safetensors(objects, "")), HasSubstr("deep"));
}

TEST(Safetensors, ADuplicateNameIsRefusedByName) {
  std::string one = row("I8", "[4]", "[0,4]");
  EXPECT_THAT(refusal(safetensors("{\"dup\":" + one + ",\"dup\":" + one + "}", "abcd")),
              HasSubstr("dup"));
}

TEST(Safetensors, HostileTensorsAreRefusedByName) {
  auto with = [](const std::string& rest) {
    return refusal(safetensors("{\"bad\":" + rest + "}", "abcdefgh"));
  };
  EXPECT_EQ(with(row("F32", "[2]", "[0,8]")), "accepted");
  const std::string kBad[] = {
      "3",
      "{}",
      R"({"dtype":1,"shape":[2],"data_offsets":[0,8]})",
      R"({"dtype":"F32","data_offsets":[0,8]})",
      R"({"dtype":"F32","shape":[2]})",
      row("F64", "[1]", "[0,8]"),
      row("F32", "[3]", "[0,8]"),
      row("F32", "[2]", "[0,4]"),
      row("F32", "[2]", "[8,0]"),
      row("F32", "[2]", "[-8,0]"),
      row("F32", "[2]", "[0,8,9]"),
      row("F32", "[2]", "[0.0,8.0]"),
      row("F32", "[2]", "[18446744073709551608,18446744073709551616]"),
      row("F32", "[2]", "[4,12]"),
      row("F32", "[-2]", "[0,8]"),
      row("F32", "[2.0]", "[0,8]"),
      row("F32", "[\"2\"]", "[0,8]"),
      row("F32", "[0,2]", "[0,0]"),
      row("F32", "[4294967296,4294967296,2]", "[0,8]"),
      row("F32", "[9223372036854775807,2]", "[0,8]"),
      row("F32", "[18446744073709551615]", "[0,8]"),
      row("F32", "[1,1,1,1,1,1,1,1,2]", "[0,8]"),
  };
  for (const std::string& bad : kBad) EXPECT_THAT(with(bad), HasSubstr("'bad'")) << bad;
}

TEST(Safetensors, HolesAndOverlapsAreRefusedByName) {
  auto two = [](const std::string& a, const std::string& b) {
    return refusal(safetensors(
        "{\"one\":" + row("I8", "[4]", a) + ",\"two\":" + row("I8", "[4]", b) + "}", "abcdefgh"));
  };
  EXPECT_EQ(two("[0,4]", "[4,8]"), "accepted");
  EXPECT_EQ(two("[4,8]", "[0,4]"), "accepted");
  EXPECT_THAT(two("[0,4]", "[3,7]"), HasSubstr("'two'"));
  EXPECT_THAT(two("[0,4]", "[0,4]"), HasSubstr("overlaps"));
  EXPECT_THAT(refusal(safetensors("{\"one\":" + row("I8", "[4]", "[4,8]") + "}", "abcdefgh")),
              HasSubstr("hole"));
}

TEST(Safetensors, RandomDamageNeverCrashes) {
  std::string whole = safetensors(
      "{\"one\":" + row("I8", "[4]", "[0,4]") + ",\"two\":" + row("F32", "[1]", "[4,8]") + "}",
      "abcdefgh");
  std::mt19937 random(5);
  for (int i = 0; i < 20000; ++i) {
    std::string file = whole;
    for (unsigned n = 1 + random() % 3; n > 0; --n) file[random() % file.size()] = char(random());
    auto parsed = SafetensorsFile::parse(bytes_of(file));
    if (!parsed.ok()) continue;
    for (const Tensor& t : parsed->tensors()) ASSERT_LE(t.data.size(), 8u);
  }
}

TEST(ShardIndex, OnlyPlainFileNamesAreAccepted) {
  auto index = parse_shard_index(
      R"({"metadata":{},"weight_map":{"a":"m-1.safetensors","b":"m-2.safetensors","c":"m-1.safetensors"}})");
  ASSERT_TRUE(index.ok()) << index.status().message();
  EXPECT_THAT(index->files, testing::ElementsAre("m-1.safetensors", "m-2.safetensors"));
  EXPECT_EQ(index->tensors.size(), 3u);
  for (const char* name :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..\\\\x.safetensors",
        ".safetensors", "x.bin", "", "x.safetensors\\u0000"}) {
    auto bad = parse_shard_index(R"({"weight_map":{"evil":")" + std::string(name) + "\"}}");
    ASSERT_FALSE(bad.ok()) << name;
    EXPECT_THAT(bad.status().message(), HasSubstr("'evil'"));
  }
  for (const char* bad : {"", "[]", "{}", R"({"weight_map":[]})", R"({"weight_map":{}})",
                          R"({"weight_map":{"a":3}})"}) {
    EXPECT_FALSE(parse_shard_index(bad).ok()) << bad;
  }
}

}  // namespace
}  // namespace pf
