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

namespace {

// KV blocks that the budget has room for, those that are wanted, and what that means.
Status plan_blocks(const EngineOptions& options, int64_t block_bytes, int64_t left,
                   MemoryPlan* plan) {
  const int64_t P = options.block_size, need = plan->blocks_per_sequence;
  const int64_t affordable = std::max<int64_t>(0, left) / block_bytes;
  int64_t wanted = options.kv_blocks > 0 ? options.kv_blocks : need * options.max_num_seqs;
  int64_t n_blocks = options.kv_blocks > 0 ? wanted : std::min(wanted, affordable);
  n_blocks = std::min<int64_t>(n_blocks, INT32_MAX / std::max<int64_t>(1, P));
  auto context_of = [&](int64_t blocks) {
    return std::max<int64_t>(0, (blocks - 1) * P - kMaxTreeNodes);
  };
  if (n_blocks > affordable)
    return invalid("--kv-blocks " + std::to_string(n_blocks) + " needs " +
                   megabytes(n_blocks * block_bytes) + ", but only " +
                   megabytes(std::max<int64_t>(0, left)) + " are left beside the weights; " +
                   std::to_string(affordable) + " blocks fit");
  if (n_blocks < need)
    return invalid("the KV cache of " + std::to_string(n_blocks) +
                   " blocks cannot hold one sequence of " + std::to_string(plan->max_context) +
                   " tokens (" + std::to_string(need) + " blocks): set --max-model-len to " +
                   std::to_string(context_of(n_blocks)) + " or less" +
                   (options.kv_blocks > 0 ? ", or raise --kv-blocks" : ", or give it more memory"));
  plan->n_blocks = static_cast<int32_t>(n_blocks);
  plan->affordable_blocks = affordable;
  plan->largest_context = context_of(affordable);
  return {};
}

}  // namespace

Result<MemoryPlan> plan_memory(const EngineOptions& options, const PlanDevice& device,
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
  if (Status s =
          plan_blocks(options, all_block_bytes, plan.budget_bytes - plan.total_bytes(), &plan);
      !s.ok())
    return s;
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
