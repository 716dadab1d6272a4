// Truth: the ranges in inference.proto and the table of statuses in the README.
#include "server/check_request.h"

#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "server/make_request.h"
#include "server/small_model.h"
#include "server/text_size.h"

namespace pf {
namespace {

const ServedModel& model() {
  static const ServedModel m = small_model();
  return m;
}

wire::GenerateRequest parse(const std::string& text) {
  wire::GenerateRequest r;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &r)) << text;
  return r;
}

// The refusal of the border, or else of the preparation behind it.
Status refusal(const wire::GenerateRequest& r) {
  Status s = check_request(r, model());
  return s.ok() ? make_request(r, model(), 0).status() : s;
}

struct Case {
  const char* request;
  const char* field;  // that the message names
  const char* limit;  // and says
  Code code = Code::kInvalidArgument;
};

class Refused : public testing::TestWithParam<Case> {};

TEST_P(Refused, NamesFieldAndLimit) {
  Status s = refusal(parse(GetParam().request));
  EXPECT_EQ(s.code(), GetParam().code) << s.message();
  EXPECT_NE(s.message().find(GetParam().field), std::string::npos) << s.message();
  EXPECT_NE(s.message().find(GetParam().limit), std::string::npos) << s.message();
  EXPECT_EQ(s.message().find('\n'), std::string::npos);
}

