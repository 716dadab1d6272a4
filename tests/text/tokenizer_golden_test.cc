// Truth: level 3, tests/golden/tokenizer.json (Hugging Face tokenizers 0.23.3 on the real
// vocabulary, cross-checked with llama.cpp).
#include <gtest/gtest.h>

#include <map>

#include "text/chat_template.h"
#include "text/detokenizer.h"
#include "text/smollm2.h"
#include "text/utf8.h"

namespace pf {
namespace {

using Ids = std::vector<int32_t>;
using nlohmann::json;

// FIPS 180-4, written down for this test only.
std::string sha256_hex(std::string data) {
  static const uint32_t k[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4,
      0xab1c5ed5, 0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe,
      0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f,
      0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7,
      0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc,
      0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b,
      0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116,
      0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
      0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  const uint64_t n_bits = data.size() * 8;
  data += '\x80';
  while (data.size() % 64 != 56) data += '\0';
  for (int s = 56; s >= 0; s -= 8) data += static_cast<char>(n_bits >> s);
  const auto rotr = [](uint32_t x, int n) { return x >> n | x << (32 - n); };
  for (size_t block = 0; block < data.size(); block += 64) {
    uint32_t w[64], a[8];
    for (int i = 0; i < 16; ++i) {
      w[i] = 0;
      for (int b = 0; b < 4; ++b) w[i] = w[i] << 8 | static_cast<uint8_t>(data[block + 4 * i + b]);
    }
    for (int i = 16; i < 64; ++i)
      w[i] = w[i - 16] + (rotr(w[i - 15], 7) ^ rotr(w[i - 15], 18) ^ w[i - 15] >> 3) + w[i - 7] +
             (rotr(w[i - 2], 17) ^ rotr(w[i - 2], 19) ^ w[i - 2] >> 10);
    for (int i = 0; i < 8; ++i) a[i] = h[i];
    for (int i = 0; i < 64; ++i) {
      const uint32_t t1 = a[7] + (rotr(a[4], 6) ^ rotr(a[4], 11) ^ rotr(a[4], 25)) +
                          ((a[4] & a[5]) ^ (~a[4] & a[6])) + k[i] + w[i];
      const uint32_t t2 = (rotr(a[0], 2) ^ rotr(a[0], 13) ^ rotr(a[0], 22)) +
                          ((a[0] & a[1]) ^ (a[0] & a[2]) ^ (a[1] & a[2]));
      for (int j = 7; j > 0; --j) a[j] = a[j - 1];
      a[4] += t1;
      a[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) h[i] += a[i];
  }
  std::string hex;
  char word[9];
  for (uint32_t x : h) hex += (snprintf(word, sizeof(word), "%08x", x), word);
  return hex;
}

std::string from_hex(const std::string& hex) {
  std::string out;
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    out += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return out;
}

template <class T>
T or_else(const json& value, const T& otherwise) {
  return value.is_null() ? otherwise : value.get<T>();
}

TEST(Sha256, KnownAnswer) {
  EXPECT_EQ(sha256_hex("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

TEST(TokenizerGolden, VocabularyBytes) {
  std::string all;
  const Tokenizer& t = smollm2();
  ASSERT_EQ(t.size(), goldens()["vocab_size"].get<int>());
  for (int32_t id = 0; id < t.size(); ++id) {
    const auto n = static_cast<uint32_t>(t.bytes(id).size());
    for (int s = 0; s < 32; s += 8) all += static_cast<char>(n >> s);
    all += t.bytes(id);
  }
  EXPECT_EQ(sha256_hex(all), goldens()["vocab_bytes_sha256"].get<std::string>());
}

TEST(TokenizerGolden, IdsInBothParseModes) {
  ASSERT_EQ(goldens()["cases"].size(), 262u);
  for (const json& c : goldens()["cases"]) {
    const std::string text = c["text"];
    const Ids ids = c["ids"];
    EXPECT_EQ(smollm2().encode(text, {.parse_special = true}), ids) << c["n"];
    EXPECT_EQ(smollm2().encode(text), or_else(c["ids_special_as_text"], ids)) << c["n"];
  }
}

TEST(TokenizerGolden, DecodeAndSkipSpecial) {
  for (const json& c : goldens()["cases"]) {
    const std::string text = c["text"];
    const Ids ids = c["ids"];
    EXPECT_EQ(smollm2().decode(ids, false), or_else(c["decode"], text)) << c["n"];
    EXPECT_EQ(smollm2().decode(ids, true), or_else(c["decode_skip_special"], text)) << c["n"];
  }
}

TEST(TokenizerGolden, InvalidUtf8BecomesReplacementCharacters) {
  for (const json& c : goldens()["invalid_utf8"]) {
    const std::string bytes = from_hex(c["bytes_hex"]);
    EXPECT_EQ(to_valid_utf8(bytes), c["text_after_replacement"].get<std::string>());
    EXPECT_EQ(smollm2().encode(bytes), c["ids"].get<Ids>()) << c["bytes_hex"];
  }
}

TEST(TokenizerGolden, IncrementalPieces) {
  ASSERT_EQ(goldens()["incremental"].size(), 35u);
  for (const json& c : goldens()["incremental"]) {
    Detokenizer d(smollm2(), {.skip_special = false});
    const Ids ids = c["ids"];
    for (size_t i = 0; i < ids.size(); ++i) {
      EXPECT_EQ(smollm2().bytes(ids[i]), from_hex(c["bytes_hex"][i])) << c["name"];
      std::string piece;
      d.append(ids[i], &piece);
      EXPECT_EQ(piece, c["pieces"][i].get<std::string>()) << c["name"] << " token " << i;
    }
    EXPECT_EQ(d.flush(), c["flush"].get<std::string>()) << c["name"];
    EXPECT_EQ(smollm2().decode(ids, false), c["text"].get<std::string>());
  }
}

TEST(TokenizerGolden, ByteTokens) {
  for (int b = 0; b < 256; ++b) {
    const json& id = goldens()["byte_to_id"][b];
    if (id.is_null()) continue;
    EXPECT_EQ(smollm2().bytes(id.get<int32_t>()), std::string(1, static_cast<char>(b)));
  }
}

TEST(TokenizerGolden, SpecialTokens) {
  std::map<int32_t, std::string> special;
  for (int32_t id = 0; id < smollm2().size(); ++id)
    if (smollm2().is_special(id)) special[id] = smollm2().bytes(id);
  std::map<int32_t, std::string> expected;
  for (const auto& [id, text] : goldens()["special_tokens"].items()) expected[std::stoi(id)] = text;
  EXPECT_EQ(special, expected);
}

TEST(TokenizerGolden, Chat) {
  const auto chat = ChatTemplate::recognise(smollm2().vocabulary().chat_template);
  ASSERT_TRUE(chat.has_value());
  EXPECT_EQ(chat->name(), "chatml");
  ASSERT_EQ(goldens()["chat"].size(), 10u);
  for (const json& c : goldens()["chat"]) {
    std::vector<ChatMessage> messages;
    for (const json& m : c["messages"]) messages.push_back({m["role"], m["content"]});
    const bool generate = c["add_generation_prompt"];
    const auto ids = chat->render(messages, smollm2(), generate);
    ASSERT_TRUE(ids.ok()) << ids.status().message();
    EXPECT_EQ(*ids, or_else(c["ids_message_text_not_parsed"], c["ids_parse_special"].get<Ids>()));
    EXPECT_EQ(*chat->render_text(messages, smollm2(), generate), c["text"].get<std::string>());
  }
}

}  // namespace
}  // namespace pf
