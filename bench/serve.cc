#include "bench/serve.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <fstream>
#include <memory>
#include <mutex>
#include <random>
#include <thread>

#include "bench/measure.h"
#include "proto/pilotfish/v1/inference.grpc.pb.h"

namespace pf {
namespace {

namespace wire = pilotfish::v1;

// How many requests are under way, and when the load began.
struct Traffic {
  std::mutex mutex;
  std::condition_variable changed;
  int n_open = 0;  // guarded by mutex
  double began_s = now_s();
  double elapsed_s() const { return now_s() - began_s; }
};

// One streamed call. gRPC's threads write the record until the traffic counts it as ended.
class Call final : public grpc::ClientReadReactor<wire::GenerateChunk> {
 public:
  Call(wire::GenerateRequest request, double due_s, int64_t cancel_at, Traffic* traffic)
      : request_(std::move(request)), cancel_at_(cancel_at), traffic_(traffic) {
    record.due_s = due_s;
  }

  void start(wire::Inference::Stub* stub) {
    record.sent_s = traffic_->elapsed_s();
    stub->async()->GenerateStream(&context_, &request_, this);
    StartRead(&chunk_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (chunk_.has_prompt()) record.n_prompt = chunk_.prompt().num_prompt_tokens();
    if (chunk_.num_tokens() > 0) {
      record.message_s.push_back(traffic_->elapsed_s());
      if (record.n_tokens == 0) record.first_s = record.message_s.back();
      record.n_tokens += chunk_.num_tokens();
      if (cancel_at_ > 0 && record.n_tokens >= cancel_at_) context_.TryCancel();
    }
    StartRead(&chunk_);
  }

  void OnDone(const grpc::Status& status) override {
    record.end_s = traffic_->elapsed_s();
    if (status.ok()) {
      record.outcome = RequestRecord::Outcome::kCompleted;
    } else if (status.error_code() == grpc::StatusCode::CANCELLED && cancel_at_ > 0) {
      record.outcome = RequestRecord::Outcome::kCancelled;
    } else {
      record.error = std::to_string(status.error_code()) + " " + status.error_message();
    }
    std::lock_guard lock(traffic_->mutex);
    --traffic_->n_open;
    traffic_->changed.notify_all();  // under the lock: the traffic may go away behind it
  }

  RequestRecord record;

 private:
  grpc::ClientContext context_;
  wire::GenerateRequest request_;
  wire::GenerateChunk chunk_;
  int64_t cancel_at_;  // tokens; 0: never
  Traffic* traffic_;
};

ServeOptions with_scenario(ServeOptions o) {
  struct Values {
    int num_prompts, max_concurrency, input_len, output_len;
    double rate;
  };
  constexpr int kLongPrompt = 128 << 10;
  Values v = o.scenario == "long"    ? Values{10, 1, kLongPrompt, 128, 0}
             : o.scenario == "short" ? Values{1000, 0, 32, 32, 1000}
             : o.scenario == "mixed" ? Values{100, 0, kLongPrompt, 128, 1}
                                     : Values{100, 0, 256, 128, 0};
  if (o.num_prompts < 0) o.num_prompts = v.num_prompts;
  if (o.max_concurrency < 0) o.max_concurrency = v.max_concurrency;
  if (o.input_len < 0) o.input_len = v.input_len;
  if (o.output_len < 0) o.output_len = v.output_len;
  if (o.request_rate < 0) o.request_rate = v.rate;
  return o;
}

Result<std::vector<std::string>> lines_of(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) return invalid("--prompts-file " + path + " cannot be read, or is empty");
  return lines;
}

// Requests of one load, a function of its seed.
class Prompts {
 public:
  Prompts(const ServeOptions& o, const wire::ModelInfo& model, std::vector<std::string> lines)
      : o_(o), model_(model), lines_(std::move(lines)), rng_(o.seed) {
    for (int i = 0; i < o.n_prefixes && o.dataset == "prefix-repetition"; ++i)
      prefixes_.push_back(random_ids(std::min(o.prefix_len, fitting(o.input_len))));
  }

  wire::GenerateRequest make(int i) {
    wire::GenerateRequest r;
    if (o_.dataset == "prompts-file") {
      r.set_text(lines_[static_cast<size_t>(i) % lines_.size()]);
    } else {
      // Of ten mixed requests the last three are short ones.
      bool is_short = o_.scenario == "mixed" && i % 10 >= 7;
      int n = is_short ? 32 : fitting(o_.input_len);
      std::vector<uint32_t> ids;
      if (!prefixes_.empty()) ids = prefixes_[static_cast<size_t>(i) % prefixes_.size()];
      std::vector<uint32_t> rest =
          random_ids(n - static_cast<int>(std::min<size_t>(ids.size(), static_cast<size_t>(n))));
      ids.insert(ids.end(), rest.begin(), rest.end());
      ids.resize(static_cast<size_t>(n));
      r.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
    }
    r.mutable_stopping()->set_max_new_tokens(static_cast<uint32_t>(o_.output_len));
    r.mutable_stopping()->set_ignore_eos(true);
    r.mutable_sampling()->set_temperature(0);
    if (o_.speculation == "off") r.mutable_speculation()->set_mode(wire::Speculation::OFF);
    return r;
  }
  bool cancels() { return std::uniform_real_distribution<double>()(rng_) < o_.cancel_rate; }

