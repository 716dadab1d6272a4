// Truth: counts worked out by hand, of an answer whose drafts were trees.
#include "cli/generate_stats.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

// 11 tokens in 4 passes: two drafted 3 + 2 + 1 nodes, one 2 + 2, one nothing.
TEST(GenerateStats, ATreesLengthIsItsNodesPerPassThatDrafted) {
  pilotfish::v1::Completion with;
  with.set_num_tokens(11);
  pilotfish::v1::SpeculationStats* s = with.mutable_finish()->mutable_speculation();
  s->set_rounds(4);
  s->set_drafted_tokens(16);
  s->set_accepted_tokens(6);
  for (uint32_t n : {8, 6, 2}) s->add_drafted_per_position(n);
  for (uint32_t n : {3, 2, 1}) s->add_accepted_per_position(n);
  (*s->mutable_rounds_per_drafter())["eagle"] = 2;
  (*s->mutable_rounds_per_drafter())["ngram"] = 1;
  const GenerateStats stats = stats_of(with, with);
  EXPECT_EQ(stats.drafting_rounds(), 3u);
  EXPECT_DOUBLE_EQ(stats.draft_length(), 16.0 / 3);
  EXPECT_DOUBLE_EQ(stats.accepted_length(), 2.5);
  EXPECT_NE(plain_text(stats).find("K chosen         5.33 in 3 of 4 passes"), std::string::npos)
      << plain_text(stats);
}

// 21 tokens, 20 of them in 0.1 and 0.2 s; a ratio of equal work was shown as a speed-up.
TEST(GenerateStats, ASpeedUpIsToldOfDraftsAlone) {
  pilotfish::v1::Completion with, without;
  for (auto [c, us] : {std::pair{&with, 100'000}, std::pair{&without, 200'000}}) {
    c->set_num_tokens(21);
    c->mutable_finish()->mutable_timing()->set_decode_us(us);
  }
  GenerateStats stats = stats_of(with, without);
  EXPECT_FALSE(stats.has_speedup());
  EXPECT_NE(plain_text(stats).find("200.0 tokens/s, 100.0 with K = 0"), std::string::npos);
  EXPECT_EQ(plain_text(stats).find("2.00"), std::string::npos) << plain_text(stats);
  EXPECT_NE(json_text(stats).find("\"speedup\":null"), std::string::npos) << json_text(stats);
  with.mutable_finish()->mutable_speculation()->set_drafted_tokens(1);
  stats = stats_of(with, without);
  EXPECT_NE(plain_text(stats).find("speed-up         2.00, of one run of 21 tokens each way\n"),
            std::string::npos);
  EXPECT_NE(json_text(stats).find("\"speedup\":2.0"), std::string::npos) << json_text(stats);
  with.set_num_tokens(1);
  without.set_num_tokens(1);
  stats = stats_of(with, without);
  EXPECT_FALSE(stats.has_speedup());
  EXPECT_EQ(plain_text(stats).find("tokens/s"), std::string::npos) << plain_text(stats);
}

}  // namespace
}  // namespace pf
