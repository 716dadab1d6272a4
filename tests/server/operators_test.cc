// Truth: the README's pages for operators: metric names, probes, tokens, log lines.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "server/auth.h"
#include "server/serving.h"

namespace pf {
namespace {

// The whole HTTP answer to one request, header and body.
std::string http(int port, const std::string& line) {
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
  EXPECT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  std::string ask = line + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", answer;
  EXPECT_EQ(write(fd, ask.data(), ask.size()), static_cast<ssize_t>(ask.size()));
  char buffer[4096];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;)
    answer.append(buffer, static_cast<size_t>(n));
  close(fd);
  return answer;
}

ServerOptions with_metrics() {
  ServerOptions o;
  o.metrics_listen = "127.0.0.1:0";
  o.version = "1.2.3";
  o.commit = "abc";
  return o;
}

TEST_F(Serving, MetricsHaveTheirNamesFromTheStart) {
  start(with_metrics());
  std::string text = http(server->metrics_port(), "GET /metrics");
  EXPECT_NE(text.find("200 OK"), std::string::npos);
  for (const char* line :
       {"pilotfish_num_requests_running 0\n",
        "pilotfish_num_requests_waiting 0\n",
        "pilotfish_kv_cache_usage_perc 0\n",
        "pilotfish_prompt_tokens_total 0\n",
        "pilotfish_generation_tokens_total 0\n",
        "pilotfish_num_preemptions_total 0\n",
        "pilotfish_request_success_total{finished_reason=\"stop\"} 0\n",
        "pilotfish_request_success_total{finished_reason=\"length\"} 0\n",
        "pilotfish_prefix_cache_queries_total 0\n",
        "pilotfish_prefix_cache_hits_total 0\n",
        "pilotfish_time_to_first_token_seconds_count 0\n",
        "pilotfish_time_per_output_token_seconds_count 0\n",
        "pilotfish_inter_token_latency_seconds_count 0\n",
        "pilotfish_e2e_request_latency_seconds_count 0\n",
        "pilotfish_request_queue_time_seconds_count 0\n",
        "pilotfish_request_prefill_time_seconds_count 0\n",
        "pilotfish_request_decode_time_seconds_count 0\n",
        "pilotfish_spec_decode_num_drafts_total 0\n",
        "pilotfish_spec_decode_num_draft_tokens_total 10\n",
        "pilotfish_spec_decode_num_accepted_tokens_total 4\n",
        "pilotfish_spec_decode_num_accepted_tokens_per_pos_total{position=\"0\"} 3\n",
        "pilotfish_drafter_rounds_total{drafter=\"ngram\"} 0\n",
        "\ncod_accept_rate 0\n",
        "pilotfish_cod_accept_rate 0\n",
        "pilotfish_cod_fallback_count_total 0\n",
        "\ncod_fallback_count_total 0\n",
        "pilotfish_loss_spent_total 0\n",
        "pilotfish_alpha 1\n",
        "pilotfish_alpha_busy_term 0\n",
        "pilotfish_alpha_acceptance_term 0\n",
        "pilotfish_utilisation_percent 0\n",
        "pilotfish_speculation_speedup_ratio 0\n",
        "pilotfish_drafter_dead{drafter=\"ngram\"} 0\n",
        "pilotfish_kv_recomputed_tokens_total{plane=\"target\"} 0\n",
        "pilotfish_kv_recomputed_tokens_total{plane=\"draft\"} 0\n",
        "pilotfish_step_seconds_count{phase=\"draft\"} 0\n",
        "pilotfish_step_seconds_bucket{phase=\"verify\",le=\"+Inf\"} 0\n",
        "pilotfish_iteration_tokens_total_count 0\n",
        "pilotfish_iteration_tokens_total_bucket{le=\"16384\"} 0\n",
        "\ncod_draft_latency_p99 0\n",
        "pilotfish_cod_draft_latency_p99 0\n",
        "pilotfish_cod_draft_latency_p50 0\n",
        "pilotfish_draft_length 0\n",
        "pilotfish_draft_time_share 0\n",
        "pilotfish_cancelled_to_freed_seconds_count 0\n",
        "pilotfish_stream_write_blocked_seconds_count 0\n",
        "pilotfish_watchdog_last_step_age_seconds 0\n",
        "pilotfish_admission_rejections_total{reason=\"queue_full\"} 0\n",
        "pilotfish_corrupted_requests_total 0\n",
        "pilotfish_build_info{commit=\"abc\",version=\"1.2.3\"} 1\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
}

TEST_F(Serving, ADeadDraftIsWarnedOfOnce) {
  start();
  engine.dead = 1;
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // many ticks of the watch
  server.reset();
  std::string text = log_text.str();
  size_t at = text.find("dead draft");
  ASSERT_NE(at, std::string::npos) << text;
  EXPECT_NE(text.find("ngram", at), std::string::npos);
  EXPECT_EQ(text.find("dead draft", at + 1), std::string::npos);
}

TEST_F(Serving, MetricsCountWhatHappens) {
  start(with_metrics());
  ASSERT_TRUE(generate(request(5)).ok());
  wire::GenerateRequest stops = endless();
  stops.mutable_stopping()->add_stop_strings("c");
  ASSERT_TRUE(generate(stops).ok());
  wire::GenerateRequest bad = request();
  bad.set_n(0);
  EXPECT_FALSE(generate(bad).ok());
  std::string text = http(server->metrics_port(), "GET /metrics");
  for (const char* line : {"pilotfish_request_success_total{finished_reason=\"length\"} 1\n",
                           "pilotfish_request_success_total{finished_reason=\"stop\"} 1\n",
                           "pilotfish_admission_rejections_total{reason=\"invalid\"} 1\n",
                           "pilotfish_time_to_first_token_seconds_count 2\n"})
    EXPECT_NE(text.find(line), std::string::npos) << line;
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("# TYPE ")) {
      EXPECT_TRUE(names.insert(line).second) << "twice: " << line;
    }
}

TEST_F(Serving, ProbesFollowThePhase) {
  start(with_metrics(), false);
  int port = server->metrics_port();
  EXPECT_NE(http(port, "GET /healthz").find(" 200 "), std::string::npos);
  EXPECT_NE(http(port, "GET /readyz").find(" 503 "), std::string::npos);
  EXPECT_NE(http(port, "GET /metrics").find("pilotfish_build_info"), std::string::npos);
  server->set_ready(small_model(), port_of(engine));
  EXPECT_NE(http(port, "GET /readyz").find(" 200 "), std::string::npos);
  EXPECT_NE(http(port, "GET /version").find(R"("version":"1.2.3")"), std::string::npos);
  EXPECT_NE(http(port, "GET /etc/passwd").find(" 404 "), std::string::npos);
  EXPECT_NE(http(port, "POST /metrics").find(" 405 "), std::string::npos);
  server->set_not_serving();
  EXPECT_NE(http(port, "GET /readyz").find(" 503 "), std::string::npos);
}

class TokenFile {
 public:
  explicit TokenFile(const std::string& text)
      : path(testing::TempDir() + "tokens-" + std::to_string(getpid())) {
    std::ofstream(path) << text;
  }
  ~TokenFile() { std::remove(path.c_str()); }
  const std::string path;
};

TEST_F(Serving, ATokenGuardsEverythingButHealth) {
  TokenFile file("s3cret\n\n second \n");
  ServerOptions options;
  options.auth_token_file = file.path;
  start(options);
  auto code = [&](const char* header) {
    grpc::ClientContext context;
    if (*header != '\0') context.AddMetadata("authorization", header);
    return generate(request(), nullptr, &context).error_code();
  };
  EXPECT_EQ(code(""), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("Basic s3cret"), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer "), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(code("Bearer wrong"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("Bearer s3cre"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("Bearer s3crets3cret"), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(code("Bearer s3cret"), grpc::StatusCode::OK);
  EXPECT_EQ(code("bearer second"), grpc::StatusCode::OK);
  EXPECT_EQ(health("pilotfish.v1.Inference"), 1);
}

TEST(AuthTokens, AFileWithoutATokenIsRefused) {
  TokenFile empty("\n  \n");
  EXPECT_NE(AuthTokens::load(empty.path).status().message().find(empty.path), std::string::npos);
  EXPECT_FALSE(AuthTokens::load("/nonexistent/tokens").ok());
  EXPECT_EQ(AuthTokens::load("/tmp").status().message(),
            "--auth-token-file: /tmp: is a folder; a file is needed");
}

TEST(Log, EscapesWhatAClientSends) {
  std::ostringstream text;
  auto sink = std::make_shared<spdlog::sinks::ostream_sink_mt>(text);
  std::string hostile = "a\nb\x1b[31m\xff\"{}";
  Log json(Log::Format::kJson, "info", sink);
  json.info("request", {{"id", hostile}, {"n", int64_t{3}}, {"x", 0.5}});
  json.debug("unseen");
  std::string line = text.str();
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  auto parsed = nlohmann::json::parse(line);
  EXPECT_EQ(parsed["event"], "request");
  EXPECT_EQ(parsed["n"], 3);
  EXPECT_EQ(parsed["level"], "info");
  text.str("");
  Log plain(Log::Format::kText, "info", sink);
  plain.info("request", {{"id", hostile}});
  line = text.str();
  EXPECT_EQ(line.find('\x1b'), std::string::npos);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
}

}  // namespace
}  // namespace pf