 private:
  // The context holds prompt and answer.
  int fitting(int n) const {
    return std::max(1, std::min(n, static_cast<int>(model_.max_context()) - o_.output_len));
  }
  std::vector<uint32_t> random_ids(int n) {
    std::uniform_int_distribution<uint32_t> id(0, std::max(1u, model_.logits_width()) - 1);
    std::vector<uint32_t> ids(static_cast<size_t>(n));
    for (uint32_t& i : ids) i = id(rng_);
    return ids;
  }

  const ServeOptions& o_;
  const wire::ModelInfo& model_;
  std::vector<std::string> lines_;
  std::mt19937_64 rng_;
  std::vector<std::vector<uint32_t>> prefixes_;
};

// All requests at their times, as far as max_concurrency lets them; the last answer is in when it
// returns.
std::vector<RequestRecord> send_all(const ServeOptions& o, wire::Inference::Stub* stub,
                                    Prompts* prompts, double* duration_s) {
  std::vector<double> due = arrival_times(o.num_prompts, o.request_rate, o.burstiness, o.seed);
  std::vector<wire::GenerateRequest> requests;
  for (int i = 0; i < o.num_prompts; ++i) requests.push_back(prompts->make(i));
  Traffic traffic;
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 0; i < due.size(); ++i) {
    int64_t cancel_at = prompts->cancels() ? std::max(1, o.output_len / 2) : 0;
    calls.push_back(std::make_unique<Call>(std::move(requests[i]), due[i], cancel_at, &traffic));
    std::this_thread::sleep_for(std::chrono::duration<double>(due[i] - traffic.elapsed_s()));
    {
      std::unique_lock lock(traffic.mutex);
      traffic.changed.wait(
          lock, [&] { return o.max_concurrency == 0 || traffic.n_open < o.max_concurrency; });
      ++traffic.n_open;
    }
    calls.back()->start(stub);
  }
  std::unique_lock lock(traffic.mutex);
  traffic.changed.wait(lock, [&] { return traffic.n_open == 0; });
  *duration_s = traffic.elapsed_s();
  std::vector<RequestRecord> records;
  for (auto& call : calls) records.push_back(std::move(call->record));
  return records;
}

Status check_options(const ServeOptions& o) {
  if (o.num_prompts < 1) return invalid("--num-prompts must be 1 or more");
  if (o.output_len < 1 || o.input_len < 1)
    return invalid("--input-len and --output-len must be 1 or more");
  if (!(o.burstiness > 0)) return invalid("--burstiness must be above 0");
  if (!(o.cancel_rate >= 0 && o.cancel_rate <= 1))
    return invalid("--cancel-rate must be in [0, 1]");
  if ((o.dataset == "prompts-file") != !o.prompts_file.empty())
    return invalid("--dataset prompts-file and --prompts-file FILE go together");
  return {};
}

}  // namespace

Result<Report> bench_serve(const ServeOptions& asked) {
  ServeOptions o = with_scenario(asked);
  if (Status s = check_options(o); !s.ok()) return s;
  Result<Slo> slo = slo_of(o.goodput);
  if (!slo.ok()) return slo.status();
  std::vector<std::string> lines;
  if (o.dataset == "prompts-file") {
    Result<std::vector<std::string>> read = lines_of(o.prompts_file);
    if (!read.ok()) return read.status();
    lines = read.take();
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  auto channel = grpc::CreateCustomChannel(o.target, grpc::InsecureChannelCredentials(), arguments);
  auto stub = wire::Inference::NewStub(channel);
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  wire::ModelInfo model;
  grpc::Status status = stub->GetModelInfo(&context, {}, &model);
  if (!status.ok())
    return Status(Code::kUnavailable,
                  "--target " + o.target + " does not answer: " + status.error_message());
  Prompts prompts(o, model, std::move(lines));
  double duration_s = 0;
  std::vector<RequestRecord> records = send_all(o, stub.get(), &prompts, &duration_s);
  Report report("serve");
  report.head()["model_id"] = model.model();
  report.head()["scenario"] = o.scenario;
  report.head()["dataset"] = o.dataset;
  report.head()["num_prompts"] = o.num_prompts;
  report.head()["request_rate"] = o.request_rate > 0 ? Json(o.request_rate) : Json("inf");
  report.head()["burstiness"] = o.burstiness;
  report.head()["max_concurrency"] = o.max_concurrency > 0 ? Json(o.max_concurrency) : Json();
  report.head()["speculation"] = o.speculation;
  Json figures = serve_figures(records, duration_s, *slo);
  for (const auto& [key, value] : figures.items()) report.head()[key] = value;
  auto failed = std::find_if(records.begin(), records.end(),
                             [](const RequestRecord& r) { return !r.error.empty(); });
  report.head()["first_error"] = failed == records.end() ? Json() : Json(failed->error);
  return report;
}

}  // namespace pf
