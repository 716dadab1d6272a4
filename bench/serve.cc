#include "bench/serve.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <memory>
#include <mutex>
#include <thread>

#include "bench/measure.h"
#include "bench/serve_compare.h"
#include "bench/serve_page.h"
#include "bench/serve_prompts.h"
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
      record.message_tokens.push_back(chunk_.num_tokens());
      if (record.n_tokens == 0) record.first_s = record.message_s.back();
      record.n_tokens += chunk_.num_tokens();
      if (cancel_at_ > 0 && record.n_tokens >= cancel_at_) context_.TryCancel();
    }
    if (chunk_.has_finish()) take(chunk_.finish().speculation());
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
  void take(const wire::SpeculationStats& s) {
    record.n_rounds = s.rounds();
    record.n_drafts = 0;
    for (const auto& [drafter, n] : s.rounds_per_drafter()) record.n_drafts += n;
    record.n_drafted = s.drafted_tokens();
    record.n_accepted = s.accepted_tokens();
    record.drafted_at.assign(s.drafted_per_position().begin(), s.drafted_per_position().end());
    record.accepted_at.assign(s.accepted_per_position().begin(), s.accepted_per_position().end());
    record.alpha = s.last_alpha();
  }

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
  bool sonnet = o.dataset == "sonnet";  // its lengths are those of vllm bench serve
  constexpr int kLongPrompt = 128 << 10;
  Values v = o.scenario == "long"    ? Values{10, 1, kLongPrompt, 128, 0}
             : o.scenario == "short" ? Values{1000, 0, 32, 32, 1000}
             : o.scenario == "mixed" ? Values{100, 0, kLongPrompt, 128, 1}
             : sonnet                ? Values{100, 0, 550, 150, 0}
                                     : Values{100, 0, 256, 128, 0};
  if (o.num_prompts < 0) o.num_prompts = v.num_prompts;
  if (o.max_concurrency < 0) o.max_concurrency = v.max_concurrency;
  if (o.input_len < 0) o.input_len = v.input_len;
  if (o.output_len < 0) o.output_len = v.output_len;
  if (o.request_rate < 0) o.request_rate = v.rate;
  if (o.prefix_len < 0) o.prefix_len = sonnet ? 200 : 256;
  return o;
}

struct LoadRun {
  std::vector<RequestRecord> records;
  double duration_s = 0;
};

std::vector<double> due_times(const ServeOptions& o) {
  if (o.ramp.empty()) return arrival_times(o.num_prompts, o.request_rate, o.burstiness, o.seed);
  Ramp ramp = *ramp_of(o.ramp);  // checked
  return ramp_times(o.num_prompts, ramp.from, ramp.to, o.burstiness, o.seed);
}