#define TEXT "text: 'a' "
INSTANTIATE_TEST_SUITE_P(
    Border, Refused,
    testing::Values(
        Case{"", "prompt", "missing"}, Case{"text: ''", "text", "empty"},
        Case{"token_ids {}", "token_ids.ids", "at least one"},
        Case{"token_ids { ids: 300 }", "token_ids.ids", "300"},
        Case{"token_ids { ids: 4294967295 }", "token_ids.ids", "300"},
        Case{"token_ids { ids: 1 } add_special_tokens: true", "add_special_tokens", "text"},
        Case{"messages {}", "messages", "at least one"},
        Case{"messages { messages { role: 'User' content: 'x' } }", "role", "[a-z_]"},
        Case{"messages { messages { role: '' content: 'x' } }", "role", "[a-z_]"},
        Case{TEXT "model: 'gpt-4'", "model", "small", Code::kNotFound},
        Case{TEXT "request_id: 'a b'", "request_id", "128"},
        Case{TEXT "request_id: 'a\\nb'", "request_id", "128"}, Case{TEXT "n: 0", "n", "1..16"},
        Case{TEXT "n: 17", "n", "1..16"}, Case{TEXT "priority: 1001", "priority", "-1000..1000"},
        Case{TEXT "priority: -1001", "priority", "-1000..1000"},
        Case{TEXT "sampling { temperature: -0.1 }", "temperature", "[0, 100]"},
        Case{TEXT "sampling { temperature: 100.1 }", "temperature", "[0, 100]"},
        Case{TEXT "sampling { temperature: nan }", "temperature", "[0, 100]"},
        Case{TEXT "sampling { temperature: inf }", "temperature", "[0, 100]"},
        Case{TEXT "sampling { top_k: -2 }", "top_k", "-1"},
        Case{TEXT "sampling { top_p: 0 }", "top_p", "(0, 1]"},
        Case{TEXT "sampling { top_p: 1.01 }", "top_p", "(0, 1]"},
        Case{TEXT "sampling { top_p: nan }", "top_p", "(0, 1]"},
        Case{TEXT "sampling { min_p: 1 }", "min_p", "[0, 1)"},
        Case{TEXT "sampling { min_p: nan }", "min_p", "[0, 1)"},
        Case{TEXT "sampling { presence_penalty: 2.1 }", "presence_penalty", "[-2, 2]"},
        Case{TEXT "sampling { frequency_penalty: -inf }", "frequency_penalty", "[-2, 2]"},
        Case{TEXT "sampling { repetition_penalty: 0 }", "repetition_penalty", "[0.01, 2]"},
        Case{TEXT "sampling { repetition_penalty: 0.00999 }", "repetition_penalty", "[0.01, 2]"},
        Case{TEXT "sampling { repetition_penalty: nan }", "repetition_penalty", "[0.01, 2]"},
        Case{TEXT "sampling { logit_bias { key: 300 value: 1 } }", "logit_bias", "300"},
        Case{TEXT "sampling { logit_bias { key: 1 value: 100.5 } }", "logit_bias", "[-100, 100]"},
        Case{TEXT "sampling { logit_bias { key: 1 value: nan } }", "logit_bias", "[-100, 100]"},
        Case{TEXT "stopping { min_new_tokens: 9 max_new_tokens: 8 }", "min_new_tokens", "8"},
        Case{TEXT "stopping { min_new_tokens: 257 }", "min_new_tokens", "256"},
        Case{TEXT "stopping { stop_token_ids: 300 }", "stop_token_ids", "300"},
        Case{TEXT "stopping { stop_strings: '' }", "stop_strings", "1..256"},
        Case{TEXT "stopping { time_limit_ms: 0 }", "time_limit_ms", ">= 1"},
        Case{TEXT "output { top_logprobs: 21 }", "top_logprobs", "0..20"},
        Case{TEXT "output { top_logprobs: 2147483648 }", "top_logprobs", "0..20"},
        Case{TEXT "output { min_chunk_tokens: 1025 }", "min_chunk_tokens", "1024"},
        Case{TEXT "output { min_chunk_ms: 10001 }", "min_chunk_ms", "10000"},
        Case{TEXT "speculation { mode: 9 }", "mode", "unknown"},
        Case{TEXT "speculation { acceptance: 9 }", "acceptance", "unknown"},
        Case{TEXT "speculation { mode: FIXED }", "num_draft_tokens", "FIXED"},
        Case{TEXT "speculation { num_draft_tokens: 17 }", "num_draft_tokens", "0..16"},
        Case{TEXT "speculation { drafters: 'eagle' }", "drafters", "GetModelInfo"},
        Case{TEXT "speculation { drafters: 'ngram' drafters: 'ngram' }", "drafters", "once"},
        Case{TEXT "speculation { mode: OFF num_draft_tokens: 1 }", "mode", "OFF goes without"},
        Case{TEXT "speculation { mode: OFF drafters: 'ngram' }", "mode", "OFF goes without"},
        Case{TEXT "speculation { mode: OFF tree: 2 }", "mode", "OFF goes without"},
        Case{TEXT "speculation { mode: OFF tree_nodes: 2 }", "mode", "OFF goes without"},
        Case{TEXT "speculation { tree: 4 tree: 4 tree: 4 }", "tree", "64"},
        Case{TEXT "speculation { tree: 3 tree: 0 }", "tree", ">= 1"},
        Case{TEXT "speculation { tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 "
                  "tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 tree: 1 }",
             "tree", "16 deep"},
        Case{TEXT "speculation { tree: 8 tree: 7 }", "tree", "63"},  // and the root: 65 rows
        Case{TEXT "speculation { tree_nodes: 65 }", "tree_nodes", "64"},
        Case{TEXT "speculation { tree_nodes: 64 }", "tree_nodes", "63"},
        Case{TEXT "speculation { tree_nodes: 4294967295 }", "tree_nodes", "64"},
        Case{TEXT "speculation { tree_nodes: 9 tree: 2 }", "tree_nodes", "tree"},
        Case{TEXT "speculation { mode: FIXED tree_nodes: 9 }", "num_draft_tokens", "FIXED"},
        Case{TEXT "speculation { tree: 4294967295 tree: 4294967295 }", "tree", "64"},
        Case{TEXT "speculation { acceptance: THRESHOLD alpha: 0 }", "alpha", "(0, 1]"},
        Case{TEXT "speculation { acceptance: THRESHOLD alpha: 1.1 }", "alpha", "(0, 1]"},
        Case{TEXT "speculation { acceptance: THRESHOLD alpha: nan }", "alpha", "(0, 1]"},
        Case{TEXT "speculation { alpha: 0.5 }", "alpha", "THRESHOLD"},
        Case{TEXT "speculation { acceptance: THRESHOLD loss_budget: -1 }", "loss_budget", ">= 0"},
        Case{TEXT "speculation { acceptance: THRESHOLD loss_budget: nan }", "loss_budget", ">= 0"},
        Case{TEXT "speculation { acceptance: THRESHOLD loss_budget: inf }", "loss_budget",
             "finite"},
        Case{TEXT "speculation { acceptance: COUPLED loss_budget: 1 }", "loss_budget", "THRESHOLD"},
        Case{TEXT "speculation { dynamic_alpha: true }", "dynamic_alpha", "THRESHOLD"},
        Case{TEXT "speculation { predicted_text: 'x' }", "predicted_text", "without a drafter",
             Code::kUnimplemented},
        Case{TEXT "speculation { mode: OFF predicted_text: 'x' }", "predicted_text", "OFF"},
        Case{TEXT "speculation { num_draft_tokens: 0 predicted_text: 'x' }", "predicted_text",
             "num_draft_tokens 0"}));

