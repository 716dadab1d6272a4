// Products and attention at a model's shapes against the device's peaks.
#include <algorithm>
#include <cmath>

#include "backend/cuda/blas.h"
#include "backend/cuda/limits.h"
#include "device/bench.h"
#include "device/fill.h"
#include "device/synthetic.h"
#include "kernels/attention.h"

namespace pf {
namespace {

DeviceBuffer<f16> noise(int64_t n, uint64_t seed) {
  DeviceBuffer<f16> out(n);
  fill_noise(out.data(), n, seed, 1, nullptr);
  return out;
}

template <class T>
DeviceBuffer<T> sent(std::span<const T> values) {
  DeviceBuffer<T> out(std::max<int64_t>(1, static_cast<int64_t>(values.size())));
  if (!values.empty())
    cuda_check(cudaMemcpy(out.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice));
  return out;
}

struct Product {
  const char* name;
  int64_t N, K;
};

// A matrix in both forms, and rows for it. cublas: empty where it is not there.
void bench_product(const Product& p, const BenchSizes& sizes, const Blas& cublas,
                   BenchReport* report) {
  const CudaMatrix<f16> half = noise_matrix<f16>(p.N, p.K, false, 1),
                        four = noise_matrix<f16>(p.N, p.K, true, 3);
  const int64_t most = *std::max_element(sizes.rows.begin(), sizes.rows.end());
  const DeviceBuffer<f16> x = noise(most * p.K, 5), y(most * p.N);
  for (int64_t T : sizes.rows) {
    const View<f16, 2> out{y.data(), {T, p.N}};
    const View<const f16, 2> in{x.data(), {T, p.K}};
    const kernels::OutputBytes written{.written = 2 * T * p.N};
    const std::string shape = std::string(p.name) + " T=" + std::to_string(T) +
                              " N=" + std::to_string(p.N) + " K=" + std::to_string(p.K);
    double s = time_of([&] { multiply(out, in, half, {}, nullptr); }, nullptr, sizes.n_repeats);
    report->kernel("gemm_fp16", shape, s, kernels::gemm_fp16_cost(T, p.N, p.K, written));
    double s4 = time_of([&] { multiply(out, in, four, {}, nullptr); }, nullptr, sizes.n_repeats);
    report->kernel("gemm_int4", shape, s4, kernels::gemm_int4_cost(T, four.shape, written));
    if (!cublas) continue;
    const BlasProduct same{y.data(), x.data(), half.data.as(), T, p.N, p.K};
    double peer = time_of([&] { cublas(same, nullptr); }, nullptr, sizes.n_repeats);
    report->kernel("cublas fp16", shape, peer, kernels::gemm_fp16_cost(T, p.N, p.K, written));
    if (std::string(p.name) == "gate_up" && T <= 16)
      report->goal({"int4-over-cublas-" + std::to_string(T),
                    "INT4 product over cuBLAS FP16, T = " + std::to_string(T), peer / s4, 3.6});
  }
}

// Rows of one layer's attention: their plan and what the kernels read, on the device.
class AttentionBench {
 public:
  AttentionBench(int64_t H, int64_t G, int64_t D, int32_t P, int64_t n_blocks, int64_t n_rows)
      : H_(H),
        D_(D),
        n_thread_blocks_(n_attention_blocks(D, false, multiprocessors())),
        kv_(noise(n_blocks * 2 * G * P * D, 7)),
        plane_{kv_.data(), 1, n_blocks, G, P, D},
        q_(noise(n_rows * H * D, 9)),
        out_(n_rows * H * D),
        plan_({static_cast<int32_t>(H), static_cast<int32_t>(G), P, 0, kParts, n_thread_blocks_}),
        values_(kParts * H * D),
        states_(kParts * H * 2),
        tickets_(2 * kParts * G) {
    cuda_check(cudaMemset(tickets_.data(), 0, tickets_.bytes()));
  }

  // Seconds of the kernel, and its cost.
  double run(const kernels::AttentionRows& rows, int32_t n_repeats, kernels::LaunchCost* cost) {
    const auto T = static_cast<int64_t>(rows.positions.size());
    check(plan_.build(rows, 0) == T, "device_bench: one plan must hold the rows");
    const kernels::AttentionWork::Counts counts{static_cast<int32_t>(plan_.items().size()),
                                                plan_.unit_tokens()};
    const auto counts_at = sent<kernels::AttentionWork::Counts>({&counts, 1});
    const auto items = sent(plan_.items());
    const auto runs = sent(plan_.runs());
    const auto item_rows = sent(plan_.item_rows());
    const auto row_parts = sent(plan_.row_parts());
    const auto tables = sent(plan_.tables());
    const auto positions = sent(rows.positions);
    const auto masks = sent(rows.masks);
    const kernels::AttentionWork work{counts_at.data(), items.data(),     runs.data(),
                                      item_rows.data(), row_parts.data(), tables.data(),
                                      positions.data(), masks.data()};
    const kernels::AttentionParts parts{values_.data(), states_.data(), tickets_.data(), kParts};
    const float scale = 1 / std::sqrt(static_cast<float>(D_));
    *cost = kernels::attention_cost(plan_, T, T, H_, plane_.n_kv_heads, D_, kv_row_bytes(D_, false),
                                    n_thread_blocks_);
    return time_of(
        [&] {
          kernels::attention(View<f16, 3>{out_.data(), {T, H_, D_}}, parts,
                             View<const f16, 3>{q_.data(), {T, H_, D_}}, plane_, work, 0, scale,
                             n_thread_blocks_, nullptr);
        },
        nullptr, n_repeats);
  }

