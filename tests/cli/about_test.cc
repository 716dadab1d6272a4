// Truth: hand-made machines with the verdict that each deserves; the declared command line itself,
// every word of which completions and manual must hold; bash and man, where they are.
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>

#include "cli/arguments.h"
#include "cli/command_words.h"
#include "cli/commands.h"
#include "cli/completion.h"
#include "cli/doctor.h"
#include "cli/version.h"

namespace pf {
namespace {

MachineFacts good_machine() {
  MachineFacts m;
  m.cpu = "A CPU";
  m.kernels = "avx512";
  m.n_cpus = 8;
  m.memory_bytes = int64_t{32} << 30;
  m.max_open_files = 65'536;
  m.locked_bytes = -1;
  m.huge_pages = "madvise";
  m.cuda.why_none = "no driver";
  return m;
}

// The findings that are not fine, as "what: level".
std::vector<std::string> complaints(const MachineFacts& m) {
  std::vector<std::string> out;
  for (const Finding& f : examine(m)) {
    EXPECT_EQ(f.level == Finding::Level::kFine, f.advice.empty()) << f.what;
    if (f.level != Finding::Level::kFine)
      out.push_back(f.what + (f.level == Finding::Level::kBad ? ": bad" : ": advice"));
  }
  return out;
}

using Words = std::vector<std::string>;

TEST(Doctor, HasNothingToSayOfAGoodMachine) {
  EXPECT_EQ(complaints(good_machine()), Words{});
  MachineFacts m = good_machine();
  m.cuda = {
      {{"A100", 8, 0, int64_t{80} << 30}, {"H200", 9, 0, int64_t{140} << 30}}, "", 13'000, 13'000};
  EXPECT_EQ(complaints(m), Words{});
}

// Which of two devices' models have them; one device cannot share a model.
TEST(Doctor, SaysThatDevicesWhichShareAModelHaveNoGraphs) {
  MachineFacts m = good_machine();
  m.cuda = {{{"A100", 8, 0, 1}}, "", 13'000, 13'000};
  EXPECT_EQ(print(examine(m)).find("CUDA graphs"), std::string::npos);
  m.cuda.devices.push_back({"A100", 8, 0, 1});
  EXPECT_NE(print(examine(m))
                .find("ok   CUDA graphs    where a model has one GPU; not used with "
                      "--tensor-parallel-size 2 or more\n"),
            std::string::npos)
      << print(examine(m));
}

TEST(Doctor, NamesEachWeaknessAndItsCure) {
  struct Case {
    void (*spoil)(MachineFacts*);
    const char* complaint;
    const char* advice;
  };
  const Case cases[] = {
      {[](MachineFacts* m) { m->kernels = "portable"; }, "CPU: advice", "AVX2"},
      {[](MachineFacts* m) { m->cpu_quota = 2.5; }, "cores: advice", "--threads 2"},
      {[](MachineFacts* m) { m->cpu_quota = 0.5; }, "cores: advice", "--threads 1"},
      {[](MachineFacts* m) { m->memory_bytes = 1 << 29; }, "free memory: advice",
       "--max-model-len"},
      {[](MachineFacts* m) { m->huge_pages = "never"; }, "huge pages: advice", "madvise"},
      {[](MachineFacts* m) { m->max_open_files = 4096; }, "open files: advice", "ulimit -Hn"},
      {[](MachineFacts* m) { m->max_open_files = 1023; }, "open files: bad", "LimitNOFILE"},
      {[](MachineFacts* m) {
         m->cuda = {{{"A100", 8, 0, 1}}, "", 12'080, 13'000};
       },
       "CUDA driver: bad", "CUDA 13.0 (580 or later)"},
      {[](MachineFacts* m) {
         m->cuda = {{{"T4", 7, 5, 1}}, "", 13'000, 13'000};
       },
       "GPU: advice", "sm_80"},
  };
  for (const Case& c : cases) {
    MachineFacts m = good_machine();
    c.spoil(&m);
    EXPECT_EQ(complaints(m), Words{c.complaint});
    EXPECT_NE(print(examine(m)).find(c.advice), std::string::npos) << c.complaint;
  }
  MachineFacts m = good_machine();
  m.cpu_quota = 8;
  EXPECT_EQ(complaints(m), Words{}) << "a quota of all cores takes nothing away";
}

TEST(Doctor, ReadsWhatTheKernelWrites) {
  EXPECT_EQ(chosen_word("always [madvise] never"), "madvise");
  EXPECT_EQ(chosen_word(""), "");
  EXPECT_EQ(quota_of("150000 100000"), 1.5);
  EXPECT_EQ(quota_of("max 100000"), 0);
  EXPECT_EQ(quota_of(""), 0);
  EXPECT_EQ(quota_of("1 0"), 0);
}

TEST(Doctor, SeesThisMachine) {
  MachineFacts m = read_machine();
  EXPECT_GE(m.n_cpus, 1);
  EXPECT_GT(m.memory_bytes, 0);
  EXPECT_GT(m.max_open_files, 0);
  EXPECT_FALSE(m.kernels.empty());
  EXPECT_FALSE(m.cuda.devices.empty() && m.cuda.why_none.empty());
}

struct Program {
  CLI::App app{"A server", "pilotfish"};
  Run run;
  Program() { declare_all(&app, &run); }
};

TEST(Completion, HoldsEveryCommandAndOption) {
  Program p;
  std::vector<CommandWords> commands = words_of_commands(p.app);
  ASSERT_GE(commands.size(), 9u);
  for (const char* shell : {"bash", "zsh", "fish"}) {
    std::string script = completion_script(p.app, shell);
    bool fish = shell == std::string("fish");
    for (const CommandWords& c : commands) {
      EXPECT_NE(script.find(c.name), std::string::npos) << shell << " " << c.name;
      for (const OptionWords& o : c.options)
        for (const std::string& name : o.names) {
          std::string word =
              fish ? (name.starts_with("--") ? "-l " + name.substr(2) : "-s " + name.substr(1))
                   : name;
          EXPECT_NE(script.find(word), std::string::npos) << shell << " " << c.name << " " << name;
        }
    }
  }
}

TEST(Manual, HoldsEveryCommandAndOption) {
  Program p;
  std::string page = manual_page(p.app);
  for (const CommandWords& c : words_of_commands(p.app)) {
    EXPECT_NE(page.find(".SS pilotfish " + c.name), std::string::npos);
    for (const OptionWords& o : c.options)
      for (std::string name : o.names) {
        std::string escaped;
        for (char letter : name) escaped += letter == '-' ? "\\-" : std::string(1, letter);
        EXPECT_NE(page.find("\\fB" + escaped + "\\fR"), std::string::npos) << c.name << " " << name;
      }
  }
}

// What a shell command writes, errors too.
std::string output_of(const std::string& command) {
  std::array<char, 4096> buffer;
  std::string out;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe)) out.append(buffer.data(), n);
  pclose(pipe);
  return out;
}

