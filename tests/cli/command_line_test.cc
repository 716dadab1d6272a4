// Truth: what the built program says and its exit code, written down by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <filesystem>

namespace pf {
namespace {

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
    EXPECT_THAT(ended.said, testing::StartsWith("pilotfish: standard output cannot be written"))
        << command;
    EXPECT_EQ(ended.said.find('\n'), ended.said.size() - 1) << command;
  }
}

TEST(CommandLine, WhatIsWrongIsSaidPlainlyAndBesideItsHelp) {
  const std::pair<const char*, const char*> cases[] = {
      {"bogus", "pilotfish: no such command: bogus; see pilotfish --help\n"},
      {"--bogus", "pilotfish: no such option: --bogus; see pilotfish --help\n"},
      {"", "pilotfish: A subcommand is required; see pilotfish --help\n"},
      {"generate --prompt x --prompt y",
       "pilotfish generate: --prompt: given 2 times, one is needed; see pilotfish generate "
       "--help\n"},
      {"inspect a b c",
       "pilotfish inspect: path: given 3 times, 2 at most; see pilotfish inspect --help\n"},
      {"generate --max-new-tokens 99999999999",
       "pilotfish generate: --max-new-tokens: needs a whole number in 1..4294967295; see pilotfish "
       "generate --help\n"},
      {"generate --max-new-tokens -1",
       "pilotfish generate: --max-new-tokens: needs a whole number in 1..4294967295; see pilotfish "
       "generate --help\n"},
      {"generate --top-p x",
       "pilotfish generate: --top-p: needs a number above 0 and up to 1; see pilotfish generate "
       "--help\n"},
      {"generate --top-k 3.5",
       "pilotfish generate: --top-k: needs a whole number >= -1; see pilotfish "
       "generate --help\n"},
      {"compare --max-new-tokens 7",
       "pilotfish compare: --max-new-tokens: needs a whole number in 8..4096; see pilotfish "
       "compare "
       "--help\n"},
      {"quantize a b --type q4_0 --threads -1",
       "pilotfish quantize: --threads: needs a whole number in 0..4096; see pilotfish quantize "
       "--help\n"}};
  for (auto [arguments, said] : cases) {
    Ended ended = run(arguments);
    EXPECT_EQ(ended.code, 2) << arguments;
    EXPECT_EQ(ended.said, said);
  }
}

TEST(CommandLine, AClosedOutputIsAFailureOfWhoeverPrints) {
  EXPECT_EQ(run("manual >&-").code, 2);
  EXPECT_EQ(run("serve >&-").said,
            "pilotfish: --model is not set; give a .gguf file or a folder with config.json\n");
}

}  // namespace
}  // namespace pf