// All requests at their times, as far as max_concurrency lets them; the last answer is in when it
// returns.
LoadRun send_all(const ServeOptions& o, wire::Inference::Stub* stub, ServePrompts prompts,
                 bool speculation) {
  std::vector<double> due = due_times(o);
  std::vector<wire::GenerateRequest> requests;
  for (int i = 0; i < o.num_prompts; ++i) requests.push_back(prompts.make(i, speculation));
  Traffic traffic;
  std::vector<std::unique_ptr<Call>> calls;
  for (size_t i = 0; i < due.size(); ++i) {
    int64_t cancel_at = prompts.cancels() ? std::max(1, o.output_len / 2) : 0;
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
  LoadRun run;
  run.duration_s = traffic.elapsed_s();
  for (auto& call : calls) run.records.push_back(std::move(call->record));
  return run;
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
  if (o.dataset == "sonnet" && o.prefix_len >= o.input_len)
    return invalid("--dataset sonnet needs a --prefix-len below --input-len");
  if (!o.ramp.empty() && o.request_rate > 0)
    return invalid("--ramp and --request-rate exclude each other; a scenario may set the rate");
  if (o.compare > 0 && o.speculation == "off")
    return invalid("--compare sends the load both ways; leave --speculation away");
  Result<Ramp> ramp = ramp_of(o.ramp);
  return o.ramp.empty() || ramp.ok() ? Status() : ramp.status();
}

// The lines that prompts are made of, with their lengths where these are needed.
Result<std::vector<CountedLine>> counted_lines(const ServeOptions& o, wire::Inference::Stub* stub) {
  std::vector<CountedLine> counted;
  bool sonnet = o.dataset == "sonnet";
  if (!sonnet && o.dataset != "prompts-file") return counted;
  Result<std::vector<std::string>> lines = sonnet ? lines_of("--sonnet-file", o.sonnet_file)
                                                  : lines_of("--prompts-file", o.prompts_file);
  if (!lines.ok()) return lines.status();
  if (sonnet) lines->insert(lines->begin(), kSonnetTask);
  for (std::string& text : *lines) {
    CountedLine line;
    if (sonnet) {
      grpc::ClientContext context;
      wire::TokenizeRequest request;
      wire::TokenizeResponse response;
      request.set_text(text + "\n");
      request.set_add_special_tokens(false);
      grpc::Status status = stub->Tokenize(&context, request, &response);
      if (!status.ok())
        return Status(Code::kUnavailable,
                      "the server does not tokenise: " + status.error_message());
      line.n_tokens = response.ids_size();
    }
    line.text = std::move(text);
    counted.push_back(std::move(line));
  }
  return counted;
}

void describe(const ServeOptions& o, const wire::ModelInfo& model, Json* head) {
  (*head)["model_id"] = model.model();
  (*head)["scenario"] = o.scenario;
  (*head)["dataset"] = o.dataset;
  (*head)["num_prompts"] = o.num_prompts;
  (*head)["request_rate"] = !o.ramp.empty()      ? Json(o.ramp)
                            : o.request_rate > 0 ? Json(o.request_rate)
                                                 : Json("inf");
  (*head)["burstiness"] = o.burstiness;
  (*head)["max_concurrency"] = o.max_concurrency > 0 ? Json(o.max_concurrency) : Json();
  (*head)["speculation"] = o.speculation;
}

// What is asked for and cannot be is refused; a scenario's own prompt is cut to what the context
// holds beside the answer, aloud.
Status fit_lengths(const ServeOptions& asked, const wire::ModelInfo& model, ServeOptions* o,
                   Json* head) {
  const int64_t context = model.max_context();
  const int64_t room = context - o->output_len;
  const std::string holds = "the server's context holds " + std::to_string(context) + " tokens";
  if (room < 1)
    return invalid("--output-len " + std::to_string(o->output_len) + ": " + holds +
                   ", prompt and answer together; ask for less");
  (*head)["output_len"] = o->output_len;
  if (o->dataset == "prompts-file") return {};
  (*head)["input_len_asked"] = o->input_len;
  if (o->input_len > room && (asked.input_len >= 0 || o->scenario == "custom"))
    return invalid("--input-len " + std::to_string(o->input_len) + " and --output-len " +
                   std::to_string(o->output_len) + ": " + holds + "; ask for less");
  if (o->input_len > room) {
    std::fprintf(stderr,
                 "pilotfish-bench: warning: scenario %s asks for prompts of %d tokens, but %s: "
                 "those of %lld are sent\n",
                 o->scenario.c_str(), o->input_len, holds.c_str(), static_cast<long long>(room));
    o->input_len = static_cast<int>(room);
  }
  (*head)["input_len"] = o->input_len;
  return {};
}

// Answers that ended before the tokens that were asked for: nothing else ends one here.
int64_t n_cut(const ServeOptions& o, const LoadRun& run) {
  return std::count_if(run.records.begin(), run.records.end(), [&](const RequestRecord& r) {
    return r.outcome == RequestRecord::Outcome::kCompleted && r.n_tokens < o.output_len;
  });
}

void warn_of(const Json& figures, size_t n_requests) {
  const auto failed = figures.at("failed").get<int64_t>(),
             cut = figures.at("cut_answers").get<int64_t>();
  if (failed > 0)
    std::fprintf(stderr, "pilotfish-bench: warning: %lld of %zu requests failed, the first: %s\n",
                 static_cast<long long>(failed), n_requests,
                 figures.at("first_error").get<std::string>().c_str());
  if (cut > 0)
    std::fprintf(stderr,
                 "pilotfish-bench: warning: %lld answers have fewer tokens than --output-len: the "
                 "server's limits cut them\n",
                 static_cast<long long>(cut));
}

Json figures_of(const ServeOptions& o, const LoadRun& run, const Slo& slo) {
  Json figures = serve_figures(run.records, run.duration_s, slo);
  if (o.cost_per_hour > 0) figures.update(cost_figures(figures, o.cost_per_hour));
  auto failed = std::find_if(run.records.begin(), run.records.end(),
                             [](const RequestRecord& r) { return !r.error.empty(); });
  figures["cut_answers"] = n_cut(o, run);
  figures["first_error"] = failed == run.records.end() ? Json() : Json(failed->error);
  return figures;
}

}  // namespace

Result<Report> bench_serve(const ServeOptions& asked) {
  ServeOptions o = with_scenario(asked);
  if (Status s = check_options(o); !s.ok()) return s;
  Result<Slo> slo = slo_of(o.goodput);
  if (!slo.ok()) return slo.status();
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
  Result<std::vector<CountedLine>> lines = counted_lines(o, stub.get());
  if (!lines.ok()) return lines.status();
  Report report("serve");
  describe(o, model, &report.head());
  if (Status s = fit_lengths(asked, model, &o, &report.head()); !s.ok()) return s;
  LoadRun run;
  std::vector<Json> loads;
  int64_t n_failed = 0;
  int n_loads = o.compare > 0 ? 2 * o.compare + 1 : 1;
  for (int i = 0; i < n_loads; ++i) {
    bool speculation = o.compare > 0 ? i % 2 == 1 : o.speculation != "off";
    LoadRun sent = send_all(o, stub.get(), ServePrompts(o, model, *lines, i), speculation);
    loads.push_back(figures_of(o, sent, *slo));
    warn_of(loads.back(), sent.records.size());
    n_failed += loads.back().at("failed").get<int64_t>();
    if (speculation || n_loads == 1) run = std::move(sent);
  }
  Json figures = figures_of(o, run, *slo);
  for (const auto& [key, value] : figures.items()) report.head()[key] = value;
  if (o.compare > 0) {
    report.head()["failed_in_all_loads"] = n_failed;
    for (Json& line : compare_lines(loads)) report.add("speculation on over off", std::move(line));
  }
  if (!o.ramp.empty())
    for (Json& line : ramp_lines(run.records)) report.add("ramp", std::move(line));
  if (Status s = write_serve_page(o.html, report.head(), run.records); !s.ok()) return s;
  return report;
}

}  // namespace pf