TEST(PredictedText, IsTokenisedAndMayBeAsLongAsTheContext) {
  ServedModel model = small_model(64);
  model.info.drafters.push_back({"predicted", "predicted", "", 64, 0});
  EXPECT_NE(check_request(parse(TEXT "speculation { drafters: 'predicted' }"), model)
                .message()
                .find("speculation.predicted_text is needed"),
            std::string::npos);
  wire::GenerateRequest r = parse(TEXT "speculation { predicted_text: 'aé<|im_end|>' }");
  ASSERT_TRUE(check_request(r, model).ok());
  auto prepared = make_request(r, model, 0);
  ASSERT_TRUE(prepared.ok()) << prepared.status().message();
  EXPECT_EQ(prepared->request->speculation.predicted, bytes_as_tokens("aé<|im_end|>"));
  r.mutable_speculation()->set_predicted_text(std::string(64, 'x'));
  EXPECT_TRUE(make_request(r, model, 0).ok());
  r.mutable_speculation()->set_predicted_text(std::string(65, 'x'));
  Status refused = make_request(r, model, 0).status();
  EXPECT_EQ(refused.code(), Code::kInvalidArgument);
  EXPECT_NE(refused.message().find("speculation.predicted_text has 65 tokens, the context is 64"),
            std::string::npos)
      << refused.message();
}

