// Truth: RELIABILITY R12, R13: what a process says and how it ends when its engine hangs. The
// server is in earnest, its engine scripted, its clock goes by hand.
#include <gmock/gmock.h>

#include "cli/last_words.h"
#include "cli/stacks.h"
#include "server/served.h"
#include "server/serving.h"

namespace pf {
namespace {

class Hang : public Serving {
 protected:
  Hang() : Serving(Clock().now_us()) {
    testing::FLAGS_gtest_death_test_style = "threadsafe";
    // The child runs this test from its start too; it is told which file.
    setenv("PF_TEST_WORDS", (testing::TempDir() + "words-" + std::to_string(getpid())).c_str(), 0);
    words = std::getenv("PF_TEST_WORDS");
  }

  // Ends the process.
  void hang() {
    prepare_stacks();
    set_termination_log(words);
    ServerOptions options;
    options.watch.hang_us = 4'000'000;
    end_on_faults(&options);
    start(options);
    set_dying_server(server.get());
    engine.running = false;
    grpc::ClientContext context;
    auto reader = stub->GenerateStream(&context, endless());
    until([&] { return engine.n_live() == 1; });
    clock.advance_us(4'100'000);
    std::this_thread::sleep_for(60s);
    _exit(0);
  }

  std::string words;
};

// The lines between the name of a thread and the next thread.
MATCHER_P2(StackOf, thread, what, "") {
  size_t at = arg.find("(" + std::string(thread) + ")\n");
  if (at == std::string::npos) return false;
  size_t end = arg.find("\nthread ", at);
  return arg.substr(at, end == std::string::npos ? end : end - at).find(what) != std::string::npos;
}

TEST_F(Hang, SaysWhereItsThreadsAreAndEndsWith70) {
  std::ofstream(words).close();
  auto began = std::chrono::steady_clock::now();
  EXPECT_EXIT(hang(), testing::ExitedWithCode(70),
              testing::AllOf(StackOf("pf-engine", "FakeEngine"), StackOf("pf-watch", "Watch"),
                             testing::HasSubstr("pilotfish: fault: the engine hangs\n")));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 30s) << "not by itself";
  EXPECT_EQ(test::text_of(words), "pilotfish: fault: the engine hangs\n");
  std::remove(words.c_str());
}

}  // namespace
}  // namespace pf