struct File {
  explicit File(const std::string& text)
      : path(testing::TempDir() + "about-" + std::to_string(getpid())) {
    std::ofstream(path) << text;
  }
  ~File() { std::remove(path.c_str()); }
  std::string path;
};

TEST(Completion, BashCompletesWithIt) {
  Program p;
  File script(completion_script(p.app, "bash"));
  auto completed = [&](const std::string& words, int at) {
    return output_of("bash -c 'source " + script.path + "; COMP_WORDS=(" + words +
                     "); COMP_CWORD=" + std::to_string(at) +
                     "; _pilotfish; echo \"${COMPREPLY[@]}\"'");
  };
  EXPECT_EQ(completed("pilotfish co", 1), "compare completion\n");
  EXPECT_EQ(completed("pilotfish serve --device c", 3), "cpu cuda\n");
  EXPECT_EQ(completed("pilotfish serve --acceptance thr", 3), "threshold threshold-literal\n");
  EXPECT_EQ(completed("pilotfish quantize --ty", 2), "--type\n");
  EXPECT_EQ(completed("pilotfish completion \"\"", 2), "bash zsh fish\n");
  EXPECT_EQ(completed("pilotfish completion z", 2), "zsh\n");
  EXPECT_EQ(completed("pilotfish serve --speculation e", 3), "early-exit eagle\n");
  EXPECT_EQ(completed("pilotfish serve --max-num-seqs \"\"", 3), "\n") << "a number: no guess";
}

// CLI11 alone takes --prompt for the model's name.
TEST(Arguments, NothingBehindTheEqualsSignIsAnEmptyValue) {
  auto of = [](std::vector<const char*> words) {
    words.insert(words.begin(), "pilotfish");
    std::vector<std::string> out =
        arguments_backwards(static_cast<int>(words.size()), words.data());
    return std::vector<std::string>(out.rbegin(), out.rend());
  };
  using Words = std::vector<std::string>;
  EXPECT_EQ(of({"generate", "--model=", "--prompt", "hi"}),
            (Words{"generate", "--model", "", "--prompt", "hi"}));
  EXPECT_EQ(of({"--seed=3", "--a=b=", "=", "--=", "x="}),
            (Words{"--seed=3", "--a=b=", "=", "--=", "x="}));
  EXPECT_EQ(of({}), Words{});
}

TEST(Version, NamesTheCompiler) {
  const std::string text = version_text();
  EXPECT_EQ(text.find("  "), std::string::npos) << text;
#if defined(__clang__)
  EXPECT_NE(text.find("with Clang "), std::string::npos) << text;
#else
  EXPECT_NE(text.find("with GNU "), std::string::npos) << text;
#endif
}

TEST(Manual, IsGoodRoff) {
  if (output_of("command -v groff").empty()) GTEST_SKIP() << "no groff here";
  Program p;
  File page(manual_page(p.app));
  EXPECT_EQ(output_of("groff -man -Tascii -ww -z " + page.path), "");
}

}  // namespace
}  // namespace pf
