// Truth: figures worked out by hand, in the very words of `pilotfish plan`.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>

#include "cli/commands.h"

namespace pf {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string said(const std::string& flags) {
  CLI::App app;
  Run run;
  declare_plan(&app, &run);
  app.parse("plan --model llama-3.1-8b --device-model a100-80 --speculation model " + flags);
  testing::internal::CaptureStdout();
  const int code = run();
  const std::string text = testing::internal::GetCapturedStdout();
  EXPECT_EQ(code, kOk) << text;
  return text;
}

// The numbers that a pattern catches in a text, one of each group.
std::vector<double> numbers_in(const std::string& text, const std::string& pattern) {
  std::smatch match;
  std::vector<double> out;
  if (!std::regex_search(text, match, std::regex(pattern))) {
    ADD_FAILURE() << pattern << " is not in\n" << text;
    return std::vector<double>(16);
  }
  for (size_t i = 1; i < match.size(); ++i) out.push_back(std::stod(match[i]));
  return out;
}

// The article's 34 GB where candidates share a context of 128K tokens, and 58 GB where they do not:
// what is shared is said beside the figures. A token takes 32 layers x 8 heads x 128 x 4 bytes of
// the target and 22 x 4 x 64 x 4 of the draft; a sequence with its drafts 8,197 blocks of 16:
// 131,152 x 153,600 bytes = 18.76 GiB.
TEST(PlanText, SaysWhatIsSharedAndWhatCopiesOfItWouldTake) {
  const std::string text =
      said("--draft tinyllama-1.1b --dtype auto --max-prefix-len 131072 --shared-prefix 96K");
  EXPECT_THAT(text, HasSubstr("weights of the target (fp16)"));
  EXPECT_THAT(text, HasSubstr("153600 B"));
  EXPECT_THAT(text, HasSubstr("shared are the blocks of all 131072 tokens in every model's plane, "
                              "18.76 GiB"));
  const double one = numbers_in(text, "share it \\(pilotfish\\) +([0-9.]+) GiB")[0],
               two = numbers_in(text, "2 candidates with a copy each +([0-9.]+) GiB")[0],
               three = numbers_in(text, "3 candidates with a copy each +([0-9.]+) GiB")[0];
  EXPECT_NEAR(one, 14.96 + 16.0 + 0.72 + 2.75 + 0.69, 0.7);  // plan_test.cc, and scratch
  EXPECT_NEAR(two - one, 18.76, 0.011);
  EXPECT_NEAR(three - two, 18.76, 0.011);
  EXPECT_LT(two, 58);
  EXPECT_GT(three, 58);
}

// A decoded token moves 15.2919e9 bytes (estimate_test.cc) in 166 launches: 8.522 ms at 0.88 of
// 2,039 GB/s, 0.199 ms of gaps, 0.016 for two copies and a wait; the laws and the accept rule, one
// block each and 1/54 of the bandwidth, 0.062 for 2.05 MB; and 3 launches that move little, at both
// ends of the pass and the rows of the head, take 2 us, 0.006. The sum is 8.805.
TEST(PlanText, EstimatesARowOfEachK) {
  const std::string text = said(
      "--draft llama-3.2-1b --dtype fp16 --estimate --estimate-batch 1 --estimate-context 2K "
      "--estimate-tokens 0,4 --estimate-acceptance 0.5");
  EXPECT_THAT(text,
              HasSubstr("estimate for NVIDIA A100 80GB SXM: 2039 GB/s, 312 dense FP16 TFLOPS, "
                        "108 multiprocessors"));
  EXPECT_THAT(text, HasSubstr("1 sequence of 2048 tokens\n"));
  const std::string n = " +([0-9.]+)";
  // K, verify, draft and step in ms, launches, GB, TFLOP, tokens per second
  const auto plain = numbers_in(text, "\n +(0)" + n + n + n + n + n + n + n + " tok/s");
  EXPECT_NEAR(plain[1], 8.805, 0.01);
  EXPECT_EQ(plain[2], 0);
  EXPECT_EQ(plain[4], 166);
  EXPECT_EQ(plain[5], 15.29);
  EXPECT_NEAR(plain[7], 1000 / plain[3], 0.6);
  // 1 + 1/2 + 1/4 + 1/8 + 1/16 tokens a step.
  const auto chain = numbers_in(text, "\n +(4)" + n + n + n + n + n + n + n + " \\(([0-9.]+)\\)");
  EXPECT_NEAR(chain[7], 1937.5 / chain[3], 0.6);
  EXPECT_NEAR(chain[8], chain[7] / plain[7], 0.02);
  EXPECT_NEAR(chain[3], chain[1] + chain[2] + 0.0205, 0.002);  // the host's 20 + 0.5 us
}

TEST(PlanText, EstimatesEveryDraftButThoseOnTheCpu) {
  const std::string flags =
      " --estimate --estimate-batch 1 --estimate-context 2K --estimate-tokens 0,4";
  const std::string both = said("--draft a=llama-3.2-1b --draft b=llama-3.2-1b" + flags);
  EXPECT_THAT(both, HasSubstr("by the draft model a\n    4"));
  EXPECT_THAT(both, HasSubstr("by the draft model b\n    4"));
  const std::string cpu = said("--draft llama-3.2-1b --draft-device cpu" + flags);
  EXPECT_THAT(cpu, HasSubstr("not estimated: the draft model on the CPU\n"));
  EXPECT_THAT(cpu, HasSubstr("\n    0 "));
  EXPECT_THAT(cpu, Not(HasSubstr("\n    4 ")));
}

}  // namespace
}  // namespace pf
