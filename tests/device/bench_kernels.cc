// Products and attention at a model's shapes against the device's peaks.
#include <algorithm>
#include <cmath>

#include "backend/cuda/blas.h"
#include "backend/cuda/limits.h"
#include "backend/cuda/multiprocessors.h"
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

// As many matrices of noise as leave none in the L2 for its next turn.
std::vector<CudaMatrix<f16>> cold_matrices(const Product& p, bool int4, const BenchSizes& sizes) {
  std::vector<CudaMatrix<f16>> out;
  out.push_back(noise_matrix<f16>(p.N, p.K, int4, 1));
  const int32_t n = copies_past_cache(out[0].bytes(), sizes);
  for (int32_t i = 1; i < n; ++i)
    out.push_back(noise_matrix<f16>(p.N, p.K, int4, static_cast<uint64_t>(i) + 1));
  return out;
}

// A matrix in both forms, and rows for it; ours and cuBLAS's products in turns. cublas: empty where
// it is not there.
void bench_product(const Product& p, const BenchSizes& sizes, const Blas& cublas,
                   BenchReport* report) {
  const std::vector<CudaMatrix<f16>> half = cold_matrices(p, false, sizes),
                                     four = cold_matrices(p, true, sizes);
  auto turn = [](const std::vector<CudaMatrix<f16>>& all, int32_t i) -> const CudaMatrix<f16>& {
    return all[static_cast<size_t>(i) % all.size()];
  };
  const int64_t most = *std::max_element(sizes.rows.begin(), sizes.rows.end());
  const DeviceBuffer<f16> x = noise(most * p.K, 5), y(most * p.N);
  for (int64_t T : sizes.rows) {
    const View<f16, 2> out{y.data(), {T, p.N}};
    const View<const f16, 2> in{x.data(), {T, p.K}};
    std::vector<BenchLaunch> launches = {
        [&](int32_t i) { multiply(out, in, turn(half, i), {}, nullptr); },
        [&](int32_t i) { multiply(out, in, turn(four, i), {}, nullptr); }};
    if (cublas)
      launches.push_back([&](int32_t i) {
        cublas({y.data(), x.data(), turn(half, i).data.as(), T, p.N, p.K}, nullptr);
      });
    const std::vector<double> s = times_of(launches, nullptr, sizes.n_repeats);
    const kernels::OutputBytes written{.written = 2 * T * p.N};
    const std::string shape = std::string(p.name) + " T=" + std::to_string(T) +
                              " N=" + std::to_string(p.N) + " K=" + std::to_string(p.K);
    report->kernel("gemm_fp16", shape, s[0], kernels::gemm_fp16_cost(T, p.N, p.K, written));
    report->kernel("gemm_int4", shape, s[1], kernels::gemm_int4_cost(T, four[0].shape, written));
    if (!cublas) continue;
    report->kernel("cublas fp16", shape, s[2], kernels::gemm_fp16_cost(T, p.N, p.K, written));
    if (std::string(p.name) == "gate_up" && T <= 16)
      report->goal({"int4-over-cublas-" + std::to_string(T),
                    "INT4 product over cuBLAS FP16, T = " + std::to_string(T), s[2] / s[1], 3.6});
  }
}

// Rows of one layer's attention: their plan and what the kernels read, on the device.
class AttentionBench {
 public:
  AttentionBench(int64_t H, int64_t G, int64_t D, int32_t P, int64_t n_blocks, int64_t n_rows)
      : H_(H),
        D_(D),
        n_thread_blocks_(kernels::n_attention_blocks(D, false, multiprocessors())),
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

  // One step's rows: what the kernel reads of them, on the device.
  struct Case {
    int64_t T = 0;
    DeviceBuffer<kernels::AttentionWork::Counts> counts;
    DeviceBuffer<kernels::AttentionItem> items;
    DeviceBuffer<kernels::AttentionRun> runs;
    DeviceBuffer<kernels::AttentionItemRow> item_rows;
    DeviceBuffer<kernels::AttentionRowParts> row_parts;
    DeviceBuffer<int32_t> tables, positions;
    DeviceBuffer<uint64_t> masks;
    kernels::LaunchCost cost;
  };
  Case make(const kernels::AttentionRows& rows) {
    Case c;
    c.T = static_cast<int64_t>(rows.positions.size());
    check(plan_.build(rows, 0) == c.T, "device_bench: one plan must hold the rows");
    const kernels::AttentionWork::Counts counts{static_cast<int32_t>(plan_.items().size()),
                                                plan_.unit_tokens()};
    c.counts = sent<kernels::AttentionWork::Counts>({&counts, 1});
    c.items = sent(plan_.items());
    c.runs = sent(plan_.runs());
    c.item_rows = sent(plan_.item_rows());
    c.row_parts = sent(plan_.row_parts());
    c.tables = sent(plan_.tables());
    c.positions = sent(rows.positions);
    c.masks = sent(rows.masks);
    c.cost = kernels::attention_cost(plan_, c.T, c.T, H_, plane_.n_kv_heads, D_,
                                     kv_row_bytes(D_, false), n_thread_blocks_);
    return c;
  }

