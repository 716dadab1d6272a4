// Truth: level 0 by hand; level 1, a search in the whole text, for random streams.
#include "text/text_stream.h"

#include <gtest/gtest.h>

#include <random>

#include "text/smollm2.h"
#include "text/utf8.h"

namespace pf {
namespace {

using Ids = std::vector<int32_t>;

struct Answer {
  std::string text;
  int stopped_by = -1;
};

// Pushes everything; each delta must be valid UTF-8.
Answer run(const Ids& ids, const StopMatcher& stops, TextStream::Options options,
           size_t may_from = 0) {
  TextStream stream(smollm2(), stops, options);
  Answer answer;
  for (size_t i = 0; i < ids.size(); ++i) {
    const TextStream::Delta d = stream.push(ids[i], i >= may_from);
    EXPECT_TRUE(is_valid_utf8(d.text));
    answer.text += d.text;
    if (!d.stopped()) continue;
    answer.stopped_by = d.stopped_by;
    EXPECT_EQ(stream.finish(), "");
    return answer;
  }
  answer.text += stream.finish();
  return answer;
}

StopMatcher matcher(std::vector<std::string> strings) {
  return StopMatcher::create(std::move(strings)).take();
}

Ids bytewise(const std::string& text) {
  Ids ids;
  for (char c : text)
    ids.push_back(goldens()["byte_to_id"][static_cast<uint8_t>(c)].get<int32_t>());
  return ids;
}

TEST(StopMatcher, LimitsAreNamed) {
  const auto refused = [](std::vector<std::string> s) {
    return StopMatcher::create(std::move(s)).status();
  };
  EXPECT_EQ(refused(std::vector<std::string>(17, "a")).code(), Code::kInvalidArgument);
  EXPECT_NE(refused({"a", ""}).message().find("stop_strings[1]"), std::string::npos);
  EXPECT_EQ(refused({std::string(257, 'a')}).code(), Code::kInvalidArgument);
  EXPECT_EQ(refused({"\xFF"}).code(), Code::kInvalidArgument);
  EXPECT_TRUE(refused({std::string(256, 'a')}).ok());
  EXPECT_TRUE(refused({}).ok());
  EXPECT_FALSE(refused(std::vector<std::string>(10000, "x")).ok());
}

TEST(TextStream, StopsAndHoldsBack) {
  const StopMatcher stops = matcher({"END", "EN\n"});
  TextStream s(smollm2(), stops, {});
  const Ids ids = bytewise("aENxEND.");
  std::vector<std::string> deltas;
  int by = -1;
  for (int32_t id : ids) {
    const auto d = s.push(id);
    deltas.push_back(d.text);
    if (d.stopped()) {
      by = d.stopped_by;
      break;
    }
  }
  EXPECT_EQ(deltas, (std::vector<std::string>{"a", "", "", "ENx", "", "", ""}));
  EXPECT_EQ(by, 0);
}

TEST(TextStream, EarliestEndThenLongest) {
  EXPECT_EQ(run(bytewise("xabcd"), matcher({"abcd", "bc"}), {}).text, "xa");
  const Answer same_end = run(bytewise("xabcd"), matcher({"bc", "abc"}), {});
  EXPECT_EQ(same_end.text, "x");
  EXPECT_EQ(same_end.stopped_by, 1);
}

TEST(TextStream, IncludesTheStopStringOnRequest) {
  const Answer a = run(bytewise("1\n2\n\n3"), matcher({"\n\n"}), {.include_stop_string = true});
  EXPECT_EQ(a.text, "1\n2\n\n");
}

TEST(TextStream, StopInsideOfOneToken) {
  const auto id = smollm2().encode("hello");
  ASSERT_EQ(id.size(), 1u);
  EXPECT_EQ(run(id, matcher({"ll"}), {}).text, "he");
}

TEST(TextStream, TooEarlyStopStringsStayText) {
  // Three tokens may not stop: the first "ab" stays; the second stops.
  EXPECT_EQ(run(bytewise("ababab"), matcher({"ab"}), {}, 3).text, "ab");
  // A match that begins in what may not stop and ends after it does stop.
  EXPECT_EQ(run(bytewise("aaaa"), matcher({"aa"}), {}, 2).text, "a");
  EXPECT_EQ(run(bytewise("ab"), matcher({"ab"}), {}, 9).text, "ab");
}

TEST(TextStream, CutCodePointIsDroppedAtTheEnd) {
  const StopMatcher none = matcher({});
  const Ids emoji = bytewise("\U0001F600");
  EXPECT_EQ(run(Ids(emoji.begin(), emoji.end() - 1), none, {}).text, "");
  EXPECT_EQ(run(emoji, none, {}).text, "\U0001F600");
}

TEST(TextStream, HeldTextComesAtTheEnd) {
  EXPECT_EQ(run(bytewise("say EN"), matcher({"END"}), {}).text, "say EN");
}

TEST(TextStream, StopTokenAddsTextOnlyOnRequest) {
  const StopMatcher none = matcher({});
  TextStream hidden(smollm2(), none, {}), shown(smollm2(), none, {.include_stop_string = true});
  EXPECT_EQ(hidden.push_stop_token(2), "");
  EXPECT_EQ(shown.push_stop_token(2), "<|im_end|>");
  EXPECT_EQ(hidden.finish() + shown.finish(), "");
}

// The definition: the first place where any stop string ends; of those the longest.
Answer search(const std::string& text, const std::vector<std::string>& stops) {
  for (size_t end = 1; end <= text.size(); ++end) {
    int best = -1;
    for (size_t i = 0; i < stops.size(); ++i)
      if (text.substr(0, end).ends_with(stops[i]) &&
          (best < 0 || stops[i].size() > stops[best].size()))
        best = static_cast<int>(i);
    if (best >= 0) return {text.substr(0, end - stops[best].size()), best};
  }
  return {text, -1};
}

TEST(TextStream, AnyCutIntoTokensGivesTheTextOfTheDefinition) {
  std::mt19937 random(5);
  const auto word = [&](size_t most) {
    std::string s;
    for (size_t n = 1 + random() % most; n > 0; --n) s += "ab\u00E9"[random() % 2];
    return s + (random() % 3 ? "" : "\u00E9");
  };
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> stops;
    for (int n = random() % 5; n > 0; --n) stops.push_back(word(4));
    const std::string text = word(30) + word(20);
    const Answer expected = search(text, stops);
    const StopMatcher m = matcher(stops);
    for (const Ids& ids : {bytewise(text), smollm2().encode(text)}) {
      const Answer got = run(ids, m, {});
      EXPECT_EQ(got.text, expected.text);
      EXPECT_EQ(got.stopped_by, expected.stopped_by);
    }
  }
}

TEST(TextStream, RandomIdsAlwaysGiveValidText) {
  std::mt19937 random(6);
  for (int round = 0; round < 500; ++round) {
    Ids ids(random() % 40);
    for (int32_t& id : ids) id = static_cast<int32_t>(random() % 50000) - 50;  // some outside
    const Answer got = run(ids, matcher({"e", "\uFFFD"}), {.skip_special = random() % 2 == 0});
    EXPECT_TRUE(is_valid_utf8(got.text));
  }
}

TEST(StopMatcher, OneStepPerByteWhateverTheStrings) {
  // Sixteen strings of 255 letters and a last one: every byte stays at the deepest state.
  std::vector<std::string> strings;
  for (int i = 0; i < 16; ++i)
    strings.push_back(std::string(255, 'a') + static_cast<char>('b' + i));
  const StopMatcher m = matcher(strings);
  StopMatcher::State s = StopMatcher::kStart;
  for (int i = 0; i < 1000000; ++i) s = m.next(s, 'a');
  EXPECT_EQ(m.held_bytes(s), 255u);
  EXPECT_EQ(m.match(m.next(s, 'q')), 15);
  EXPECT_EQ(m.held_bytes(m.next(s, 'z')), 0u);
}

}  // namespace
}  // namespace pf
