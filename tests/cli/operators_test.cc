// Truth: a screen written down by hand; and the memory plan of the real model's files.
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/plan_flags.h"
#include "cli/top.h"

namespace pf {
namespace {

const char* const kModel = PF_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(Top, AScreenSaysWhatTheServerSays) {
  pilotfish::v1::ServerInfo info;
  info.set_version("1.2.3");
  info.set_commit("abc");
  info.set_state("ready");
  info.set_uptime_ms(3'723'000);
  info.set_running(3);
  info.set_waiting(2);
  info.set_tokens_per_second(123.45);
  info.set_speedup(1.5);
  info.set_acceptance_rate(0.7);
  info.set_accepted_length(2.25);
  info.set_draft_length(3.5);
  info.set_alpha(0.42);
  info.set_utilisation(76.4);
  info.set_kv_blocks_in_use(30);
  info.set_kv_blocks_total(120);
  info.set_kv_blocks_cached(7);
  info.set_steps(12345);
  info.set_last_step_age_ms(8);
  info.mutable_memory()->set_total_bytes(1'500'000'000);
  info.mutable_memory()->set_device_bytes(8'000'000'000);
  EXPECT_EQ(top_screen(info),
            "pilotfish 1.2.3 (abc)  ready  up 1:02:03\n"
            "  requests      3 running, 2 waiting\n"
            "  tokens/s      123.5   speed-up 1.50 against K = 0\n"
            "  acceptance    0.70   accepted length 2.25   K 3.5   alpha 0.42\n"
            "  utilisation   76 %\n"
            "  KV blocks     30 of 120 in use (25 %), 7 cached\n"
            "  memory        1.5 of 8.0 GB\n"
            "  steps         12345, the last 8 ms ago\n");
  info.set_running(0);
  info.set_waiting(0);
  info.set_speedup(0);  // nothing was decoded
  EXPECT_NE(top_screen(info).find("speed-up - against"), std::string::npos) << top_screen(info);
  EXPECT_NE(top_screen(info).find("12345, idle\n"), std::string::npos) << top_screen(info);
}

TEST(Top, AServerThatLoadsHasAScreenToo) {
  pilotfish::v1::ServerInfo info;
  info.set_state("loading");
  EXPECT_NE(top_screen(info).find("loading"), std::string::npos);
}

TEST(PlanFlags, FlagsLieOverTheServersOptions) {
  if (!std::filesystem::exists(kModel))
    GTEST_SKIP() << kModel << " is missing: run scripts/get_model.sh";
  Settings settings;
  settings.engine.model = kModel;
  settings.engine.device = "cpu";
  settings.engine.max_num_seqs = 2;
  settings.engine.max_model_len = 4096;
  Result<MemoryFigures> plan = plan_with_flags(settings, {});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_TRUE(plan->fits);
  EXPECT_EQ(plan->max_context, 4096);
  EXPECT_EQ(plan->parts.size(), 3u);
  int64_t kv_alone = plan->kv_bytes_per_token;
  plan = plan_with_flags(settings, {{"max-model-len", "1K"},
                                    {"draft", PF_SOURCE_DIR "/models/drafts/smollm2-3l"},
                                    {"speculation", "model"}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->max_context, 1024);
  EXPECT_EQ(plan->parts.size(), 6u);
  EXPECT_GT(plan->kv_bytes_per_token, kv_alone);
  plan = plan_with_flags(settings, {{"kv-blocks", "100000000"}});
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_FALSE(plan->fits);
}

TEST(PlanFlags, WhatIsNoFlagIsRefused) {
  Settings settings;
  settings.engine.model = kModel;
  for (auto [name, value, says] : {std::tuple{"--kv-blocks", "3", "without dashes"},
                                   std::tuple{"listen", "x", "engine options"},
                                   std::tuple{"kv-blocks", "many", "kv-blocks"}}) {
    Result<MemoryFigures> plan = plan_with_flags(settings, {{name, value}});
    ASSERT_FALSE(plan.ok());
    EXPECT_NE(plan.status().message().find(says), std::string::npos) << plan.status().message();
  }
}

}  // namespace
}  // namespace pf