  void launch(const Case& c) const {
    const kernels::AttentionWork work{c.counts.data(),    c.items.data(),     c.runs.data(),
                                      c.item_rows.data(), c.row_parts.data(), c.tables.data(),
                                      c.positions.data(), c.masks.data()};
    const kernels::AttentionParts parts{values_.data(), states_.data(), tickets_.data(), kParts};
    kernels::attention(View<f16, 3>{out_.data(), {c.T, H_, D_}}, parts,
                       View<const f16, 3>{q_.data(), {c.T, H_, D_}}, plane_, work, 0,
                       1 / std::sqrt(static_cast<float>(D_)), n_thread_blocks_, nullptr);
  }
  // Seconds of each kernel, in turns.
  std::vector<double> run(const std::vector<const Case*>& cases, int32_t n_repeats) const {
    std::vector<BenchLaunch> launches;
    for (const Case* c : cases) launches.push_back([this, c](int32_t) { launch(*c); });
    return times_of(launches, nullptr, n_repeats);
  }

 private:
  static constexpr int64_t kParts = 4096;

  int64_t H_, D_;
  int32_t n_thread_blocks_;
  DeviceBuffer<f16> kv_;
  kernels::KvPlane<f16> plane_;
  DeviceBuffer<f16> q_, out_;
  kernels::AttentionPlan plan_;
  DeviceBuffer<float> values_, states_;
  DeviceBuffer<uint32_t> tickets_;
};

// The rows of a step, `context` tokens in front of each.
struct RowSet {
  std::vector<int32_t> positions, visible;
  std::vector<uint64_t> masks;
  std::vector<std::vector<int32_t>> blocks;
  std::vector<kernels::AttentionSegment> segments;

  // One token behind them, of n sequences with blocks of their own.
  static RowSet sequences(int32_t n, int64_t context, int32_t P) {
    RowSet set;
    const auto each = static_cast<int32_t>(context / P + 1);
    for (int32_t s = 0; s < n; ++s) {
      set.add(s * each, each);
      set.positions.push_back(static_cast<int32_t>(context));
      set.visible.push_back(static_cast<int32_t>(context) + 1);
      set.masks.push_back(0);
    }
    for (int32_t s = 0; s < n; ++s)
      set.segments.push_back({s, 1, set.blocks[static_cast<size_t>(s)]});
    return set;
  }
  // n branches of one sequence's tree, each of one node: its mask has its own bit.
  static RowSet tree(int32_t n, int64_t context, int32_t P) {
    RowSet set;
    set.add(0, static_cast<int32_t>((context + n - 1) / P + 1));
    for (int32_t i = 0; i < n; ++i) {
      set.positions.push_back(static_cast<int32_t>(context));
      set.visible.push_back(static_cast<int32_t>(context));
      set.masks.push_back(uint64_t{1} << i);
    }
    set.segments.push_back({0, n, set.blocks[0]});
    return set;
  }
  void add(int32_t first, int32_t n) {
    blocks.emplace_back();
    for (int32_t i = 0; i < n; ++i) blocks.back().push_back(first + i);
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
  for (int32_t n : {1, kSequences}) {
    const AttentionBench::Case c = bench.make(RowSet::sequences(n, sizes.long_context, P).rows());
    const double s = bench.run({&c}, sizes.n_repeats)[0];
    report->kernel("attention", std::to_string(n) + " x " + std::to_string(sizes.long_context), s,
                   c.cost);
    if (n > 1)
      report->goal({"attention-decode", "paged decode attention, share of the peak bandwidth",
                    static_cast<double>(c.cost.bytes()) / s / report->memory_bytes_per_s, 0.88});
  }
  const AttentionBench::Case copies = bench.make(
                                 RowSet::sequences(kBranches, sizes.tree_prefix, P).rows()),
                             tree =
                                 bench.make(RowSet::tree(kBranches, sizes.tree_prefix, P).rows());
  const std::vector<double> s = bench.run({&copies, &tree}, sizes.n_repeats);
  report->kernel("attention", "8 branches, a copy each", s[0], copies.cost);
  report->kernel("attention", "8 branches, one prefix", s[1], tree.cost);
  report->goal(
      {"tree-sharing", "verification of 8 branches, shared prefix over copies", s[0] / s[1], 4.3});
}

}  // namespace pf
