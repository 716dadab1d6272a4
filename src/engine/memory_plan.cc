#include "engine/memory_plan.h"

#include <algorithm>
#include <fstream>
#include <sstream>

#include "engine/memory_cure.h"
#include "sampling/draft_tree.h"

namespace pf {
namespace {

double bytes_per_weight(const std::string& type) {
  if (type == "fp32") return 4;
  if (type == "int8") return 1 + 2.0 / 32;    // a scale for each group of 32
  if (type == "int4") return 0.5 + 4.0 / 32;  // scale and minimum for each group of 32
  return 2;
}

// What is missing is rounded up, so that it is never 0.
std::string megabytes(int64_t bytes, bool up = false) {
  return std::to_string((bytes + (up ? (1 << 20) - 1 : 0)) >> 20) + " MB";
}

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

namespace {

// What is allowed, and why it is so little.
std::string allowed_bytes(const EngineOptions& options, const MemoryPlan& plan) {
  std::ostringstream text;
  text << megabytes(plan.budget_bytes) << " that --gpu-memory-utilization "
       << options.memory_utilization << " allows of " << megabytes(plan.available_bytes) << " free";
  return text.str();
}

// KV blocks that the budget has room for, those that are wanted, and what that means. A refusal is
// RESOURCE_EXHAUSTED where other flags could make room.
Status plan_blocks(const EngineOptions& options, int64_t block_bytes, MemoryPlan* plan) {
  auto refuse = [](const std::string& why) { return Status(Code::kResourceExhausted, why); };
  const int64_t P = options.block_size, need = plan->blocks_per_sequence;
  const int64_t fixed = plan->total_bytes(), left = plan->budget_bytes - fixed;
  const int64_t affordable = std::max<int64_t>(0, left) / block_bytes, most = INT32_MAX / P;
  const int64_t asked = options.kv_blocks;
  if (left < 0)
    return refuse("weights and scratch take " + megabytes(fixed) + ", which is " +
                  megabytes(-left, true) + " more than the " + allowed_bytes(options, *plan));
  if (asked > affordable)
    return refuse("--kv-blocks " + std::to_string(asked) + " needs " +
                  megabytes(asked * block_bytes) + ", but beside weights and scratch only " +
                  megabytes(left) + " are left of the " + allowed_bytes(options, *plan) + "; " +
                  std::to_string(affordable) + " blocks fit");
  if (asked > most)
    return invalid("--kv-blocks " + std::to_string(asked) + ": at most " + std::to_string(most) +
                   " of --block-size " + std::to_string(P));
  const int64_t n_blocks =
      asked > 0 ? asked : std::min({need * options.max_num_seqs, affordable, most});
  if (n_blocks < need) {
    std::string why = "one sequence of " + std::to_string(plan->max_context) + " tokens needs " +
                      std::to_string(need) + " KV blocks, ";
    if (asked > 0) return refuse(why + "more than --kv-blocks " + std::to_string(asked));
    return refuse(why + megabytes(need * block_bytes) + ", which is " +
                  megabytes((need - affordable) * block_bytes, true) +
                  " more than is left beside weights and scratch of the " +
                  allowed_bytes(options, *plan));
  }
  plan->n_blocks = static_cast<int32_t>(n_blocks);
  plan->affordable_blocks = affordable;
  plan->largest_context = std::max<int64_t>(0, (affordable - 1) * P - kMaxTreeNodes);
  return {};
}

}  // namespace

Result<MemoryPlan> lay_out_memory(const EngineOptions& options, const PlanDevice& device,
                                  std::vector<ResidentModel> residents) {
  const ModelConfig& target = residents[0].model->config;
  MemoryPlan plan;
  plan.available_bytes = device.available_bytes;
  plan.budget_bytes = static_cast<int64_t>(static_cast<double>(device.available_bytes) *
                                           options.memory_utilization);
  plan.max_context = options.max_model_len > 0 ? options.max_model_len : target.max_context;
  if (plan.max_context > target.max_context)
    return invalid("--max-model-len " + std::to_string(plan.max_context) +
                   " exceeds the model's context of " + std::to_string(target.max_context) +
                   " tokens; lower it");
  plan.blocks_per_sequence = (plan.max_context + kMaxTreeNodes) / options.block_size + 1;
  std::vector<int64_t> block_bytes;
  int64_t all_block_bytes = 0;
  Footprint other;  // of the target on another device
  for (ResidentModel& r : residents) {
    r.max_context = plan.max_context;
    block_bytes.push_back(0);
    if (r.device != device.device) continue;
    Footprint f = footprint(device.device, options, r, device.n_threads);
    plan.parts.push_back({"weights of the " + r.name + " (" + r.weights + ")", f.weight_bytes});
    plan.parts.push_back({"scratch of the " + r.name, f.scratch_bytes});
    if (f.graph_bytes > 0) plan.parts.push_back({"graphs of the " + r.name, f.graph_bytes});
    if (r.n_devices > 1) {
      plan.parts.push_back({"set aside for NCCL", f.collective_bytes});
      other = footprint(device.device, options, r, device.n_threads, 1);
    }
    if (r.n_window_blocks > 0)
      plan.parts.push_back({"windows of the " + r.name, r.n_window_blocks * f.kv_block_bytes});
    if (r.in_tables) all_block_bytes += block_bytes.back() = f.kv_block_bytes;
  }
  plan.kv_bytes_per_token = all_block_bytes / options.block_size;
  if (Status s = plan_blocks(options, all_block_bytes, &plan); !s.ok()) return s;
  for (size_t i = 0; i < residents.size(); ++i) {
    residents[i].n_blocks =
        (residents[i].in_tables ? plan.n_blocks : 0) + residents[i].n_window_blocks;
    if (block_bytes[i] > 0)
      plan.parts.push_back({"KV pool of the " + residents[i].name, plan.n_blocks * block_bytes[i]});
  }
  plan.other_device_bytes = other.weight_bytes + other.scratch_bytes + other.collective_bytes +
                            plan.n_blocks * other.kv_block_bytes;
  plan.residents = std::move(residents);
  return plan;
}

Result<MemoryPlan> plan_memory(const EngineOptions& options, const PlanDevice& device,
                               std::vector<ResidentModel> residents) {
  Result<MemoryPlan> plan = lay_out_memory(options, device, residents);
  if (plan.ok() || plan.status().code() != Code::kResourceExhausted) return plan;
  return Status(Code::kResourceExhausted,
                plan.status().message() + memory_cure(options, device, residents));
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
