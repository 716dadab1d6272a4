#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>

#include "sampling/draft_tree.h"

namespace pf {
namespace {

double bytes_per_weight(const std::string& type) {
  if (type == "fp32") return 4;
  if (type == "int8") return 1 + 2.0 / 32;    // a scale for each group of 32
  if (type == "int4") return 0.5 + 4.0 / 32;  // scale and minimum for each group of 32
  return 2;
}

int64_t kv_bytes(const ModelConfig& c, bool fp32) {
  return c.n_layers * 2 * c.n_kv_heads * c.head_width * (fp32 ? 4 : 2);
}

std::string megabytes(int64_t bytes) { return std::to_string(bytes >> 20) + " MB"; }

int64_t read_number(const char* path, int64_t otherwise) {
  std::ifstream in(path);
  int64_t value = 0;
  return in >> value ? value : otherwise;
}

}  // namespace

int64_t MemoryPlan::total_bytes() const {
  int64_t total = 0;
  for (const Part& p : parts) total += p.bytes;
  return total;
}

int64_t packed_bytes(const Model& model, const std::string& type) {
  int64_t n = 0;
  for (const Tensor* t : all_tensors(model)) n += t->rows() * t->cols();
  return static_cast<int64_t>(static_cast<double>(n) * bytes_per_weight(type));
}

Result<MemoryPlan> plan_memory(const EngineOptions& options, const Model& target,
                               std::span<const PlannedDraft> drafts, int64_t available_bytes) {
  bool fp32 = options.dtype == "fp32";
  std::string type = options.quantization != "none" ? options.quantization : fp32 ? "fp32" : "bf16";
  std::string draft_type =
      options.draft_quantization != "none" ? options.draft_quantization : "bf16";
  MemoryPlan plan;
  plan.available_bytes = available_bytes;
  plan.parts.push_back({"weights of the target (" + type + ")", packed_bytes(target, type)});
  plan.kv_bytes_per_token = kv_bytes(target.config, fp32);
  for (const PlannedDraft& draft : drafts) {
    const Model& m = *draft.model;
    plan.parts.push_back({std::string("weights of the draft ") +
                              (m.takes_hidden() ? "head (" : "model (") + draft_type + ")",
                          packed_bytes(m, draft_type)});
    int64_t per_token = kv_bytes(m.config, fp32);
    if (draft.in_tables) plan.kv_bytes_per_token += per_token;
    if (draft.n_window_blocks > 0)
      plan.parts.push_back({"windows of the draft model",
                            int64_t{draft.n_window_blocks} * options.block_size * per_token});
  }
  plan.max_context = options.max_model_len > 0 ? options.max_model_len : target.config.max_context;
  if (plan.max_context > target.config.max_context)
    return invalid("--max-model-len " + std::to_string(plan.max_context) +
                   " exceeds the model's context of " + std::to_string(target.config.max_context) +
                   " tokens; lower it");

  int64_t block_bytes = plan.kv_bytes_per_token * options.block_size;
  for (const PlannedDraft& draft : drafts)  // a head keeps a hidden state for every block
    block_bytes += draft.model->hidden_width() * static_cast<int64_t>(sizeof(float));
  int64_t per_sequence = (plan.max_context + kMaxTreeNodes) / options.block_size + 1;
  int64_t budget =
      static_cast<int64_t>(static_cast<double>(available_bytes) * options.memory_utilization) -
      plan.total_bytes();
  int64_t affordable = std::max<int64_t>(0, budget / block_bytes);
  int64_t wanted = options.kv_blocks > 0 ? options.kv_blocks : per_sequence * options.max_num_seqs;
  int64_t n_blocks = options.kv_blocks > 0 ? wanted : std::min(wanted, affordable);
  n_blocks = std::min<int64_t>(n_blocks, INT32_MAX / std::max(1, options.block_size));
  if (n_blocks > affordable)
    return invalid("--kv-blocks " + std::to_string(n_blocks) + " needs " +
                   megabytes(n_blocks * block_bytes) + ", but only " +
                   megabytes(std::max<int64_t>(0, budget)) + " are left beside the weights; " +
                   std::to_string(affordable) + " blocks fit");
  if (n_blocks < per_sequence) {
    int64_t fits = std::max<int64_t>(0, (n_blocks - 1) * options.block_size - kMaxTreeNodes);
    return invalid("the KV cache of " + std::to_string(n_blocks) +
                   " blocks cannot hold one sequence of " + std::to_string(plan.max_context) +
                   " tokens (" + std::to_string(per_sequence) +
                   " blocks): set --max-model-len to " + std::to_string(fits) + " or less" +
                   (options.kv_blocks > 0 ? ", or raise --kv-blocks" : ", or give it more memory"));
  }
  plan.n_blocks = static_cast<int32_t>(n_blocks);
  plan.parts.push_back({"KV cache", n_blocks * block_bytes});
  return plan;
}

int64_t available_memory_bytes() {
  int64_t bytes = INT64_MAX;
  std::ifstream meminfo("/proc/meminfo");
  for (std::string key, rest; meminfo >> key; std::getline(meminfo, rest))
    if (int64_t kb = 0; key == "MemAvailable:" && meminfo >> kb) bytes = kb * 1024;
  int64_t limit = read_number("/sys/fs/cgroup/memory.max", INT64_MAX);  // "max" is no number
  if (limit != INT64_MAX)
    bytes = std::min(bytes,
                     std::max<int64_t>(0, limit - read_number("/sys/fs/cgroup/memory.current", 0)));
  return bytes;
}

}  // namespace pf