 private:
  static constexpr int64_t kParts = 4096;
  static int32_t multiprocessors() {
    int n = 0;
    cuda_check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, 0));
    return n;
  }

  int64_t H_, D_;
  int32_t n_thread_blocks_;
  DeviceBuffer<f16> kv_;
  kernels::KvPlane<f16> plane_;
  DeviceBuffer<f16> q_, out_;
  kernels::AttentionPlan plan_;
  DeviceBuffer<float> values_, states_;
  DeviceBuffer<uint32_t> tickets_;
};

// Sequences of one row each that see `context` tokens; `shared`: all through the same blocks.
struct RowSet {
  std::vector<int32_t> positions, visible;
  std::vector<uint64_t> masks;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<kernels::AttentionSegment> segments;

  RowSet(int32_t n, int64_t context, int32_t P, bool shared) {
    const auto each = static_cast<int32_t>((context + P - 1) / P);
    for (int32_t s = 0; s < n; ++s) {
      blocks.emplace_back();
      for (int32_t i = 0; i < each; ++i) blocks.back().push_back(i + (shared ? 0 : s * each));
      positions.push_back(static_cast<int32_t>(context) - 1);
      visible.push_back(static_cast<int32_t>(context));
      masks.push_back(0);
    }
    for (int32_t s = 0; s < n; ++s) segments.push_back({s, 1, blocks[static_cast<size_t>(s)]});
  }
  kernels::AttentionRows rows() const { return {positions, visible, masks, segments}; }
};

}  // namespace

void bench_products(const BenchSizes& sizes, BenchReport* report) {
  const ModelConfig& c = sizes.target;
  const int64_t E = c.width, F = c.ffn_width, D = c.head_width;
  Result<Blas> library = load_cublas();
  const Blas cublas = library.ok() ? library.take() : Blas{};
  report->line("products" + std::string(cublas ? "" : " (no cuBLAS here: its goals are left out)"));
  std::vector<Product> products = {{"qkv", (c.n_heads + 2 * c.n_kv_heads) * D, E},
                                   {"o", E, c.n_heads * D},
                                   {"gate_up", 2 * F, E},
                                   {"down", E, F}};
  for (const Product& p : products) bench_product(p, sizes, cublas, report);
}

void bench_attention(const BenchSizes& sizes, BenchReport* report) {
  const ModelConfig& c = sizes.target;
  const int32_t P = sizes.n_block_tokens;
  constexpr int32_t kBranches = 8, kSequences = 4;
  const int64_t n_blocks =
      std::max(kSequences * (sizes.long_context / P + 1), kBranches * (sizes.tree_prefix / P + 1));
  AttentionBench bench(c.n_heads, c.n_kv_heads, c.head_width, P, n_blocks, kBranches);
  report->line("attention, one layer");
  kernels::LaunchCost cost;
  for (int32_t n : {1, kSequences}) {
    const RowSet set(n, sizes.long_context, P, false);
    double s = bench.run(set.rows(), sizes.n_repeats, &cost);
    report->kernel("attention", std::to_string(n) + " x " + std::to_string(sizes.long_context), s,
                   cost);
    if (n > 1)
      report->goal({"attention-decode", "paged decode attention, share of the peak bandwidth",
                    static_cast<double>(cost.bytes()) / s / report->memory_bytes_per_s, 0.88});
  }
  const RowSet own(kBranches, sizes.tree_prefix, P, false),
      tree(kBranches, sizes.tree_prefix, P, true);
  double apart = bench.run(own.rows(), sizes.n_repeats, &cost);
  report->kernel("attention", "8 branches, a copy each", apart, cost);
  double together = bench.run(tree.rows(), sizes.n_repeats, &cost);
  report->kernel("attention", "8 branches, one prefix", together, cost);
  report->goal({"tree-sharing", "verification of 8 branches, shared prefix over copies",
                apart / together, 4.3});
}

}  // namespace pf
