// Truth: the command as a script calls it. Everything runs on a tiny model and leaves a complete
// JSON; how fast is nobody's business here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "bench/bench_model.h"
#include "bench/length_rows.h"
#include "bench/probes.h"

namespace pf {
namespace {

using Json = nlohmann::json;

// Runs the built program; its exit code.
int bench(const std::string& arguments, const std::string& output) {
  std::string command = std::string(PF_BENCH_PROGRAM) + " " + arguments + " >" + output + " 2>&1";
  int status = std::system(command.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class BenchProgram : public testing::Test {
 protected:
  BenchProgram() : folder_(testing::TempDir() + "pilotfish-bench." + std::to_string(getpid())) {
    std::filesystem::create_directories(folder_);
  }
  ~BenchProgram() override { std::filesystem::remove_all(folder_); }
  std::string in(const char* name) const { return folder_ + "/" + name; }
  std::string said() const {
    std::ifstream file(in("out"));
    return {std::istreambuf_iterator<char>(file), {}};
  }
  std::string folder_;
};

// A full disk was reported as success.
TEST_F(BenchProgram, WhatCannotBeWrittenIsAFailure) {
  for (const std::string command :
       {"--help", "--version", "serve --help", "kernels --quick --model tiny --part rows --m 1"}) {
    int status = std::system(
        (std::string(PF_BENCH_PROGRAM) + " " + command + " >/dev/full 2>" + in("out")).c_str());
    EXPECT_EQ(WEXITSTATUS(status), 2) << command;
    EXPECT_NE(said().find("pilotfish-bench: standard output cannot be written"), std::string::npos)
        << command << ": " << said();
  }
}

TEST_F(BenchProgram, WhatMakesNoSenseIsRefusedBesideItsHelp) {
  const std::pair<const char*, const char*> cases[] = {
      {"bogus", "pilotfish-bench: no such command: bogus; see pilotfish-bench --help\n"},
      {"serve --request-rate -1",
       "pilotfish-bench serve: --request-rate: needs a number >= 0; see pilotfish-bench "
       "serve "
       "--help\n"},
      {"serve --max-concurrency -1",
       "pilotfish-bench serve: --max-concurrency: needs a whole number >= 0; see pilotfish-bench "
       "serve --help\n"},
      {"serve --cost-per-hour -1",
       "pilotfish-bench serve: --cost-per-hour: needs a number above 0; see "
       "pilotfish-bench serve --help\n"},
      {"serve --seed -1",
       "pilotfish-bench serve: --seed: needs a whole number in 0..18446744073709551615; see "
       "pilotfish-bench serve --help\n"},
      {"kernels --part rows --html /tmp/x.html",
       "pilotfish-bench: --html shows the choice of draft length: it needs --part length\n"}};
  for (auto [arguments, words] : cases) {
    EXPECT_EQ(bench(arguments, in("out")), 2) << arguments;
    EXPECT_EQ(said(), words);
  }
}

TEST_F(BenchProgram, QuickKernelsLeaveACompleteJson) {
  ASSERT_EQ(
      bench("kernels --quick --model tiny --threads 1,2 --json " + in("j") + " --html " + in("h"),
            in("out")),
      0)
      << said();
  std::ifstream file(in("j"));
  Json j = Json::parse(file);
  EXPECT_EQ(j["command"], "kernels");
  EXPECT_EQ(j["sections"]["probes"].size(), 2u);
  // Per dtype and threads: the layers at 5 row counts, 5 kinds of matrices at one.
  EXPECT_EQ(j["sections"]["products"].size(), 3u * 2 * (5 + 5));
  EXPECT_EQ(j["sections"]["attention"].size(), 2u * 3);
  ASSERT_EQ(j["sections"]["attention with int8 KV"].size(), 2u);
  for (const Json& line : j["sections"]["attention with int8 KV"])
    // Heads of 16: a byte each and a scale of 4, in place of 2 bytes each.
    EXPECT_DOUBLE_EQ(line["bytes of plain"].get<double>(), 20.0 / 32.0);
  EXPECT_EQ(j["sections"]["rows"].size(), 3u * 4);
  EXPECT_EQ(j["sections"]["sampling"].size(), 12u);
  // m = 4, 8 and 12, where the machine has something to compare with.
  EXPECT_EQ(j["sections"].value("products in the cache", Json::array()).size(),
            probe_kernels().bf16 ? 3u * 2 * 3 : 0u);
  ASSERT_EQ(j["sections"]["attention over a shared prefix"].size(), 2u * 2);
  for (const Json& line : j["sections"]["attention over a shared prefix"]) {
    if (line["threads"] == 1) {
      EXPECT_EQ(line["keys read / there"], 1.0) << line;
    }
    // 8 x 272 keys apart, 256 + 8 x 16 together; and 16 rows of one text.
    const double least = line["case"] == "8 sequences" ? 384.0 / 2176 : 1.0 / 16;
    EXPECT_GE(line["keys read / apart"].get<double>(), least - 1e-9) << line;
    EXPECT_LT(line["keys read / apart"].get<double>(), 0.5) << line;
  }
  ASSERT_EQ(j["sections"]["messages"].size(), 1u);
  const Json& messages = j["sections"]["messages"][0];
  EXPECT_GT(messages["messages"], 0);
  EXPECT_GT(messages["CPU us each"], 0.0);
  EXPECT_LE(messages["per request and step"], 1.0) << "a message without a token";
  EXPECT_EQ(j["sections"]["step"].size(), 3u * 2 * (4 + 3));  // m = 1, 4, 8, 12 and 4, 8, 12
  EXPECT_EQ(j["sections"]["step host time"].size(), 2u * 4);
  EXPECT_EQ(j["sections"]["kv"].size(), 4u);
  // A diagram for each dtype, number of threads and draft cost, of 2 batches and 6 acceptances.
  std::vector<Plot> plots = length_plots(j["sections"]["draft length"]);
  ASSERT_EQ(plots.size(), j["sections"]["draft length"].size() / (2 * 6));
  for (const Plot& plot : plots) {
    ASSERT_EQ(plot.series.size(), 4u);
    for (const Series& s : plot.series) EXPECT_EQ(s.points.size(), 6u);
  }
  const Json& line = j["sections"]["draft length"][3];  // one sequence, acceptance .6
  EXPECT_EQ(plots[0].series[0].points[3], std::make_pair(0.6, line["over K = 0"].get<double>()));
  EXPECT_NEAR(plots[0].series[1].points[3].second * line["over best K"].get<double>(),
              plots[0].series[0].points[3].second, 1e-12);
  std::ifstream page(in("h"));
  std::string html{std::istreambuf_iterator<char>(page), {}};
  EXPECT_THAT(html, testing::HasSubstr("Draft length, tiny, bf16, 1 threads"));
  for (const Json& line : j["sections"]["kv"]) {
    // The last token is not in K and V yet; completions that say the same share their full blocks.
    EXPECT_LE(line["blocks held / needed"], line["K"] == 0 ? 1.0 : 1.03) << line;
    EXPECT_GT(line["blocks held / needed"], line["completions"] > 1 ? 0.6 : 0.99) << line;
    EXPECT_EQ(line["blocks copied / sibling"], line["completions"] > 1 ? 1.0 : 0.0) << line;
    EXPECT_EQ(line["slots moved"], 0) << line;
  }
  std::set<std::string> grown;
  for (const Json& line : j["sections"]["growth"]) grown.insert(line["what"]);
  EXPECT_EQ(grown.size(), 10u);
  for (const Json& line : j["sections"]["growth"]) EXPECT_GT(line["us"], 0.0) << line;
  std::set<std::string> ids;
  for (const Json& goal : j["goals"]) {
    for (const char* key : {"id", "name", "value", "goal", "pass"})
      EXPECT_TRUE(goal.contains(key)) << key << " is missing in " << goal;
    EXPECT_TRUE(goal["pass"].is_boolean());
    EXPECT_TRUE(ids.insert(goal["id"]).second) << goal["id"] << " stands twice";
  }
  for (const char* id : {"C1.bf16.1t@tiny", "C2.int4.2t@tiny", "C3.T4.bf16.1t@tiny", "C8.k0",
                         "C6.plain.bf16.1t@tiny", "C6.best.int4.2t@tiny", "growth.step.k4",
                         "growth.tokenise", "growth.suffix", "growth.suffix.lookup", "C8.message",
                         "C8.each", "attention.once.16-branches.bf16.2t@tiny"})
    EXPECT_TRUE(ids.contains(id)) << id;
}

TEST(PassCost, IsALineBetweenFiguresAndNeverFalls) {
  PassCost cost;
  cost.add(4, 16'000);
  cost.add(8, 15'000);  // of an unsteady machine
  cost.add(12, 18'000);
  EXPECT_DOUBLE_EQ(cost(1), 10'000);
  EXPECT_DOUBLE_EQ(cost(2), 12'000);
  EXPECT_DOUBLE_EQ(cost(6), 16'000);
  EXPECT_DOUBLE_EQ(cost(10), 17'000);
  EXPECT_DOUBLE_EQ(cost(16), 20'000) << "the last line goes on";
}

// C6 in the engine's own step, where a pass costs what it does on a machine whose arithmetic takes
// over at 16 rows: every cell of the table holds both goals.
TEST(DraftLengthTable, HoldsTheGoalsOnARoofline) {
  PassCost cost;
  for (int32_t m : {2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64})
    cost.add(m, 10'000 * (1 + 0.01 * (m - 1)) * std::pow(1 + std::pow(m / 16.0, 4), 0.25));
  for (double ratio : {0.0, 0.05})
    for (int32_t n : {1, 4, 16, 64})
      for (double a : {0.0, 0.2, 0.4, 0.6, 0.8, 1.0}) {
        const LengthCase c = {a, ratio, n, 2000};
        double best = 0;
        for (int32_t k = 0; k <= kMostDrafted; ++k) best = std::max(best, fixed_speed(c, cost, k));
        const double speed = adaptive_speed(c, cost);
        EXPECT_GE(speed, 0.98 * fixed_speed(c, cost, 0))
            << "a=" << a << " c=" << ratio << " B=" << n;
        EXPECT_GE(speed, 0.97 * best) << "a=" << a << " c=" << ratio << " B=" << n;
      }
}

TEST_F(BenchProgram, GroupsOf128StandBesideBlocksOf32) {
  ASSERT_EQ(bench("kernels --quick --part groups --dtype int4 --model smollm2-135m --threads 1 "
                  "--m 1,5 --json " +
                      in("j"),
                  in("out")),
            0)
      << said();
  std::ifstream file(in("j"));
  Json j = Json::parse(file);
  ASSERT_EQ(j["sections"]["groups"].size(), 2u);
  for (const Json& line : j["sections"]["groups"]) {
    // Of widths 576 and 1536 the second has groups: 36 tiles of `down` in each of 30 layers.
    EXPECT_NEAR(line["MB by 32"].get<double>() - line["MB by 128"].get<double>(),
                1e-6 * 30 * 36 * 12 * (4 * 320 - 1088), 1e-9);
    const Json& ratio = line["T(128)/T(32)"]["median"];
    EXPECT_TRUE(ratio.is_null() || ratio.get<double>() > 0) << "null: no pair was steady " << line;
  }
}

TEST_F(BenchProgram, QuickSpeculationLeavesACompleteJson) {
  std::ofstream(in("p")) << R"({"again": ["abcabcabcabcabcabc", "xyxyxyxyxyxyxyxy"]})";
  std::string model = " --quick --model tiny --prompts-file " + in("p") + " --threads 1 ";
  ASSERT_EQ(bench("speculation" + model + "--prompts 2 --drafters ngram --k 3,-1 --json " + in("j"),
                  in("out")),
            0)
      << said();
  std::ifstream file(in("j"));
  Json j = Json::parse(file);
  ASSERT_EQ(j["sections"]["drafters"].size(), 2u);  // one kind, two K
  EXPECT_EQ(j["sections"]["verify curve"].size(), 10u);
  for (const Json& line : j["sections"]["drafters"]) {
    EXPECT_EQ(line["answers"], 2);
    EXPECT_EQ(line["equal texts"], 2) << "speculation changed a text: " << line;
    EXPECT_GE(line["tokens/round"], 1.0) << line;
  }
  ASSERT_EQ(j["sections"]["rounds"].size(), 2u);
  for (const Json& line : j["sections"]["rounds"]) {
    if (line["rounds"] == 0 || line["k c + v"].is_null()) continue;  // it was never steady
    double sum = 0;
    for (const char* part : {"k c + v", "propose", "verify", "upkeep", "host"})
      sum += line[part].get<double>();
    EXPECT_NEAR(sum, line["a round"].get<double>(), 1e-6) << line;
    EXPECT_EQ(line["upkeep"], 0) << "n-grams have none";
  }
  std::set<std::string> ids;
  for (const Json& goal : j["goals"]) ids.insert(goal["id"]);
  for (const char* id : {"C5.ngram.again.k3", "C5.upkeep.ngram.again.k3", "C5.ngram.again.kauto",
                         "text.ngram", "C11.ngram", "speed-up.again"})
    EXPECT_TRUE(ids.contains(id)) << id;
}

TEST_F(BenchProgram, QuickSweepHoldsTheClaimsBesideTheFigures) {
  std::ofstream(in("p")) << R"({"a": ["abcabcabcabc"], "b": ["xyxyxyxyxy"]})";
  ASSERT_EQ(bench("speculation --sweep --quick --model tiny --threads 1 --drafters ngram "
                  "--prompts-file " +
                      in("p") + " --json " + in("j"),
                  in("out")),
            0)
      << said();
  std::ifstream file(in("j"));
  Json j = Json::parse(file);
  EXPECT_EQ(j["sections"]["sweep"].size(), 10u);
  EXPECT_EQ(j["sections"]["sweep"][0]["answers"], 2);  // kinds are merged
  EXPECT_EQ(j["sections"]["verify curve"].size(), 16u);
  // Plain, and five claims at two acceptances; a sentence for each of them and the first token.
  const Json& paper = j["sections"]["source C on an A100-80, on paper"];
  ASSERT_EQ(paper.size(), 1u + 5 * 2);
  for (size_t i = 1; i < paper.size(); ++i)
    EXPECT_TRUE(paper[i]["claim needs"].is_number()) << paper[i];
  EXPECT_GE(j["sections"]["source C, why"].size(), 7u);
}

TEST_F(BenchProgram, SpeculationRefusesWhatItCannotDo) {
  struct {
    const char *arguments, *named;
  } cases[] = {{"--model tiny --drafters eagle", "eagle"},
               {"--model tiny --kinds poems", "poems"},
               {"--drafters eagle@3,2", "eagle@3,2"},
               {"--model no/such.gguf", "no/such.gguf"},
               {"--model tiny --sweep --k 3", "--sweep"}};
  for (auto& c : cases) {
    EXPECT_EQ(bench(std::string("speculation --quick --prompts-file " PF_SOURCE_DIR
                                "/bench/prompts/speculation.json ") +
                        c.arguments,
                    in("out")),
              2)
        << c.arguments;
    EXPECT_NE(said().find(c.named), std::string::npos) << said();
  }
}

TEST_F(BenchProgram, QuickDecodeLeavesACompleteJson) {
  ASSERT_EQ(
      bench("decode --quick --model tiny --dtype bf16,int8 --threads 1,2 --sequences 1,3 --k 0,2 "
            "--tokens 8 --json " +
                in("j"),
            in("out")),
      0)
      << said();
  std::ifstream file(in("j"));
  Json j = Json::parse(file);
  EXPECT_EQ(j["sections"]["start"].size(), 2u * 2);
  for (const Json& line : j["sections"]["start"]) {
    EXPECT_GT(line["KV touched MB"], 0.0) << line;
    EXPECT_LT(line["KV touched MB"], line["KV pool MB"].get<double>()) << line;
  }
  // The pool's untouched pages are in no memory: taken off all the same, they made this -45 MB.
  size_t n_memory_goals = 0;
  for (const Json& goal : j["goals"]) {
    if (!goal["id"].get<std::string>().starts_with("C10.")) continue;
    const Json& line = j["sections"]["start"][n_memory_goals++];
    EXPECT_NEAR(goal["value"].get<double>(),
                line["resident MB"].get<double>() - line["weights MB"].get<double>() -
                    line["KV touched MB"].get<double>(),
                1e-6);
  }
  EXPECT_EQ(n_memory_goals, 4u);
  EXPECT_EQ(j["sections"]["decode"].size(), 2u * 2 * 2 * 2);
  for (const Json& line : j["sections"]["decode"]) EXPECT_GE(line["tokens/step"], 1.0) << line;
  EXPECT_TRUE(j["goals"].is_array());
}

// One request a line, one answer a line, and a wrong request does not end the worker.
TEST_F(BenchProgram, WorkerAnswersLineByLine) {
  std::ofstream(in("requests"))
      << R"({"op": "info"})"
         "\n"
         R"({"op": "decode", "prompts": [[1, 2, 3], [4, 5]], "n": 6, "k": 0})"
         "\n"
         R"({"op": "decode", "prompts": [[1, 2, 3], [4, 5]], "n": 6, "k": 3})"
         "\n"
         R"({"op": "decode", "prompts": [[1, 999]], "n": 6, "k": 0})"
         "\n"
         R"({"op": "decode", "prompts": "no", "n": 6, "k": 0})"
         "\n"
         R"({"op": "rows", "m": 3, "seconds": 0.001})"
         "\n"
         R"({"op": "rows", "m": 17, "seconds": 0.001})"
         "\n"
         "no json\n";
  ASSERT_EQ(bench("worker --model tiny --threads 1 <" + in("requests"), in("out")), 0) << said();
  std::ifstream file(in("out"));
  std::vector<Json> answers;
  for (std::string line; std::getline(file, line);) answers.push_back(Json::parse(line));
  ASSERT_EQ(answers.size(), 8u);
  EXPECT_EQ(answers[0]["dtype"], "bf16");
  for (const Json& tokens : answers[1]["tokens"]) EXPECT_EQ(tokens.size(), 6u);
  EXPECT_EQ(answers[1]["steps"], 5);                      // behind the step that ran the prompts
  EXPECT_EQ(answers[2]["tokens"], answers[1]["tokens"]);  // drafts change no token
  EXPECT_GT(answers[5]["step_s"], 0.0);
  for (size_t i : {3, 4, 6, 7}) EXPECT_TRUE(answers[i].contains("error")) << answers[i];
}

TEST_F(BenchProgram, RefusesInOneLine) {
  for (const char* arguments : {"kernels --model /no/such.gguf --part step --quick",
                                "kernels --dtype int3 --quick", "kernels --part nothing", "nothing",
                                "", "kernels --quick --part rows --model tiny --json /no/such/f",
                                "decode --model /no/such.gguf", "worker",
                                "worker --model tiny --draft d.gguf", "decode --dtype int3"}) {
    EXPECT_EQ(bench(arguments, in("out")), 2) << arguments;
    std::string text = said();
    EXPECT_THAT(text.substr(text.rfind("\npilotfish-bench") + 1), testing::EndsWith("\n"));
  }
}

// A head over another model's hidden states has no embedding: it crashed, behind the probes.
TEST_F(BenchProgram, WhatCannotBeMeasuredIsRefusedBeforeAnythingIs) {
  const char* const head = PF_SOURCE_DIR "/models/drafts/smollm2-eagle";
  for (const std::string part : {"products", "step"}) {
    EXPECT_EQ(bench("kernels --part " + part + " --model " + head, in("out")), 2) << said();
    EXPECT_THAT(said(), testing::StartsWith(std::string("pilotfish-bench: ") + head));
  }
  for (const char* command : {"kernels --part rows --model tiny", "decode --model tiny",
                              "speculation --model tiny", "serve --target 127.0.0.1:1"}) {
    EXPECT_EQ(bench(std::string(command) + " --json " + folder_, in("out")), 2) << command;
    EXPECT_THAT(said(),
                testing::StartsWith("pilotfish-bench: --json: " + folder_ + ": is a folder"));
  }
  EXPECT_EQ(bench("serve --html /no/such/page.html", in("out")), 2);
  EXPECT_THAT(said(), testing::StartsWith("pilotfish-bench: --html: /no/such/page.html"));
}

TEST_F(BenchProgram, HelpNamesTheChoices) {
  EXPECT_EQ(bench("serve --help", in("out")), 0);
  for (const char* choices : {"{long,short,mixed,custom}",
                              "{random,sonnet,prefix-repetition,prompts-file}", "{server,off}"})
    EXPECT_THAT(said(), testing::HasSubstr(choices));
  EXPECT_EQ(bench("speculation --help", in("out")), 0);
  EXPECT_THAT(said(), testing::HasSubstr("{bf16,int8,int4}"));
}

TEST(SyntheticModel, IsAFunctionOfTheSeedAndHasTheShape) {
  for (auto weights :
       {CpuOptions::Weights::kBf16, CpuOptions::Weights::kInt8, CpuOptions::Weights::kInt4}) {
    Result<Model> a = synthetic_model("tiny", weights, 1), b = synthetic_model("tiny", weights, 1),
                  c = synthetic_model("tiny", weights, 2);
    auto bytes = [](const Result<Model>& m) {
      std::span<const std::byte> d = m->layers[1].down.data;
      return std::vector<std::byte>(d.begin(), d.end());
    };
    EXPECT_EQ(bytes(a), bytes(b));
    EXPECT_NE(bytes(a), bytes(c));
    EXPECT_EQ(a->layers.size(), 2u);
    EXPECT_EQ(a->head.rows(), 256);
    ThreadPool pool(1);
    EXPECT_TRUE(check_finite(*a, pool).ok());
  }
  EXPECT_FALSE(synthetic_model("huge", CpuOptions::Weights::kBf16, 1).ok());
}

TEST(Probes, CountWhatTheyRead) {
  ProbeMemory memory(1 << 20);
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    Load read = read_probe(memory, pool);
    // A part of the memory per thread, in one piece: all of it, every time.
    EXPECT_EQ(read(), 1 << 20);
    EXPECT_EQ(read(), 1 << 20);
  }
}

// By hand: a pass that costs the same for all rows is worth all the drafts that may be right, one
// that costs its rows is worth none.
TEST(DraftLengthFigures, FollowWhatPassesCost) {
  PassCost flat, dear;
  for (int32_t rows : {2, 64}) {
    flat.rows.push_back(rows), flat.us.push_back(flat.us[0]);
    dear.rows.push_back(rows), dear.us.push_back(dear.us[0] * rows);
  }
  EXPECT_EQ(flat(700), flat.us[0]);
  EXPECT_DOUBLE_EQ(dear(5), 5 * dear.us[0]);
  EXPECT_DOUBLE_EQ(dear(704), 704 * dear.us[0]) << "the last line goes on";
  const LengthCase all_right = {1, 0, 4, 400}, never_right = {0, 0.05, 4, 400};
  EXPECT_DOUBLE_EQ(fixed_speed(all_right, flat, 10), 11 * fixed_speed(all_right, flat, 0));
  EXPECT_DOUBLE_EQ(fixed_speed(never_right, flat, 2), 4 / (1.1 * flat.us[0]));
  EXPECT_GE(adaptive_speed(all_right, flat), 0.97 * fixed_speed(all_right, flat, 10));
  EXPECT_LE(adaptive_speed(all_right, flat), fixed_speed(all_right, flat, 10));
  for (const LengthCase& c : {all_right, never_right}) {
    EXPECT_GE(adaptive_speed(c, dear), 0.98 * fixed_speed(c, dear, 0)) << c.acceptance;
    EXPECT_LE(adaptive_speed(c, dear), 1.0001 * fixed_speed(c, dear, 0)) << c.acceptance;
  }
}

}  // namespace
}  // namespace pf
