// Truth: hand-worked answers; a token is a byte, so every expected text is written down.
#include "server/completion_stream.h"

#include <gtest/gtest.h>

#include "server/answer.h"
#include "server/small_model.h"

namespace pf {
namespace {

const Tokenizer& tokenizer() {
  static const ServedModel model = small_model();
  return model.tokenizer;
}

Event event(std::string_view text, FinishReason finish = FinishReason::kNone, int32_t index = 0) {
  Event e;
  e.index = index;
  e.tokens = bytes_as_tokens(text);
  for (size_t i = 0; i < e.tokens.size(); ++i) {
    e.origins.push_back(i + 1 < e.tokens.size() ? Origin::kDraft : Origin::kBonus);
    e.logprobs.push_back({-0.5f * static_cast<float>(i + 1), {}});
  }
  e.finish = finish;
  return e;
}

Event end_token(std::string_view text, int32_t token) {
  Event e = event(text);
  e.tokens.push_back(token);
  e.origins.push_back(Origin::kTarget);
  e.logprobs.emplace_back();
  e.finish = FinishReason::kEndToken;
  return e;
}

AnswerOptions options_with(std::vector<std::string> stops) {
  AnswerOptions o;
  o.stops = StopMatcher::create(std::move(stops)).take();
  o.eos_ids = {kEos};
  return o;
}

// Rounds of a chain: each drafted 4 tokens and gave as many as it says.
Event with_rounds(Event e, std::vector<int32_t> n_tokens, std::vector<float> losses) {
  int32_t first = 0;
  for (int32_t n : n_tokens) {
    DraftTree chain;
    for (int i = 0; i < 4; ++i) chain.add_one_hot('a', i - 1);
    e.rounds.push_back(VerifiedRound::of(chain, 1, n - 1, 0.5f));
    e.rounds.back().first_token = first;
    first += n;
  }
  e.losses = std::move(losses);
  return e;
}

TEST(CompletionStream, CountsTheRoundsUpToTheOneThatAStopStringEnded) {
  AnswerOptions o = options_with({"STOP"});
  o.drafter_names = {"ngram", "model"};
  CompletionStream s(tokenizer(), o, 0);
  s.push(event("a"), 0);  // the prompt's own token: no round
  s.push(with_rounds(event("bcd"), {3}, {0, 0.5f, 0}), 0);
  // Two rounds in one event, the engine being ahead: the first one ends with the string's last
  // letter and one token more, the second is of no use to anybody.
  s.push(with_rounds(event("STOP.xyz"), {5, 3}, {0.25f, 0, 0, 0, 1, 1, 1, 1}), 0);
  EXPECT_TRUE(s.stopped());
  auto last =
      s.push(with_rounds(event("later", FinishReason::kCancelled), {5}, {1, 1, 1, 1, 1}), 0);
  ASSERT_TRUE(last);
  const wire::SpeculationStats& stats = last->finish().speculation();
  EXPECT_EQ(stats.rounds(), 2u);
  EXPECT_EQ(stats.drafted_tokens(), 8u);
  EXPECT_EQ(stats.accepted_tokens(), 2u + 4u) << "kept in those rounds, before the cut";
  ASSERT_EQ(stats.drafted_per_position_size(), 4);
  ASSERT_EQ(stats.accepted_per_position_size(), 4);
  for (int d = 0; d < 4; ++d) {
    EXPECT_EQ(stats.drafted_per_position(d), 2u);
    EXPECT_EQ(stats.accepted_per_position(d), d < 2 ? 2u : 1u);
  }
  EXPECT_EQ(stats.rounds_per_drafter().at("model"), 2u);
  EXPECT_EQ(stats.rounds_per_drafter().size(), 1u);
  EXPECT_EQ(stats.loss(), 0.75f) << "of the tokens that the client got";
  EXPECT_EQ(stats.last_alpha(), 0.5f);
}

TEST(CompletionStream, GivesTextAsItComesAndEndsWithAFinish) {
  AnswerOptions o = options_with({});
  o.n_prompt = 3;
  o.seed = 7;
  CompletionStream s(tokenizer(), o, 0);
  auto a = s.push(event("he"), 0);
  ASSERT_TRUE(a);
  EXPECT_EQ(a->text(), "he");
  EXPECT_EQ(a->num_tokens(), 2u);
  EXPECT_FALSE(a->has_finish());
  auto b = s.push(event("y", FinishReason::kLength), 0);
  EXPECT_EQ(b->text(), "y");
  EXPECT_EQ(b->finish().reason(), wire::Finish::LENGTH);
  EXPECT_EQ(b->finish().num_generated_tokens(), 3u);
  EXPECT_EQ(b->finish().num_prompt_tokens(), 3u);
  EXPECT_EQ(b->finish().seed(), 7u);
  EXPECT_TRUE(s.finished());
}

TEST(CompletionStream, HoldsBackAStopStringAcrossEventsAndCutsTheRunThere) {
  AnswerOptions o = options_with({"STOP"});
  o.token_ids = o.token_origins = o.logprobs = true;
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_EQ(s.push(event("aST"), 0)->text(), "a");
  EXPECT_EQ(s.push(event("."), 0)->text(), "ST.") << "what began a stop string and was none";
  EXPECT_EQ(s.push(event("ST"), 0)->text(), "");
  // The round accepted five more tokens; two of them complete the string, three are never seen.
  auto last = s.push(event("OPxyz"), 0);
  EXPECT_EQ(last->text(), "");
  EXPECT_EQ(last->num_tokens(), 2u);
  EXPECT_EQ(last->token_ids_size(), 2);
  EXPECT_EQ(last->origins_size(), 2);
  EXPECT_EQ(last->logprobs_size(), 2);
  EXPECT_TRUE(s.stopped());
  EXPECT_FALSE(s.finished());
  // The engine overran by a step before it saw the cancel.
  EXPECT_FALSE(s.push(event("more"), 0));
  auto finish = s.push(event("", FinishReason::kCancelled), 0);
  EXPECT_EQ(finish->finish().reason(), wire::Finish::STOP_STRING);
  EXPECT_EQ(finish->finish().stop_string(), "STOP");
  EXPECT_EQ(finish->finish().num_generated_tokens(), 8u);  // aST . ST OP
  EXPECT_EQ(s.failure(), FinishReason::kNone);
}

TEST(CompletionStream, KeepsTheStopStringWhenAsked) {
  AnswerOptions o = options_with({"b"});
  o.include_stop_string = true;
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_EQ(s.push(event("abc", FinishReason::kLength), 0)->text(), "ab");
}

TEST(CompletionStream, DoesNotStopBeforeMinNewTokens) {
  AnswerOptions o = options_with({"b"});
  o.min_new_tokens = 4;
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_EQ(s.push(event("abcb"), 0)->text(), "abc");
  EXPECT_TRUE(s.stopped());
  EXPECT_EQ(s.n_tokens(), 4);
}

TEST(CompletionStream, GivesWhatWasHeldBackAtTheEnd) {
  AnswerOptions o = options_with({"STOP"});
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_EQ(s.push(event("xSTO"), 0)->text(), "x");
  EXPECT_EQ(s.push(event("", FinishReason::kTimeLimit), 0)->text(), "STO");
}

TEST(CompletionStream, NeverSplitsACodePointAndDropsACutOne) {
  AnswerOptions o = options_with({});
  CompletionStream s(tokenizer(), o, 0);
  std::string euro = "\xE2\x82\xAC";
  auto first = s.push(event(euro.substr(0, 2)), 0);
  EXPECT_EQ(first->text(), "");
  EXPECT_EQ(first->num_tokens(), 2u) << "held-back text does not change the count";
  EXPECT_EQ(s.push(event(euro.substr(2)), 0)->text(), euro);
  EXPECT_EQ(s.push(event("\xE2\x82", FinishReason::kLength), 0)->text(), "");
}

TEST(CompletionStream, CountsAnEndTokenThatAddsNoText) {
  AnswerOptions o = options_with({});
  o.token_ids = true;
  CompletionStream eos(tokenizer(), o, 0);
  auto a = eos.push(end_token("hi", kEos), 0);
  EXPECT_EQ(a->text(), "hi");
  EXPECT_EQ(a->num_tokens(), 3u);
  EXPECT_EQ(a->finish().reason(), wire::Finish::EOS);
  EXPECT_EQ(a->finish().stop_token_id(), uint32_t{kEos});
  CompletionStream stop(tokenizer(), o, 0);
  auto b = stop.push(end_token("hi", '!'), 0);
  EXPECT_EQ(b->text(), "hi");
  EXPECT_EQ(b->finish().reason(), wire::Finish::STOP_TOKEN);
  o.include_stop_string = true;
  CompletionStream kept(tokenizer(), o, 0);
  EXPECT_EQ(kept.push(end_token("hi", '!'), 0)->text(), "hi!");
}

TEST(CompletionStream, MinChunkTokensHidesTheSizesOfRounds) {
  AnswerOptions o = options_with({});
  o.min_chunk_tokens = 4;
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_FALSE(s.push(event("abc"), 0));
  auto chunk = s.push(event("defghi"), 0);
  EXPECT_EQ(chunk->text(), "abcdefgh");  // whole multiples of 4
  EXPECT_EQ(chunk->num_tokens(), 8u);
  EXPECT_EQ(s.push(event("", FinishReason::kLength), 0)->text(), "i");
}

TEST(CompletionStream, MinChunkMsEndsTheWait) {
  AnswerOptions o = options_with({});
  o.min_chunk_us = 1000;
  CompletionStream s(tokenizer(), o, 0);
  EXPECT_FALSE(s.push(event("a"), 100));
  EXPECT_FALSE(s.push(event("b"), 1099));
  EXPECT_EQ(s.push(event("c"), 1100)->text(), "abc");
  EXPECT_FALSE(s.push(event("d"), 1500));
}

TEST(CompletionStream, AFailureHasNoFinish) {
  AnswerOptions o = options_with({});
  for (FinishReason reason :
       {FinishReason::kCancelled, FinishReason::kDeadline, FinishReason::kCorrupted}) {
    CompletionStream s(tokenizer(), o, 0);
    EXPECT_FALSE(s.push(event("a", reason), 0));
    EXPECT_EQ(s.failure(), reason);
    EXPECT_TRUE(s.finished());
  }
}

// The bytes of an answer do not depend on how its tokens were grouped into events, nor on holds.
TEST(CompletionStream, JoinedTextIsTheSameHoweverRoundsFell) {
  std::string text = "caf\xC3\xA9 ST\xE2\x82\xAC and STO or STOP!";
  AnswerOptions whole_options = options_with({"STOP", "OPx"});
  CompletionStream whole(tokenizer(), whole_options, 0);
  std::string want = whole.push(event(text, FinishReason::kLength), 0)->text();
  EXPECT_EQ(want, "caf\xC3\xA9 ST\xE2\x82\xAC and STO or ");
  for (size_t step = 1; step < 7; ++step) {
    for (int32_t hold : {0, 3}) {
      AnswerOptions o = options_with({"STOP", "OPx"});
      o.min_chunk_tokens = hold;
      CompletionStream s(tokenizer(), o, 0);
      std::string got;
      for (size_t i = 0; i < text.size(); i += step)
        if (auto chunk = s.push(event(text.substr(i, step)), 0)) got += chunk->text();
      if (auto chunk = s.push(event("", FinishReason::kLength), 0)) got += chunk->text();
      EXPECT_EQ(got, want) << "step " << step << " hold " << hold;
    }
  }
}

TEST(Answer, SaysThePromptOnceAndFirst) {
  AnswerOptions o = options_with({});
  o.n = 2;
  o.request_id = "r";
  o.n_prompt = 3;
  o.prompt = {10, 11, 12};
  Answer answer(tokenizer(), std::move(o));
  Event first = event("a", FinishReason::kNone, 1);
  first.has_prompt = true;
  first.n_cached_tokens = 2;
  first.prompt_logprobs = {{-1, {}}, {-2, {}}};
  std::vector<wire::GenerateChunk> out;
  answer.push(first, 0, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_EQ(out[0].index(), 1u);
  EXPECT_EQ(out[0].text(), "a");
  EXPECT_EQ(out[0].prompt().request_id(), "r");
  EXPECT_EQ(out[0].prompt().num_cached_tokens(), 2u);
  ASSERT_EQ(out[0].prompt().prompt_logprobs_size(), 2);
  EXPECT_EQ(out[0].prompt().prompt_logprobs(1).token_id(), 12u);
  out.clear();
  answer.push(event("b", FinishReason::kLength, 0), 0, &out);
  EXPECT_FALSE(out[0].has_prompt());
  EXPECT_FALSE(answer.finished());
  answer.push(event("", FinishReason::kLength, 1), 0, &out);
  EXPECT_TRUE(answer.finished());
  EXPECT_EQ(answer.n_tokens(), 2);
}

TEST(Answer, SaysThePromptAtOnceWhenTheFirstChunkIsHeldBack) {
  AnswerOptions o = options_with({});
  o.min_chunk_tokens = 8;
  Answer answer(tokenizer(), std::move(o));
  std::vector<wire::GenerateChunk> out;
  answer.push(event("a"), 0, &out);
  ASSERT_EQ(out.size(), 1u);
  EXPECT_TRUE(out[0].has_prompt());
  EXPECT_EQ(out[0].text(), "");
}

TEST(Answer, StopsSiblingsOneByOne) {
  AnswerOptions o = options_with({"x"});
  o.n = 3;
  Answer answer(tokenizer(), std::move(o));
  std::vector<wire::GenerateChunk> out;
  answer.push(event("ax", FinishReason::kNone, 2), 0, &out);
  EXPECT_EQ(answer.stopped(), 0b100u);
  answer.push(event("", FinishReason::kCancelled, 2), 0, &out);
  EXPECT_EQ(out.back().finish().reason(), wire::Finish::STOP_STRING);
  EXPECT_FALSE(answer.finished());
}

}  // namespace
}  // namespace pf
