// Truth: what the built program says and its exit code, written down by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>

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

const std::string kModel = PF_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
const std::string kHead = PF_SOURCE_DIR "/models/drafts/smollm2-eagle";

// Two drafts were measured as one, with a speed ratio of neither; --speculation was overruled.
TEST(CommandLine, CompareTakesExactlyOneDraftModel) {
  if (!std::filesystem::exists(kModel) || !std::filesystem::exists(kHead))
    GTEST_SKIP() << "no models here: run scripts/get_model.sh";
  const std::string asked = "compare --prompt x --model " + kModel;
  EXPECT_EQ(run(asked).said,
            "pilotfish: compare needs a draft model: give one with --draft PATH or --draft self\n");
  EXPECT_EQ(run(asked + " --draft " + kHead + " --draft self").said,
            "pilotfish: compare measures one draft, and --draft names 2; run it once for each\n");
  Ended ended = run(asked + " --draft " + kHead);
  EXPECT_EQ(ended.code, 2);
  EXPECT_EQ(ended.said, "pilotfish: --draft " + kHead +
                            " is a head over the model's hidden states, and compare measures draft "
                            "models; take pilotfish-bench speculation --drafters eagle --head " +
                            kHead + ", or pilotfish generate --stats\n");
  for (const char* overruled : {"--speculation", "--num-speculative-tokens", "--draft-length",
                                "--speculation-tree", "--speculation-tree-nodes"}) {
    ended = run(asked + " --draft self " + overruled + " 1");
    EXPECT_EQ(ended.code, 2);
    EXPECT_THAT(ended.said, HasSubstr(overruled));
    EXPECT_EQ(run("compare --help").said.find(std::string(overruled) + " "), std::string::npos);
  }
  EXPECT_EQ(run("compare --prompt '' --model x --draft self").said,
            "pilotfish: --prompt is empty; give a text to go on from\n");
}

TEST(CommandLine, ADraftIsNoModelWhateverItLacks) {
  if (!std::filesystem::exists(kHead)) GTEST_SKIP() << "no head here: run scripts/get_model.sh";
  for (const std::string command :
       {"generate --prompt x --model ", "compare --prompt x --draft self --model "})
    EXPECT_THAT(run(command + kHead).said, HasSubstr("it is a draft, give it as --draft"))
        << command;
  Ended ended = run("inspect --exit-layers " + kHead);
  EXPECT_EQ(ended.code, 2);
  EXPECT_THAT(ended.said, testing::StartsWith("pilotfish: --exit-layers: " + kHead));
  EXPECT_EQ(ended.said.find('\n'), ended.said.size() - 1) << "nothing was listed before";
}

TEST(CommandLine, InspectNamesTheFileItWasGiven) {
  const std::string path = testing::TempDir() + "bad." + std::to_string(getpid()) + ".safetensors";
  std::ofstream(path) << "no tensors";
  EXPECT_THAT(run("inspect " + path).said, testing::StartsWith("pilotfish: " + path + ": "));
  std::filesystem::remove(path);
}

TEST(CommandLine, WhatNeedsAnotherOptionSaysSo) {
  for (const char* name :
       {"--estimate-batch", "--estimate-context", "--estimate-tokens", "--estimate-acceptance"})
    EXPECT_EQ(run("plan --model llama-3.1-8b --device-model h200 " + std::string(name) + " 1").said,
              "pilotfish: " + std::string(name) + " needs --estimate, which it is a part of\n");
  const std::string plan = "plan --model llama-3.1-8b --device-model h200 ";
  EXPECT_EQ(run(plan + "--estimate --estimate-acceptance 1.5").said,
            "pilotfish: --estimate-acceptance 1.5: needs numbers in 0..1, such as 0.5,0.8\n");
  EXPECT_EQ(run(plan + "--shared-prefix 1,2").said,
            "pilotfish: --shared-prefix: needs one number, such as 64K\n");
  EXPECT_THAT(run("generate --prompt x --model none --alpha 0.5").said,
              HasSubstr("warning: --alpha: --acceptance auto has no use for it"));
  EXPECT_EQ(run("generate --prompt x --model none --alpha 0.5 --acceptance threshold")
                .said.find("warning"),
            std::string::npos);
}

TEST(CommandLine, AClosedOutputIsAFailureOfWhoeverPrints) {
  EXPECT_EQ(run("manual >&-").code, 2);
  EXPECT_EQ(run("serve >&-").said,
            "pilotfish: --model is not set; give a .gguf file or a folder with config.json\n");
}

}  // namespace
}  // namespace pf
