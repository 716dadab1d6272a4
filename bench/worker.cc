#include <iostream>
#include <optional>
#include <sstream>

#include "bench/decode.h"
#include "bench/driver.h"
#include "bench/kernels.h"

namespace pf {
namespace {

constexpr size_t kProbeBytes = size_t{512} << 20;
constexpr int32_t kMostRows = 16;  // their blocks are fewer than those of one whole context
constexpr int32_t kMostSequences = 64;
constexpr int64_t kContext = 2048;

static_assert(kMostRows * (kStepContext / kStepBlock + 1) <= kContext / kStepBlock);

class Worker {
 public:
  explicit Worker(std::unique_ptr<Driver> driver) : driver_(std::move(driver)) {}

  // Throws what the JSON library throws when a field is missing or of another type.
  Json answer(const Json& request) {
    std::string op = request.at("op");
    if (op == "info") return info();
    if (op == "decode") return decode(request);
    if (op == "rows") return rows(request);
    if (op == "probe") return probe(request);
    return {{"error", "op is none of info, decode, rows, probe"}};
  }

 private:
  Json info() {
    const BackendInfo& i = driver_->target().info();
    return {{"dtype", i.dtype},
            {"device", i.device},
            {"bytes_per_step", i.bytes_per_step},
            {"threads", driver_->pool().size()}};
  }

  Json decode(const Json& request) {
    std::vector<std::vector<int32_t>> prompts = request.at("prompts");
    Result<DriverRun> run = driver_->run(prompts, request.at("n"), request.at("k"));
    if (!run.ok()) return {{"error", run.status().message()}};
    return {{"prefill_s", run->prefill_s}, {"decode_s", run->decode_s},   {"steps", run->n_steps},
            {"drafted", run->n_drafted},   {"accepted", run->n_accepted}, {"tokens", run->tokens}};
  }

  Json rows(const Json& request) {
    int32_t m = request.at("m");
    if (m < 1 || m > kMostRows) return {{"error", "m is not between 1 and 16"}};
    Load step = step_load(driver_->target(), m, 0);
    step();  // warms up
    return {{"step_s", 1 / timed(step, request)}};
  }

  Json probe(const Json& request) {
    if (!memory_) memory_.emplace(kProbeBytes);
    return {{"read_bytes_per_s", timed(read_probe(*memory_, driver_->pool()), request)}};
  }

  double timed(const Load& load, const Json& request) {
    double seconds = request.at("seconds");
    driver_->pool().begin();
    double rate = rate_of_slice(load, std::min(seconds, 1.0));
    driver_->pool().end();
    return rate;
  }

  std::unique_ptr<Driver> driver_;
  std::optional<ProbeMemory> memory_;  // made when it is asked for: it is no part of the engine's
};

}  // namespace

Status run_worker(const WorkerOptions& o) {
  EngineOptions e;
  e.model = o.model;
  if (!o.draft.empty()) e.drafts.push_back({"", o.draft});
  e.quantization = o.dtype == "bf16" ? "none" : o.dtype;
  e.threads = o.threads;
  e.num_speculative_tokens = o.num_speculative_tokens;
  e.max_num_seqs = kMostSequences;
  e.max_model_len = kContext;
  e.speculation.clear();
  std::istringstream names(o.speculation);
  for (std::string name; std::getline(names, name, ',');) e.speculation.push_back(name);
  Result<std::unique_ptr<Driver>> driver = Driver::create(e, usable_cpus());
  if (!driver.ok()) return driver.status();
  Worker worker(driver.take());
  for (std::string line; std::getline(std::cin, line);) {
    Json reply;
    try {
      reply = worker.answer(Json::parse(line));
    } catch (const nlohmann::json::exception& error) {
      reply = {{"error", error.what()}};
    }
    std::cout << reply.dump() << std::endl;
  }
  return {};
}

}  // namespace pf
