// Truth: level 0, latencies worked out by hand; and the load as a server sees it over a loopback.
#include "bench/serve.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <numeric>

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

TEST(ServeFigures, OfNothingAreZero) {
  Json j = serve_figures({}, 0, {});
  EXPECT_EQ(j["completed"], 0);
  EXPECT_DOUBLE_EQ(at(j, "request_throughput"), 0);
  EXPECT_DOUBLE_EQ(at(j, "p99_e2el_ms"), 0);
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
}

}  // namespace
}  // namespace pf
