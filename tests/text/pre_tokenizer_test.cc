// Truth: level 0, pieces cut by hand after the published patterns.
#include "text/pre_tokenizer.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

using Pieces = std::vector<std::string>;

Pieces cut(const std::string& name, std::string_view text) {
  const auto patterns = PreTokenizer::patterns_of(name);
  const auto pre = PreTokenizer::create(*patterns);
  Pieces pieces;
  EncodeWork work;
  pre->split(text, &work, [&](std::string_view p) { pieces.emplace_back(p); });
  EXPECT_EQ(work.regex_limits, 0);
  return pieces;
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(cut("gpt-2", "I'm  12 cats!"), (Pieces{"I", "'m", " ", " 12", " cats", "!"}));
  EXPECT_EQ(cut("gpt-2", "a  "), (Pieces{"a", "  "}));
  EXPECT_EQ(cut("gpt-2", "IT'S"), (Pieces{"IT", "'", "S"}));
}

TEST(PreTokenizer, SmolLmCutsDigitsFirst) {
  EXPECT_EQ(cut("smollm", "x =  12"), (Pieces{"x", " =", "  ", "1", "2"}));
}

TEST(PreTokenizer, Llama3) {
  EXPECT_EQ(cut("llama-bpe", "IT'S 12345!\n\n x"),
            (Pieces{"IT", "'S", " ", "123", "45", "!\n\n", " x"}));
  EXPECT_EQ(cut("llama-bpe", "(abc"), (Pieces{"(abc"}));
}

TEST(PreTokenizer, Qwen2CutsEveryDigit) {
  EXPECT_EQ(cut("qwen2", "a 12\n b"), (Pieces{"a", " ", "1", "2", "\n", " b"}));
}

TEST(PreTokenizer, DeepseekCoder) {
  EXPECT_EQ(cut("deepseek-coder", "int a12;\n\n你好x"),
            (Pieces{"int", " a", "1", "2", ";", "\n", "\n", "你好", "x"}));
}

TEST(PreTokenizer, WhiteSpaceIsUnicodes) {
  // U+180E is white space for PCRE2's \s but not for Unicode since 6.3; U+0085 is for both.
  EXPECT_EQ(cut("gpt-2", "\u180E."), (Pieces{"\u180E."}));
  EXPECT_EQ(cut("gpt-2", "a\u0085"), (Pieces{"a", "\u0085"}));
}

TEST(PreTokenizer, UnknownNameAndWrongPatternAreRefused) {
  EXPECT_EQ(PreTokenizer::patterns_of("klingon").status().code(), Code::kUnimplemented);
  const auto wrong = PreTokenizer::create({"ok", "(unclosed"});
  EXPECT_EQ(wrong.status().code(), Code::kInvalidArgument);
  EXPECT_NE(wrong.status().message().find("pattern 1"), std::string::npos);
  EXPECT_FALSE(PreTokenizer::create(std::vector<std::string>(33, "a")).ok());
  EXPECT_FALSE(PreTokenizer::create({std::string(20000, 'a')}).ok());
}

TEST(PreTokenizer, EmptyMatchesCutNothing) {
  const auto pre = PreTokenizer::create({"x*"});
  Pieces pieces;
  EncodeWork work;
  pre->split("abxxc", &work, [&](std::string_view p) { pieces.emplace_back(p); });
  EXPECT_EQ(pieces, (Pieces{"ab", "xx", "c"}));
}

}  // namespace
}  // namespace pf
