// Truth: what the built program says and its exit code, written down by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>

namespace pf {
namespace {

using testing::HasSubstr;

struct Ended {
  int code = 0;
  std::string said;  // on stderr, and on stdout where that went nowhere else
};

// The program with these arguments, as a shell reads them.
Ended run(const std::string& arguments) {
  const std::string command = "(" + std::string(PF_PROGRAM) + " " + arguments + ") 2>&1";
  FILE* pipe = popen(command.c_str(), "r");
  std::array<char, 4096> buffer;
  Ended ended;
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
    ended.said.append(buffer.data(), n);
  const int status = pclose(pipe);
  ended.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return ended;
}

const std::string kDraft = PF_SOURCE_DIR "/models/drafts/smollm2-3l";

// A full disk was reported as success.
TEST(CommandLine, WhatCannotBeWrittenIsAFailure) {
  std::vector<std::string> commands = {"--help",
                                       "--version",
                                       "manual",
                                       "completion bash",
                                       "serve --help",
                                       "serve --print-config",
                                       "generate --print-config",
                                       "compare --print-config",
                                       "plan --print-config",
                                       "plan --device-model h200 --model llama-3.1-8b",
                                       "doctor",
                                       "health --help",
                                       "top --help"};
  if (std::filesystem::exists(kDraft)) commands.push_back("inspect " + kDraft);
  for (const std::string& command : commands) {
    Ended ended = run(command + " >/dev/full");
    EXPECT_EQ(ended.code, 2) << command;
    EXPECT_EQ(ended.said, "pilotfish: standard output cannot be written: No space left on device\n")
        << command;
  }
}

TEST(CommandLine, AClosedOutputIsAFailureOfWhoeverPrints) {
  EXPECT_EQ(run("manual >&-").code, 2);
  EXPECT_EQ(run("serve >&-").said,
            "pilotfish: --model is not set; give a .gguf file or a folder with config.json\n");
}

}  // namespace
}  // namespace pf
