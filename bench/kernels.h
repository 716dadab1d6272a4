#pragma once

#include <string>
#include <vector>

#include "backend/cpu/cpu_model.h"
#include "bench/bench_model.h"
#include "bench/measure.h"
#include "bench/probes.h"
#include "bench/report.h"

namespace pf {

struct KernelsOptions {
  std::vector<std::string> models = {"smollm2-135m", "tinyllama-1.1b"};
  std::vector<std::string> dtypes = {"bf16", "int8", "int4"};
  // "groups", INT4 groups of 128 beside blocks of 32, only where it is named.
  std::vector<std::string> parts = {"products", "attention", "rows",   "sampling", "step",
                                    "length",   "kv",        "growth", "messages"};
  std::vector<int> threads;
  std::vector<int> rows;  // m of the tables over m; empty: 1..16, and 512 of the products
  Protocol protocol;
  size_t probe_bytes = size_t{512} << 20;
  // Fewer shapes and row counts, and small sizes in the growth tables: a check that all of it runs.
  bool quick = false;
  std::string program;  // this one, which "messages" starts as a client
};

// What a model's keys and values are held in where they are not int8.
inline KvType plain_kv(const CpuModel& model) { return model.f32 ? KvType::kF32 : KvType::kBf16; }

// Every hot kernel of the CPU backend at the shapes of the models, beside the probes; whole steps;
// growth of the host's work. Errors say which model or flag is at fault.
Result<Report> bench_kernels(const KernelsOptions& options);

// A model in one dtype on one pool, and where its figures go.
struct KernelBench {
  std::string model, dtype;
  ThreadPool& pool;
  const ProbeMemory& memory;
  Protocol protocol;
  bool quick;
  std::vector<int> rows;  // as in KernelsOptions, but not empty
  Report* report;

  std::string at() const {  // behind the name of a goal
    return model + ", " + dtype + ", " + std::to_string(pool.size()) + "T";
  }
  std::string id(const std::string& goal) const {
    return goal + "." + dtype + "." + std::to_string(pool.size()) + "t@" + model;
  }
};

// Products of the layers by m, with T(m) / T(1); of each kind of matrix and of the head at some m.
void bench_products(KernelBench& bench, const CpuModel& model);
// The layers' products with INT4 weights in groups of 128 over those of the same weights in blocks
// of 32, by m.
void bench_groups(KernelBench& bench, const CpuModel& by_32, const CpuModel& by_128);
// Attention of one layer after the other: decode, verify, several sequences, a prompt's chunk.
void bench_attention(KernelBench& bench, const CpuModel& model);
// What is done row by row: norm, gate, RoPE with K and V into their slots, packing of activations.
void bench_rows(KernelBench& bench, const CpuModel& model);
// What makes tokens of logits: cuts, draws, the accept rules, a draft's list.
void bench_sampling(KernelBench& bench, const CpuModel& model);
// Backend::forward and accept: m sequences, and m rows of one sequence.
void bench_step(KernelBench& bench, Backend& backend);

// One step of m sequences behind kStepContext tokens each, or of one with a chain of n_nodes
// drafted: forward, head and accept rule, greedy; counts steps. Writes over the backend's blocks of
// kStepBlock tokens, from the first on. The backend outlives the load and has
// n_sequences * ((kStepContext + n_nodes) / kStepBlock + 1) blocks.
inline constexpr int32_t kStepContext = 64, kStepBlock = 16;
Load step_load(Backend& backend, int32_t n_sequences, int32_t n_nodes);

// Goals that speak of memory are judged only where the weights are far larger than the last cache.
bool is_past_cache(int64_t weight_bytes);

}  // namespace pf
