#include "bench/kernels.h"

#include <algorithm>
#include <optional>

#include "bench/growth.h"
#include "bench/kv_rows.h"
#include "bench/length_rows.h"
#include "bench/message_rows.h"

namespace pf {
namespace {

bool wants(const KernelsOptions& o, const char* part) {
  return std::find(o.parts.begin(), o.parts.end(), part) != o.parts.end();
}

// One pool with the figures of its probes.
void report_probes(const ProbeMemory& memory, ThreadPool& pool, bool pinned,
                   const Protocol& protocol, Report* report) {
  Load read = read_probe(memory, pool), bf16 = bf16_probe(pool), int8 = int8_probe(pool);
  auto rate = [&](const Load& load) -> Json {
    if (!load) return nullptr;
    return 1e-9 * rate_of_probe(alternate(protocol, pool, load, {&load, 1})).median;
  };
  report->add("probes", {{"threads", pool.size()},
                         {"pinned", pinned},
                         {"read GB/s", rate(read)},
                         {"vdpbf16ps GFLOP/s", rate(bf16)},
                         {"vpdpbusd GFLOP/s", rate(int8)},
                         {"barrier ns", pool.size() > 1 ? Json(barrier_ns(pool)) : Json()}});
}

// INT4 weights in groups of 128 beside the blocks of 32 that the same file is to any reader. All
// blocks of a synthetic model have one scale.
Status compare_groups(KernelBench& bench, Model& model, CpuOptions options) {
  const int group = model.config.int4_group;
  const std::vector<std::string> made = synthetic_names();
  if (group != 128 && std::find(made.begin(), made.end(), bench.model) == made.end())
    return invalid(bench.model +
                   " has no groups of 128, which --part groups compares: write it anew with "
                   "`pilotfish quantize --group-size 128`");
  CpuModel packed[2];
  for (int i = 0; i < 2; ++i) {
    model.config.int4_group = i == 0 ? 32 : 128;
    packed[i].kernels = choose_kernels("");
    Status s = pack_model(model, nullptr, options, bench.pool, &packed[i]);
    model.config.int4_group = group;
    if (!s.ok()) return s.within(bench.model);
  }
  bench_groups(bench, packed[0], packed[1]);
  return {};
}

// Everything about one model in one dtype on all pools.
Status bench_model(const KernelsOptions& o, const std::string& name, const std::string& dtype,
                   const ProbeMemory& memory, std::vector<std::unique_ptr<ThreadPool>>& pools,
                   Report* report) {
  Result<CpuOptions::Weights> weights = weights_of(dtype);
  if (!weights.ok()) return weights.status();
  std::optional<Model> model;
  {
    Result<Model> opened = open_model(name, *weights);
    if (!opened.ok()) return opened.status();
    model = opened.take();
  }
  CpuOptions options;
  options.weights = *weights;
  options.n_blocks = 64 * (kStepContext / kStepBlock + 1);  // 64 sequences, or one with 64 nodes
  options.max_context = 256;
  options.max_rows = 64;
  for (std::unique_ptr<ThreadPool>& pool : pools) {
    KernelBench bench{short_name(name), dtype, *pool, memory, o.protocol, o.quick, o.rows, report};
    if (wants(o, "groups") && dtype == "int4")
      if (Status s = compare_groups(bench, *model, options); !s.ok()) return s;
    if (wants(o, "products") || wants(o, "attention") || wants(o, "rows") || wants(o, "sampling")) {
      CpuModel packed;
      packed.kernels = choose_kernels("");
      if (Status s = pack_model(*model, nullptr, options, *pool, &packed); !s.ok())
        return s.within(name);
      if (wants(o, "products")) bench_products(bench, packed);
      // K and V are bf16 whatever the products' dtype: once is enough.
      if (wants(o, "attention") && dtype == o.dtypes.front()) bench_attention(bench, packed);
      if (wants(o, "rows") && pool == pools.front()) bench_rows(bench, packed);
      // Logits are floats whatever they were made of.
      if (wants(o, "sampling") && pool == pools.front() && dtype == o.dtypes.front())
        bench_sampling(bench, packed);
    }
    if (!wants(o, "step") && !wants(o, "length")) continue;
    Result<std::unique_ptr<Backend>> backend = make_cpu_backend(*model, nullptr, options, *pool);
    if (!backend.ok()) return backend.status().within(name);
    if (wants(o, "step")) bench_step(bench, **backend);
    if (wants(o, "length")) bench_length(bench, **backend);
  }
  return {};
}

}  // namespace

Result<Report> bench_kernels(const KernelsOptions& asked) {
  KernelsOptions o = asked;
  if (o.rows.empty()) {
    o.rows = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 512};
    if (o.quick) o.rows = {1, 4, 8, 12, 512};
  }
  const bool models = wants(o, "products") || wants(o, "groups") || wants(o, "attention") ||
                      wants(o, "rows") || wants(o, "sampling") || wants(o, "step") ||
                      wants(o, "length");
  for (const std::string& model : models ? o.models : std::vector<std::string>{})
    if (Status s = check_model(model); !s.ok()) return s;
  Report report("kernels");
  report.head()["kernels"] = choose_kernels("")->name;
  report.head()["rounds"] = o.protocol.n_rounds;
  report.head()["slice_ms"] = 1e3 * o.protocol.slice_s;
  report.head()["quick"] = o.quick;
  ProbeMemory memory(o.probe_bytes);
  std::vector<int> cpus = usable_cpus();
  std::vector<std::unique_ptr<ThreadPool>> pools;
  for (int n : o.threads) {
    pools.push_back(std::make_unique<ThreadPool>(n));
    bool pinned = pin_threads(*pools.back(), cpus);
    report_probes(memory, *pools.back(), pinned, o.protocol, &report);
  }
  for (const std::string& model : models ? o.models : std::vector<std::string>{})
    for (const std::string& dtype : o.dtypes)
      if (Status s = bench_model(o, model, dtype, memory, pools, &report); !s.ok()) return s;
  if (wants(o, "kv")) bench_kv(&report);
  if (wants(o, "growth")) bench_growth(o.quick, &report);
  if (wants(o, "messages"))
    if (Status s = bench_messages(o.program, o.quick, &report); !s.ok()) return s;
  return report;
}

}  // namespace pf
