// Truth: the proto's limits (inference.proto), in the words of the command line.
#include "cli/generate_request.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

namespace pf {
namespace {

namespace fs = std::filesystem;

GenerateOptions asked(const std::string& prompt) {
  GenerateOptions o;
  o.prompt = prompt;
  return o;
}

std::string refusal(const GenerateOptions& o) {
  Result<wire::GenerateRequest> r = make_generate_request(o);
  return r.ok() ? "accepted" : r.status().message();
}

TEST(GenerateRequest, SaysWhatWasAskedAndNothingElse) {
  Result<wire::GenerateRequest> plain = make_generate_request(asked("hello"));
  ASSERT_TRUE(plain.ok()) << plain.status().message();
  EXPECT_EQ(plain->text(), "hello");
  EXPECT_FALSE(plain->sampling().has_temperature()) << "the model's own";
  GenerateOptions o = asked("hello");
  o.chat = true;
  o.temperature = 0.5f;
  o.top_k = -1;
  o.max_new_tokens = 7;
  o.stop = {"a", "b"};
  Result<wire::GenerateRequest> chat = make_generate_request(o);
  ASSERT_TRUE(chat.ok()) << chat.status().message();
  EXPECT_EQ(chat->messages().messages(0).content(), "hello");
  EXPECT_EQ(chat->sampling().temperature(), 0.5f);
  EXPECT_EQ(chat->sampling().top_k(), -1);
  EXPECT_EQ(chat->stopping().max_new_tokens(), 7u);
  EXPECT_EQ(chat->stopping().stop_strings_size(), 2);
}

// Seconds of loading went by before these were refused, in words of the proto.
TEST(GenerateRequest, WhatNoModelCouldAnswerIsRefusedByItsFlag) {
  for (bool chat : {false, true}) {
    GenerateOptions empty = asked("");
    empty.chat = chat;
    EXPECT_EQ(refusal(empty), "--prompt is empty; give a text to go on from");
    GenerateOptions latin = asked("caf\xE9");
    latin.chat = chat;
    EXPECT_EQ(refusal(latin), "--prompt: is no valid UTF-8");
  }
  EXPECT_EQ(refusal({}), "give one of --prompt and --prompt-file");
  GenerateOptions o = asked("x");
  for (float bad : {-0.5f, 100.5f, NAN, INFINITY}) {
    o.temperature = bad;
    EXPECT_EQ(refusal(o), "--temperature: needs a number in 0..100");
  }
  o.temperature = 100;
  EXPECT_EQ(refusal(o), "accepted");
  for (float bad : {0.0f, 1.01f, NAN}) {
    o.top_p = bad;
    EXPECT_EQ(refusal(o), "--top-p: needs a number above 0 and up to 1");
  }
  o.top_p = 1;
  o.top_k = -2;
  EXPECT_EQ(refusal(o).substr(0, 8), "--top-k:");
  o.top_k = 0;
  for (const std::string& bad : {std::string(), std::string(257, 'x'), std::string("\xFF")}) {
    o.stop = {"fine", bad};
    EXPECT_EQ(refusal(o).substr(0, 7), "--stop:");
  }
  o.stop.assign(17, "x");
  EXPECT_EQ(refusal(o), "--stop: at most 16 of them");
  o.stop.assign(16, std::string(256, 'x'));
  EXPECT_EQ(refusal(o), "accepted");
}

TEST(GenerateRequest, PromptsOfFilesHaveALimitAndAreNoFolders) {
  const fs::path folder =
      fs::path(testing::TempDir()) / ("generate_request." + std::to_string(getpid()));
  fs::create_directories(folder);
  auto of = [&](const fs::path& path) {
    GenerateOptions o;
    o.prompt_file = path.string();
    return o;
  };
  const std::string file = (folder / "prompt").string();
  std::ofstream(file) << "from a file";
  EXPECT_EQ(make_generate_request(of(file))->text(), "from a file");
  std::ofstream(file) << "caf\xE9";
  EXPECT_EQ(refusal(of(file)), "--prompt-file: " + file + ": is no valid UTF-8");
  GenerateOptions latin = asked("x");
  latin.predicted_file = file;
  EXPECT_EQ(refusal(latin), "--predicted-file: " + file + ": is no valid UTF-8");
  EXPECT_EQ(refusal(of(folder)),
            "--prompt-file: " + folder.string() + ": is a folder; a file is needed");
  std::ofstream(file, std::ios::trunc).close();
  EXPECT_EQ(refusal(of(file)), "--prompt-file: " + file + ": is empty");
  fs::resize_file(file, 98'000'000);
  EXPECT_EQ(refusal(of(file)),
            "--prompt-file: " + file + ": more than 4194304 bytes, which is the limit");
  GenerateOptions predicted = asked("x");
  predicted.predicted_file = folder.string();
  EXPECT_EQ(refusal(predicted),
            "--predicted-file: " + folder.string() + ": is a folder; a file is needed");
  fs::remove_all(folder);
}

TEST(GenerateRequest, RefusalsOfTheBorderSpeakOfFlags) {
  EXPECT_EQ(in_flags(invalid("prompt has 9 tokens, the context is 8; shorten it or set "
                             "truncate_prompt_tokens"),
                     true)
                .message(),
            "the prompt has 9 tokens, the context is 8; shorten it or raise --max-model-len, as "
            "far as the model's own context goes");
  EXPECT_EQ(in_flags(invalid("prompt has 9 tokens, the context is 8; shorten it or set "
                             "truncate_prompt_tokens"),
                     false)
                .message(),
            "the prompt has 9 tokens, the context is 8; shorten it");
  EXPECT_EQ(in_flags(invalid("speculation.predicted_text has 9 tokens, the context is 8; shorten "
                             "it"),
                     false)
                .message(),
            "--predicted-file has 9 tokens, the context is 8; shorten it");
  EXPECT_TRUE(in_flags(Status(), true).ok());
}

}  // namespace
}  // namespace pf
