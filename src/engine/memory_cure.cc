#include "engine/memory_cure.h"

#include <functional>

namespace pf {
namespace {

// The greatest n in [low, high] for which fits(n), or low - 1; what fits at n fits below it.
int64_t greatest(int64_t low, int64_t high, const std::function<bool(int64_t)>& fits) {
  int64_t best = low - 1;
  while (low <= high) {
    int64_t middle = low + (high - low) / 2;
    if (fits(middle))
      low = (best = middle) + 1;
    else
      high = middle - 1;
  }
  return best;
}

class Cures {
 public:
  Cures(const EngineOptions& options, const PlanDevice& device,
        const std::vector<ResidentModel>& residents)
      : options_(options), device_(device), residents_(residents) {}

  std::string text() {
    try_context();
    try_utilization();
    try_blocks();
    try_rows();
    try_weights();
    if (!cures_.empty()) return ": set " + cures_;
    return "; no flag makes room alone: take a smaller model, more memory, or lower "
           "--max-model-len, --max-num-batched-tokens and --max-num-seqs together";
  }

 private:
  void add(const std::string& cure) { cures_ += (cures_.empty() ? "" : ", or ") + cure; }

  bool fits(const EngineOptions& o, const std::vector<ResidentModel>& residents) const {
    return lay_out_memory(o, device_, residents).ok();
  }

  void try_context() {
    EngineOptions o = options_;
    const int64_t own = residents_[0].model->config.max_context;
    const int64_t n = greatest(1, o.max_model_len > 0 ? o.max_model_len : own, [&](int64_t tokens) {
      o.max_model_len = tokens;
      return fits(o, residents_);
    });
    if (n > 0) add("--max-model-len to " + std::to_string(n) + " or less");
  }

  // In hundredths; memory that all of it leaves short is no matter of the share.
  void try_utilization() {
    EngineOptions o = options_;
    const int64_t spared = greatest(0, 99, [&](int64_t hundredths) {
      o.memory_utilization = 1 - 0.01 * static_cast<double>(hundredths);
      return fits(o, residents_);
    });
    const int64_t share = 100 - spared;
    if (spared < 0 || 0.01 * static_cast<double>(share) <= options_.memory_utilization) return;
    const std::string digits = std::to_string(100 + share % 100).substr(1);
    add("--gpu-memory-utilization to " + (share == 100 ? "1" : "0." + digits) + " or more");
  }

  void try_blocks() {
    EngineOptions o = options_;
    if (o.kv_blocks == 0) return;
    o.kv_blocks = 0;
    Result<MemoryPlan> plan = lay_out_memory(o, device_, residents_);
    if (!plan.ok()) return;
    add(options_.kv_blocks < plan->blocks_per_sequence
            ? "--kv-blocks to " + std::to_string(plan->blocks_per_sequence) + " or more"
            : "--kv-blocks to " + std::to_string(plan->affordable_blocks) + " or less");
  }

  void try_rows() {
    std::vector<ResidentModel> residents = residents_;
    EngineOptions o = options_;
    const int64_t n = greatest(o.max_num_seqs, o.max_num_batched_tokens - 1, [&](int64_t rows) {
      o.max_num_batched_tokens = static_cast<int32_t>(rows);
      for (ResidentModel& r : residents) r.max_rows = o.max_num_batched_tokens;
      return fits(o, residents);
    });
    if (n >= o.max_num_seqs) add("--max-num-batched-tokens to " + std::to_string(n) + " or less");
  }

  void try_weights() {
    if (options_.quantization != "none") return;
    std::vector<ResidentModel> residents = residents_;
    EngineOptions o = options_;
    for (const char* type : {"int8", "int4"}) {
      o.quantization = type;
      if (!check_formats(o, device_.device).ok()) continue;
      residents[0].weights = type;
      if (!fits(o, residents)) continue;
      return add(std::string("--quantization to ") + type);
    }
  }

  const EngineOptions& options_;
  const PlanDevice& device_;
  const std::vector<ResidentModel>& residents_;
  std::string cures_;
};

}  // namespace

std::string memory_cure(const EngineOptions& options, const PlanDevice& device,
                        const std::vector<ResidentModel>& residents) {
  return Cures(options, device, residents).text();
}

}  // namespace pf
