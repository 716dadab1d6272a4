// Truth: level 0, latencies worked out by hand; and the load as a server sees it over a loopback.
#include "bench/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "bench/serve_compare.h"
#include "bench/serve_page.h"
#include "bench/serve_prompts.h"
#include "server/serving.h"

namespace pf {
namespace {

using testing::DoubleNear;
using testing::HasSubstr;
using Outcome = RequestRecord::Outcome;

std::vector<RequestRecord> four_requests() {
  return {
      // ttft 0.2, e2e 0.8, tpot (0.9 - 0.3) / 3 = 0.2, messages 0.2 and 0.4 apart; waited 0.1.
      {Outcome::kCompleted, 0, 0.1, 0.3, 0.9, {0.3, 0.5, 0.9}, 10, 4, ""},
      // ttft 0.4, e2e 0.4; one token has no tpot.
      {Outcome::kCompleted, 1, 1, 1.4, 1.4, {1.4}, 20, 1, ""},
      {Outcome::kCancelled, 2, 2, 2.1, 2.2, {2.1, 2.2}, 30, 9, ""},
      {Outcome::kFailed, 3, 3, 0, 3.1, {}, 0, 0, "8 full"},
  };
}

double at(const Json& j, const char* key) { return j.at(key).get<double>(); }

TEST(ServeFigures, CountOnlyCompletedRequests) {
  Json j = serve_figures(four_requests(), 2, {});
  EXPECT_EQ(j["completed"], 2);
  EXPECT_EQ(j["cancelled"], 1);
  EXPECT_EQ(j["failed"], 1);
  EXPECT_EQ(j["total_input_tokens"], 30);
  EXPECT_EQ(j["total_output_tokens"], 5);
  EXPECT_EQ(j["total_messages"], 4);
  EXPECT_DOUBLE_EQ(at(j, "request_throughput"), 1);
  EXPECT_DOUBLE_EQ(at(j, "output_throughput"), 2.5);
  EXPECT_DOUBLE_EQ(at(j, "total_token_throughput"), 17.5);
  EXPECT_TRUE(j["request_goodput"].is_null());
}

TEST(ServeFigures, LatenciesInMilliseconds) {
  Json j = serve_figures(four_requests(), 2, {});
  EXPECT_NEAR(at(j, "mean_ttft_ms"), 300, 1e-9);
  EXPECT_NEAR(at(j, "median_ttft_ms"), 300, 1e-9);
  EXPECT_NEAR(at(j, "std_ttft_ms"), 100, 1e-9);
  EXPECT_NEAR(at(j, "p99_ttft_ms"), 398, 1e-9);  // 200 + 0.99 * 200
  EXPECT_NEAR(at(j, "mean_tpot_ms"), 200, 1e-9);
  EXPECT_NEAR(at(j, "mean_itl_ms"), 300, 1e-9);
  EXPECT_NEAR(at(j, "mean_e2el_ms"), 600, 1e-9);
  EXPECT_NEAR(at(j, "mean_client_queue_ms"), 25, 1e-9);  // 100 of four requests
}

TEST(ServeFigures, GoodputNeedsEveryLimit) {
  EXPECT_DOUBLE_EQ(at(serve_figures(four_requests(), 2, {300, 0, 0}), "request_goodput"), 0.5);
  EXPECT_DOUBLE_EQ(at(serve_figures(four_requests(), 2, {500, 250, 0}), "request_goodput"), 1);
  EXPECT_DOUBLE_EQ(at(serve_figures(four_requests(), 2, {500, 150, 0}), "request_goodput"), 0.5);
  EXPECT_DOUBLE_EQ(at(serve_figures(four_requests(), 2, {500, 150, 300}), "request_goodput"), 0);
}

TEST(ServeFigures, DraftsOfCompletedRequests) {
  std::vector<RequestRecord> records = four_requests();
  for (RequestRecord& r : records) {  // the cancelled and the failed one do not count
    r.n_rounds = 3;
    r.n_drafts = 2;
    r.n_drafted = 4;
    r.n_accepted = 3;
    r.accepted_at = {2, 1};
  }
  Json j = serve_figures(records, 2, {});
  EXPECT_EQ(j["spec_decode_num_drafts"], 4);
  EXPECT_EQ(j["spec_decode_draft_tokens"], 8);
  EXPECT_EQ(j["spec_decode_accepted_tokens"], 6);
  EXPECT_DOUBLE_EQ(at(j, "spec_decode_acceptance_rate"), 75);
  EXPECT_DOUBLE_EQ(at(j, "spec_decode_acceptance_length"), 2.5);
  EXPECT_EQ(j["spec_decode_per_position_acceptance_rates"], Json::array({1.0, 0.5}));
  EXPECT_TRUE(serve_figures({}, 2, {})["spec_decode_acceptance_rate"].is_null());
}

// Zeros stood there as if they were measured.
TEST(ServeFigures, OfNothingAreNull) {
  const std::vector<RequestRecord> failed(2, {Outcome::kFailed, 3, 3, 0, 3.1, {}, 0, 0, "8 full"});
  for (const Json& j : {serve_figures({}, 0, {}), serve_figures(failed, 2, {1, 0, 0})}) {
    EXPECT_EQ(j["completed"], 0);
    EXPECT_EQ(j["total_output_tokens"], 0);
    for (const char* key :
         {"request_throughput", "output_throughput", "total_token_throughput", "request_goodput",
          "mean_ttft_ms", "median_tpot_ms", "std_itl_ms", "p99_e2el_ms"})
      EXPECT_TRUE(j[key].is_null()) << key;
  }
}

TEST(ServeFigures, ALoadWithoutAnAnswerHasFailed) {
  auto failed = [](int completed, int cancelled, int failed, bool strict) {
    return load_failed({{"completed", completed}, {"cancelled", cancelled}, {"failed", failed}},
                       strict);
  };
  EXPECT_TRUE(failed(0, 0, 3, false));
  EXPECT_FALSE(failed(1, 0, 3, false));
  EXPECT_FALSE(failed(0, 1, 3, false));
  EXPECT_TRUE(failed(1, 0, 3, true));
  EXPECT_FALSE(failed(4, 0, 0, true));
  EXPECT_TRUE(load_failed({{"completed", 4}, {"failed", 0}, {"failed_in_all_loads", 1}}, true));
}

TEST(Slo, ByNumbersAndByName) {
  Slo s = *slo_of("ttft:500 tpot:30.5 e2el:9000");
  EXPECT_EQ(s.ttft_ms, 500);
  EXPECT_EQ(s.tpot_ms, 30.5);
  EXPECT_EQ(s.e2el_ms, 9000);
  EXPECT_EQ(slo_of("mlperf-8b-interactive")->tpot_ms, 30);
  EXPECT_FALSE(slo_of("")->any());
  for (const char* bad :
       {"ttft", "ttft:", "ttft:fast", "ttft:1x", "ttft:-1", "ttft:nan", "speed:3"})
    EXPECT_THAT(slo_of(bad).status().message(), HasSubstr(bad)) << bad;
}

TEST(ArrivalTimes, AllAtOnceWithoutARate) {
  EXPECT_EQ(arrival_times(3, 0, 1, 1), (std::vector<double>{0, 0, 0}));
}

TEST(ArrivalTimes, GapsHaveTheMeanAndTheSpreadOfAGamma) {
  // Mean 1 / rate, standard deviation / mean = 1 / sqrt(shape). With n = 40,000 gaps the mean's own
  // deviation is 1 / (rate sqrt(shape n)): five of those are allowed.
  for (double shape : {0.25, 1.0, 4.0}) {
    std::vector<double> t = arrival_times(40001, 50, shape, 7);
    EXPECT_EQ(t, arrival_times(40001, 50, shape, 7));
    EXPECT_NE(t, arrival_times(40001, 50, shape, 8));
    double mean = t.back() / 40000, squares = 0;
    for (size_t i = 1; i < t.size(); ++i) {
      ASSERT_GE(t[i], t[i - 1]);
      squares += std::pow(t[i] - t[i - 1] - mean, 2) / 40000;
    }
    EXPECT_THAT(mean, DoubleNear(0.02, 5 * 0.02 / std::sqrt(shape * 40000))) << shape;
    // The deviation of the estimated variance is below sqrt((2 + 6 / shape) / n) of it.
    EXPECT_THAT(squares / (mean * mean) * shape,
                DoubleNear(1, 5 * std::sqrt((2 + 6 / shape) / 40000)))
        << shape;
  }
}

TEST(RampTimes, TheRateGrowsFromRequestToRequest) {
  // Even gaps (a huge shape): requests 1..4 of 5 come at rates 2, 3, 4 and 5 behind the one before.
  std::vector<double> t = ramp_times(5, 1, 5, 1e10, 3);
  double expected[] = {0, 0.5, 0.5 + 1 / 3.0, 0.75 + 1 / 3.0, 0.95 + 1 / 3.0};
  for (int i = 0; i < 5; ++i) EXPECT_NEAR(t[static_cast<size_t>(i)], expected[i], 1e-3) << i;
  EXPECT_EQ(ramp_times(1, 1, 5, 1, 3), std::vector<double>{0});
}

TEST(RampTimes, FromToOrRefused) {
  EXPECT_EQ(ramp_of("0.5:20")->from, 0.5);
  EXPECT_EQ(ramp_of("0.5:20")->to, 20);
  for (const char* bad : {"1", "1:", ":2", "1:2:3", "0:1", "1:-2", "1:nan", "a:b", "1:inf"})
    EXPECT_THAT(ramp_of(bad).status().message(), HasSubstr(bad)) << bad;
}

TEST(RampLines, OnePartPerRequestWhereThereAreFew) {
  std::vector<Json> lines = ramp_lines(four_requests());
  ASSERT_EQ(lines.size(), 4u);
  EXPECT_EQ(lines[0]["requests"], "1-1");
  EXPECT_DOUBLE_EQ(at(lines[0], "asked/s"), 1);  // the next one is due a second later
  EXPECT_NEAR(at(lines[0], "median ttft ms"), 200, 1e-9);
  EXPECT_NEAR(at(lines[0], "completed/s"), 1 / 0.9, 1e-9);
  EXPECT_EQ(lines[2]["completed"], 0);
  EXPECT_TRUE(lines[3]["completed/s"].is_null());
  EXPECT_TRUE(ramp_lines({}).empty());
}

TEST(CostFigures, PerMillion) {
  // 2 seconds at 3,600 USD an hour are 2 USD, for 2 requests, 5 tokens out and 30 in.
  Json cost = cost_figures(serve_figures(four_requests(), 2, {}), 3600);
  EXPECT_DOUBLE_EQ(at(cost, "cost_per_million_requests"), 1e6);
  EXPECT_DOUBLE_EQ(at(cost, "cost_per_million_output_tokens"), 4e5);
  EXPECT_DOUBLE_EQ(at(cost, "cost_per_million_tokens"), 2e6 / 35);
  EXPECT_TRUE(cost_figures(serve_figures({}, 2, {}), 1)["cost_per_million_requests"].is_null());
}

TEST(RatioInterval, ByHand) {
  double same[] = {1.5, 1.5, 1.5};
  RatioInterval r = ratio_interval(same);
  EXPECT_NEAR(r.ratio, 1.5, 1e-12);
  EXPECT_NEAR(r.low, 1.5, 1e-12);
  EXPECT_EQ(r.n, 3);
  // ln 2 and -ln 2: mean 0, deviation sqrt(2) ln 2, over sqrt(2): ln 2. t of one degree: 12.706.
  double wide[] = {2, 0.5};
  r = ratio_interval(wide);
  EXPECT_NEAR(r.ratio, 1, 1e-12);
  EXPECT_NEAR(std::log(r.high), 12.706 * std::log(2.0), 1e-9);
  EXPECT_NEAR(std::log(r.low), -12.706 * std::log(2.0), 1e-9);
  double one[] = {2, NAN, 0};
  r = ratio_interval(one);
  EXPECT_EQ(r.n, 1);
  EXPECT_DOUBLE_EQ(r.ratio, 2);
  EXPECT_TRUE(std::isnan(r.low));
}

TEST(StudentT, GoesOnBehindItsTable) {
  EXPECT_NEAR(student_t_95(30), 2.042, 1e-9);
  EXPECT_NEAR(student_t_95(40), 2.021, 1e-3);  // of the printed tables
  EXPECT_NEAR(student_t_95(120), 1.980, 1e-3);
}

TEST(CompareLines, OnOverTheMeanOfItsNeighbours) {
  auto load = [](double throughput, double ttft) {
    return Json{
        {"output_throughput", throughput}, {"mean_ttft_ms", ttft}, {"request_goodput", nullptr}};
  };
  std::vector<Json> loads = {load(10, 4), load(15, 6), load(10, 8), load(33, 3), load(20, 8)};
  std::vector<Json> lines = compare_lines(loads);
  ASSERT_EQ(lines.size(), 2u);  // goodput was not asked for
  EXPECT_EQ(lines[0]["figure"], "output_throughput");
  EXPECT_NEAR(at(lines[0], "on/off"), 1.5, 1e-12);
  EXPECT_EQ(lines[0]["pairs"], 1);
  EXPECT_EQ(lines[0]["dropped"], 1);  // 10 and 20 beside each other
  EXPECT_TRUE(lines[0]["low"].is_null());
  EXPECT_DOUBLE_EQ(at(lines[0], "off"), 10);
  EXPECT_DOUBLE_EQ(at(lines[0], "on"), 24);
  EXPECT_NEAR(at(lines[1], "on/off"), 1, 1e-12);  // 6 over the mean of 4 and 8
}

TEST(SonnetPrompt, BeginsAlikeAndFillsItsLength) {
  std::vector<CountedLine> lines = {{"task", 10}};
  for (int i = 0; i < 20; ++i) lines.push_back({"line " + std::to_string(i), 10});
  std::mt19937_64 rng(1);
  std::string a = sonnet_prompt(lines, 40, 100, &rng), b = sonnet_prompt(lines, 40, 100, &rng);
  EXPECT_EQ(std::count(a.begin(), a.end(), '\n'), 10);  // 100 / 10 lines, the task among them
  std::string common = "task\nline 0\nline 1\nline 2\n";
  EXPECT_TRUE(a.starts_with(common));
  EXPECT_TRUE(b.starts_with(common));
  EXPECT_NE(a, b);
  EXPECT_EQ(a.find("task", 1), std::string::npos);
  std::string least = sonnet_prompt(lines, 0, 1, &rng);  // the task alone is longer than that
  EXPECT_EQ(std::count(least.begin(), least.end(), '\n'), 2);
}

TEST(Plot, TicksAreRound) {
  EXPECT_EQ(axis_ticks(7, 8), (std::vector<double>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(axis_ticks(95, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(axis_ticks(0, 5), (std::vector<double>{0, 1}));
}

TEST(Plot, PointsStandWhereTheyBelong) {
  Plot plot{"a <b>", "x", "y", {{"s", {{0, 0}, {10, 5}, {5, NAN}}}}};
  std::string svg = svg_of(plot);
  // The frame: x 64..616 for 0..10, y 256..28 for 0..5.
  EXPECT_THAT(svg, HasSubstr("d=\"M64 256L616 28\""));
  EXPECT_THAT(svg, HasSubstr("a &lt;b&gt;"));
  EXPECT_THAT(svg_of({"t", "x", "y", {{"s", {{NAN, 1}}}}}), HasSubstr("nothing was measured"));
}

TEST(ServePage, NeedsNothingFromElsewhere) {
  std::vector<RequestRecord> records = four_requests();
  records[0].message_tokens = {1, 1, 2};
  records[0].n_rounds = 2;
  records[0].n_drafted = 3;
  records[0].drafted_at = {2, 1};
  records[0].accepted_at = {1, 0};
  std::vector<Plot> plots = serve_plots(records);
  ASSERT_EQ(plots.size(), 7u);
  EXPECT_EQ(plots[2].series[0].points.back(), (std::pair<double, double>{0.8e3, 1}));
  EXPECT_EQ(plots[4].series[0].points[0], (std::pair<double, double>{1, 0.5}));
  EXPECT_EQ(plots[5].series[0].points[0], (std::pair<double, double>{0.9, 1.5}));
  double tokens = 0;  // 60 parts of 2.2 s
  for (auto [t, rate] : plots[3].series[0].points) tokens += rate * 2.2 / 60;
  EXPECT_NEAR(tokens, 4, 1e-9);
  std::string page = html_page("load", {{"completed", 2}, {"what", "<&>"}}, plots);
  EXPECT_THAT(page, HasSubstr("&lt;&amp;&gt;"));
  for (const char* foreign : {"<script", "http", "src=", "@import"})
    EXPECT_THAT(page, testing::Not(HasSubstr(foreign)));
}

class ServeLoad : public Serving {
 protected:
  ServeOptions options() {
    ServeOptions o;
    o.target = "127.0.0.1:" + std::to_string(server->port());
    o.num_prompts = 6;
    o.max_concurrency = 3;
    o.input_len = 8;
    o.output_len = 5;
    return o;
  }
};

TEST_F(ServeLoad, CountsWhatTheServerCounts) {
  start();
  Json j = bench_serve(options())->json();
  EXPECT_EQ(j["completed"], 6) << j;
  EXPECT_EQ(j["failed"], 0);
  EXPECT_EQ(j["total_input_tokens"], 48);
  EXPECT_EQ(j["total_output_tokens"], 30);
  EXPECT_EQ(engine.n_submitted, 6);
  for (const char* key : {"duration", "request_throughput", "output_throughput", "mean_ttft_ms",
                          "median_tpot_ms", "p99_itl_ms", "std_e2el_ms"})
    EXPECT_GT(at(j, key), 0) << key;
  EXPECT_TRUE(j["first_error"].is_null());
}

// Several tokens come in one message: they count as tokens, and tpot is per token.
TEST_F(ServeLoad, TokensAreNotMessages) {
  engine.round = 4;
  start();
  ServeOptions o = options();
  o.output_len = 8;
  Json j = bench_serve(o)->json();
  EXPECT_EQ(j["total_output_tokens"], 48);
  EXPECT_LT(at(j, "mean_tpot_ms"), at(j, "mean_itl_ms"));
}

TEST_F(ServeLoad, CancelsHalfWay) {
  start();
  ServeOptions o = options();
  o.cancel_rate = 1;
  o.output_len = 40;
  o.max_concurrency = 1;  // a cancelled one keeps its place in the engine until the next step
  Json j = bench_serve(o)->json();
  EXPECT_EQ(j["cancelled"], 6) << j;
  EXPECT_EQ(j["completed"], 0);
  EXPECT_TRUE(until([&] { return engine.n_live() == 0; }));
}

TEST_F(ServeLoad, ARefusedRequestIsCountedAndItsReasonKept) {
  start();
  ServeOptions o = options();
  o.num_prompts = 12;
  o.max_concurrency = 0;  // the engine takes four at once
  engine.running = false;
  std::thread later([&] {
    until([&] { return engine.n_submitted == 4; });
    std::this_thread::sleep_for(100ms);
    engine.running = true;
  });
  Json j = bench_serve(o)->json();
  later.join();
  EXPECT_GE(j["failed"], 1) << j;
  EXPECT_EQ(j["failed"].get<int>() + j["completed"].get<int>(), 12);
  EXPECT_THAT(j["first_error"].get<std::string>(), HasSubstr("8 "));  // RESOURCE_EXHAUSTED
}

// Prompts were cut to one token and the scenario reported as run. The context holds 64.
TEST_F(ServeLoad, LengthsThatDoNotFitAreRefusedOrSaid) {
  start();
  ServeOptions o = options();
  o.input_len = 60;
  EXPECT_EQ(
      bench_serve(o).status().message(),
      "--input-len 60 and --output-len 5: the server's context holds 64 tokens; ask for less");
  o.scenario = "long";
  EXPECT_FALSE(bench_serve(o).ok()) << "asked for by hand";
  o.output_len = 64;
  EXPECT_THAT(bench_serve(o).status().message(), HasSubstr("--output-len 64: "));
  o.output_len = 5;
  o.input_len = -1;
  testing::internal::CaptureStderr();
  Json j = bench_serve(o)->json();
  EXPECT_THAT(
      testing::internal::GetCapturedStderr(),
      HasSubstr("warning: scenario long asks for prompts of 131072 tokens, but the server's "
                "context holds 64 tokens: those of 59 are sent"));
  EXPECT_EQ(j["input_len_asked"], 131072);
  EXPECT_EQ(j["input_len"], 59);
  EXPECT_EQ(j["output_len"], 5);
  EXPECT_EQ(j["total_input_tokens"], 6 * 59);
  EXPECT_EQ(j["cut_answers"], 0);
}

TEST_F(ServeLoad, PromptsOfAFileAndWithCommonBeginnings) {
  start();
  ServeOptions o = options();
  o.dataset = "prefix-repetition";
  o.prefix_len = 100;  // longer than the prompt: cut
  EXPECT_EQ(bench_serve(o)->json()["total_input_tokens"], 48);
  o.dataset = "prompts-file";
  o.prompts_file = testing::TempDir() + "prompts." + std::to_string(getpid());
  std::ofstream(o.prompts_file) << "ab\n\nabcd\n";
  EXPECT_EQ(bench_serve(o)->json()["total_input_tokens"], 18);  // 2 and 4 letters, three times each
  std::filesystem::remove(o.prompts_file);
  EXPECT_THAT(bench_serve(o).status().message(), HasSubstr(o.prompts_file));
}

TEST_F(ServeLoad, PoemsHaveTheLengthThatWasAskedFor) {
  start();
  ServeOptions o = options();
  o.dataset = "sonnet";
  o.sonnet_file = testing::TempDir() + "sonnet." + std::to_string(getpid());
  std::ofstream(o.sonnet_file) << "abcd\nefg\n";  // 5 and 4 tokens with the end of their lines
  o.input_len = 59;                               // with the answer just what the context holds
  o.prefix_len = 55;
  Json j = bench_serve(o)->json();
  std::filesystem::remove(o.sonnet_file);
  EXPECT_EQ(j["completed"], 6) << j;
  // The task has 53 tokens with the end of its line, the others 5 and 4.
  EXPECT_GT(j["total_input_tokens"], 6 * (o.input_len - 5));
  EXPECT_LE(j["total_input_tokens"], 6 * o.input_len);
  EXPECT_THAT(bench_serve(o).status().message(), HasSubstr("--sonnet-file"));
}

TEST_F(ServeLoad, ComparesBothWaysAndWritesAPage) {
  start();
  ServeOptions o = options();
  o.compare = 2;
  o.cost_per_hour = 1;
  o.html = testing::TempDir() + "load." + std::to_string(getpid()) + ".html";
  Result<Report> report = bench_serve(o);
  ASSERT_TRUE(report.ok()) << report.status().message();
  Json j = report->json();
  EXPECT_EQ(engine.n_submitted, 5 * 6);  // off, on, off, on, off
  EXPECT_EQ(j["completed"], 6);          // of the last load with speculation
  EXPECT_GT(at(j, "cost_per_million_requests"), 0);
  std::set<std::string> compared;
  for (const Json& line : j["sections"]["speculation on over off"]) {
    compared.insert(line["figure"]);
    EXPECT_EQ(line["pairs"].get<int>() + line["dropped"].get<int>(), 2) << line;
  }
  EXPECT_TRUE(compared.contains("output_throughput"));
  EXPECT_TRUE(compared.contains("cost_per_million_output_tokens"));
  std::ifstream page(o.html);
  std::string html{std::istreambuf_iterator<char>(page), {}};
  EXPECT_THAT(html, HasSubstr("</html>"));
  std::filesystem::remove(o.html);
  o.compare = 0;
  o.html = "no/such/folder/x.html";
  EXPECT_THAT(bench_serve(o).status().message(), HasSubstr("no/such/folder/x.html"));
}

TEST_F(ServeLoad, ARampSpreadsTheRequests) {
  start();
  ServeOptions o = options();
  o.ramp = "50:500";
  o.max_concurrency = 0;
  o.num_prompts = 4;
  Json j = bench_serve(o)->json();
  EXPECT_EQ(j["completed"], 4) << j;
  EXPECT_EQ(j["request_rate"], "50:500");
  EXPECT_EQ(j["sections"]["ramp"].size(), 4u);
}

TEST(ServeRefuses, InOneLineThatNamesTheFlag) {
  auto message = [](auto set) {
    ServeOptions o;
    o.target = "127.0.0.1:1";
    set(&o);
    return bench_serve(o).status().message();
  };
  EXPECT_THAT(message([](ServeOptions*) {}), HasSubstr("--target 127.0.0.1:1 does not answer"));
  EXPECT_THAT(message([](ServeOptions* o) { o->num_prompts = 0; }), HasSubstr("--num-prompts"));
  EXPECT_THAT(message([](ServeOptions* o) { o->output_len = 0; }), HasSubstr("--output-len"));
  EXPECT_THAT(message([](ServeOptions* o) { o->burstiness = 0; }), HasSubstr("--burstiness"));
  EXPECT_THAT(message([](ServeOptions* o) { o->burstiness = NAN; }), HasSubstr("--burstiness"));
  EXPECT_THAT(message([](ServeOptions* o) { o->cancel_rate = 2; }), HasSubstr("--cancel-rate"));
  EXPECT_THAT(message([](ServeOptions* o) { o->goodput = "x"; }), HasSubstr("--goodput"));
  EXPECT_THAT(message([](ServeOptions* o) { o->dataset = "prompts-file"; }),
              HasSubstr("--prompts-file"));
  EXPECT_THAT(message([](ServeOptions* o) { o->ramp = "fast"; }), HasSubstr("--ramp fast"));
  EXPECT_THAT(message([](ServeOptions* o) {
                o->ramp = "1:2";
                o->request_rate = 3;
              }),
              HasSubstr("--request-rate"));
  EXPECT_THAT(message([](ServeOptions* o) {
                o->dataset = "sonnet";
                o->input_len = 100;
                o->prefix_len = 100;
              }),
              HasSubstr("--prefix-len"));
  EXPECT_THAT(message([](ServeOptions* o) {
                o->compare = 1;
                o->speculation = "off";
              }),
              HasSubstr("--compare"));
}

}  // namespace
}  // namespace pf