TEST(Border, CountsListsAndStrings) {
  wire::GenerateRequest r = parse(TEXT);
  for (int i = 0; i < 301; ++i) (*r.mutable_sampling()->mutable_logit_bias())[i % 300] = 1;
  EXPECT_TRUE(refusal(r).ok()) << "300 entries are the limit";
  r = parse(TEXT);
  for (int i = 0; i < 17; ++i) r.mutable_stopping()->add_stop_strings("x");
  EXPECT_NE(refusal(r).message().find("stop_strings"), std::string::npos);
  r = parse(TEXT);
  r.mutable_stopping()->add_stop_strings(std::string(257, 'x'));
  EXPECT_NE(refusal(r).message().find("256"), std::string::npos);
  r = parse(TEXT);
  r.mutable_stopping()->add_stop_strings("\xff");
  EXPECT_NE(refusal(r).message().find("stop_strings"), std::string::npos);
  r = parse(TEXT);
  for (int i = 0; i < 65; ++i) r.mutable_stopping()->add_stop_token_ids(1);
  EXPECT_NE(refusal(r).message().find("64"), std::string::npos);
  r = parse(TEXT);
  r.set_cache_salt(std::string(65, 's'));
  EXPECT_NE(refusal(r).message().find("cache_salt"), std::string::npos);
  r = parse(TEXT);
  r.set_request_id(std::string(100'000, 'x'));
  EXPECT_NE(refusal(r).message().find("request_id"), std::string::npos);
  EXPECT_LT(refusal(r).message().size(), 200u);
}

TEST(Border, NeverEchoesWhatTheClientWrote) {
  const std::string secret = "TOPSECRET\x01";
  wire::GenerateRequest r = parse(TEXT);
  for (int i = 0; i < 4; ++i) {
    wire::GenerateRequest bad = r;
    if (i == 0) bad.set_model(secret);
    if (i == 1) bad.set_request_id(secret);
    if (i == 2) bad.mutable_speculation()->add_drafters(secret);
    if (i == 3) bad.mutable_messages()->add_messages()->set_role(secret);
    Status s = refusal(bad);
    EXPECT_FALSE(s.ok());
    EXPECT_EQ(s.message().find("SECRET"), std::string::npos) << s.message();
  }
}

TEST(Border, TakesWhatIsAtTheLimits) {
  for (const char* ok :
       {TEXT, "token_ids { ids: 299 }", TEXT "n: 16 priority: -1000 model: 'small'",
        TEXT "sampling { temperature: 100 top_k: -1 top_p: 1 min_p: 0 repetition_penalty: 2 }",
        TEXT "sampling { top_k: 1000000 logit_bias { key: 299 value: -100 } }",
        TEXT "stopping { max_new_tokens: 4294967295 min_new_tokens: 4294967295 }",
        TEXT "stopping { max_new_tokens: 0 }", TEXT "output { top_logprobs: 20 }",
        TEXT "speculation { mode: FIXED num_draft_tokens: 16 }",
        TEXT "speculation { mode: FIXED tree: 4 tree: 3 tree: 2 }",  // 4 + 12 + 24 = 40 nodes
        TEXT "speculation { mode: FIXED num_draft_tokens: 5 tree_nodes: 63 }",
        TEXT "speculation { tree_nodes: 1 }",
        TEXT "speculation { acceptance: THRESHOLD alpha: 1 loss_budget: 0 }",
        TEXT "request_id: 'Az09._:-'", "messages { messages { role: 'user' content: '' } }"})
    EXPECT_TRUE(refusal(parse(ok)).ok()) << ok << ": " << refusal(parse(ok)).message();
}

TEST(Border, PromptMayFillTheContextButNoMore) {
  wire::GenerateRequest r;
  for (int i = 0; i < 64; ++i) r.mutable_token_ids()->add_ids(1);
  EXPECT_TRUE(refusal(r).ok());
  r.mutable_token_ids()->add_ids(1);
  EXPECT_NE(refusal(r).message().find("64"), std::string::npos);
  r.set_truncate_prompt_tokens(10);
  EXPECT_EQ(make_request(r, model(), 0)->request->prompt.size(), 10u);
}

TEST(MakeRequest, FillsInDefaults) {
  Request q = std::move(*make_request(parse(TEXT), model(), 5)->request);
  EXPECT_EQ(q.prompt, std::vector<int32_t>{'a'});
  EXPECT_TRUE(q.sampling.greedy());
  EXPECT_EQ(q.stop.max_new_tokens, 256);
  EXPECT_EQ(q.stop.end_ids, std::vector<int32_t>{kEos});
  EXPECT_EQ(q.n, 1);
  EXPECT_FALSE(q.has_seed);
  EXPECT_NE(q.seed, make_request(parse(TEXT), model(), 5)->request->seed);
  EXPECT_EQ(q.arrival_us, 5);
  EXPECT_EQ(q.time_limit_us, kNever);
  EXPECT_EQ(q.speculation.rule, SpeculationParams::Rule::kServer);
  auto by_name = make_request(parse(TEXT "speculation { acceptance: ACCEPT_AUTO }"), model(), 5);
  EXPECT_EQ(by_name->request->speculation.rule, SpeculationParams::Rule::kAuto)
      << "who asks for the exact rules does not get the server's";
  EXPECT_EQ(q.speculation.n_draft_tokens, -1);
}

TEST(MakeRequest, TakesTheModelsAdviceUnlessTheClientSpeaks) {
  ServedModel advised = small_model();
  advised.defaults = {.temperature = 0.6f,
                      .top_p = 0.9f,
                      .min_p = {},
                      .repetition_penalty = {},
                      .top_k = 50,
                      .max_new_tokens = 7};
  Request q = std::move(*make_request(parse(TEXT), advised, 0)->request);
  EXPECT_EQ(q.sampling.temperature, 0.6f);
  EXPECT_EQ(q.sampling.top_k, 50);
  EXPECT_EQ(q.stop.max_new_tokens, 7);
  Request own = std::move(
      *make_request(
           parse(TEXT "sampling { temperature: 0 top_k: 0 } stopping { max_new_tokens: 3 }"),
           advised, 0)
           ->request);
  EXPECT_EQ(own.sampling.temperature, 0);
  EXPECT_EQ(own.sampling.top_k, 0);
  EXPECT_EQ(own.stop.max_new_tokens, 3);
}

TEST(MakeRequest, MapsStoppingAndSpeculation) {
  auto p = make_request(
      parse(TEXT "sampling { seed: 9 } stopping { ignore_eos: true stop_token_ids: 7 "
                 "stop_token_ids: 3 stop_token_ids: 7 time_limit_ms: 2 } speculation { mode: FIXED "
                 "num_draft_tokens: 4 drafters: 'ngram' acceptance: THRESHOLD alpha: 0.5 "
                 "loss_budget: 2 } output { top_logprobs: 2 }"),
      model(), 1000);
  const Request& q = *p->request;
  EXPECT_EQ(q.stop.end_ids, (std::vector<int32_t>{3, 7}));
  EXPECT_EQ(q.time_limit_us, 3000);
  EXPECT_TRUE(q.has_seed);
  EXPECT_EQ(q.seed, 9u);
  EXPECT_EQ(p->answer.seed, 9u);
  EXPECT_EQ(q.speculation.mode, SpeculationParams::Mode::kFixed);
  EXPECT_EQ(q.speculation.n_draft_tokens, 4);
  EXPECT_EQ(q.speculation.rule, SpeculationParams::Rule::kNamed);
  EXPECT_EQ(q.speculation.policy.rule, Acceptance::kThreshold);
  EXPECT_EQ(q.speculation.policy.alpha, 0.5f);
  EXPECT_EQ(q.speculation.policy.loss_budget, 2);
  EXPECT_TRUE(q.output.logprobs);
  EXPECT_EQ(make_request(parse(TEXT "speculation { num_draft_tokens: 0 }"), model(), 0)
                ->request->speculation.mode,
            SpeculationParams::Mode::kOff);
}

TEST(MakeRequest, SpecialTokensInTextStayTextUnlessAsked) {
  wire::GenerateRequest r;
  r.set_text("<|im_end|>");
  EXPECT_EQ(make_request(r, model(), 0)->request->prompt.size(), 10u);
  r.set_parse_special_tokens(true);
  EXPECT_EQ(make_request(r, model(), 0)->request->prompt, std::vector<int32_t>{kEos});
}

// 100 tokens of at most 12 bytes, as <|im_start|> has: 1,200 bytes.
TEST(Border, ATextThatCannotFitIsRefusedByItsSize) {
  ServedModel m = small_model(100);
  m.token_bytes = token_bytes_of(m.tokenizer);
  wire::GenerateRequest r;
  r.set_text(std::string(1200, 'a'));
  EXPECT_TRUE(check_request(r, m).ok());
  r.set_text(std::string(1201, 'a'));
  EXPECT_EQ(
      check_request(r, m).message(),
      "text has 1201 bytes, the context of 100 tokens of at most 12 bytes each cannot hold it; "
      "shorten it or set truncate_prompt_tokens");
  r.set_truncate_prompt_tokens(100);
  EXPECT_TRUE(check_request(r, m).ok()) << "cut to what fits";
  EXPECT_EQ(make_request(r, m, 0)->request->prompt.size(), 100u);

  wire::GenerateRequest chat = parse("messages { messages { role: 'user' } }");
  std::string* content = chat.mutable_messages()->mutable_messages(0)->mutable_content();
  *content = std::string(5000, ' ') + "hi" + std::string(5000, ' ');
  EXPECT_TRUE(check_request(chat, m).ok()) << "the template takes white space off";
  *content = std::string(1201, 'a');
  EXPECT_NE(check_request(chat, m).message().find("messages has 1201 bytes"), std::string::npos);
  wire::GenerateRequest predicts = parse(TEXT);
  predicts.mutable_speculation()->set_predicted_text(std::string(1201, 'a'));
  EXPECT_NE(check_request(predicts, m).message().find("speculation.predicted_text has 1201 bytes"),
            std::string::npos);
}

// A vocabulary without a token for `a` drops it: only other bytes need room.
TEST(Border, BytesThatAreDroppedNeedNoRoom) {
  ServedModel m = small_model(100);
  Vocabulary v = m.tokenizer.vocabulary();
  v.tokens['a'] = "zzz";
  m.tokenizer = Tokenizer::create(std::move(v)).take();
  m.token_bytes = token_bytes_of(m.tokenizer);
  wire::GenerateRequest r;
  r.set_text(std::string(5000, 'a') + std::string(1200, 'b'));
  EXPECT_TRUE(check_request(r, m).ok());
  r.set_text(std::string(5000, 'a') + std::string(1201, 'b'));
  EXPECT_NE(check_request(r, m).message().find("1201 bytes"), std::string::npos);
}

TEST(Border, NoSizeBoundsATextWhereTokensHaveNone) {
  auto most = [](auto change) {
    Vocabulary v = small_model().tokenizer.vocabulary();
    change(&v);
    return token_bytes_of(Tokenizer::create(std::move(v)).take()).most;
  };
  EXPECT_EQ(most([](Vocabulary*) {}), 12);
  EXPECT_EQ(most([](Vocabulary* v) { v->unicode_form = UnicodeForm::kNfc; }), 4 * 12);
  EXPECT_EQ(most([](Vocabulary* v) {
              v->tokens['a'] = "zzz";
              v->unicode_form = UnicodeForm::kNfc;
            }),
            0)
      << "what a normal form makes of a byte may be dropped";
  EXPECT_EQ(most([](Vocabulary* v) { v->strip_right = {kTurn}; }), 0) << "white space is dropped";
}

TEST(Border, MessagesNeedATemplate) {
  ServedModel bare = small_model();
  bare.chat.reset();
  Status s = check_request(parse("messages { messages { role: 'user' content: 'x' } }"), bare);
  EXPECT_EQ(s.code(), Code::kFailedPrecondition);
}

}  // namespace
}  // namespace pf
