#include <algorithm>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <utility>

#include "bench/kernels.h"

namespace pf {
namespace {

using Matrices = std::vector<const PackedMatrix*>;

// As the kernel says it; the C library speaks of the host's cache where a machine has a part.
int64_t cache_bytes(int level, int64_t otherwise) {
  std::ifstream file("/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(level) + "/size");
  int64_t kib = 0;
  return file >> kib ? kib << 10 : otherwise;
}

int64_t bytes_of(const Matrices& matrices) {
  int64_t bytes = 0;
  for (const PackedMatrix* w : matrices) bytes += w->bytes();
  return bytes;
}

double flops_of(const Matrices& matrices, int64_t m) {
  double flops = 0;
  for (const PackedMatrix* w : matrices)
    flops += 2.0 * static_cast<double>(m * w->n) * static_cast<double>(w->k);
  return flops;
}

// m rows times one matrix after the other, on and on; counts bytes of weights. The matrices stand
// in memory one behind another, so that those of a model larger than the cache come from memory.
class Product {
 public:
  Product(const CpuKernels& kernels, Matrices matrices, int64_t m, size_t piece)
      : kernels_(kernels), matrices_(std::move(matrices)), m_(m), piece_(piece) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    int64_t widest = 0;
    for (const PackedMatrix* w : matrices_) {
      widest = std::max(widest, w->n);
      if (rows_.contains({w->k, w->format})) continue;
      Buffer packed(static_cast<size_t>(packed_rows_bytes(w->format, w->n_steps, m)));
      std::vector<float> x(static_cast<size_t>(w->k));
      for (int64_t r = 0; r < m; ++r) {
        for (float& v : x) v = normal(rng);
        pack_activation(kernels, *w, x.data(), r, m, packed.as());
      }
      rows_[{w->k, w->format}] = std::move(packed);
    }
    width_ = widest;
    out_ = Buffer(static_cast<size_t>(m * widest) * sizeof(float));
  }

  double run(ThreadPool& pool) {
    size_t end = std::min(next_ + piece_, matrices_.size());
    double bytes = 0;
    for (size_t i = next_; i < end; ++i) bytes += static_cast<double>(matrices_[i]->bytes());
    // Neighbouring products take turns in two shares, as in the forward pass: while one is in use,
    // the other is wound back.
    WorkShare shares[] = {WorkShare(pool.size()), WorkShare(pool.size())};
    pool.run([&](int thread) {
      for (size_t i = next_; i < end; ++i) {
        const PackedMatrix* w = matrices_[i];
        multiply(kernels_,
                 {w, rows_.at({w->k, w->format}).as(), m_, out_.as<float>(), width_, false},
                 &shares[i % 2], thread);
        pool.barrier().wait();
        if (thread == 0) shares[i % 2].reset();
      }
    });
    next_ = end == matrices_.size() ? 0 : end;
    return bytes;
  }

 private:
  const CpuKernels& kernels_;
  Matrices matrices_;
  int64_t m_, width_ = 0;
  size_t piece_, next_ = 0;                                  // matrices of one piece
  std::map<std::pair<int64_t, WeightFormat>, Buffer> rows_;  // by k and format
  Buffer out_;
};

Load product_load(const KernelBench& bench, const CpuModel& model, const Matrices& matrices,
                  int64_t m) {
  size_t piece = m <= 16 ? 4 : 1;
  auto product = std::make_shared<Product>(*model.kernels, matrices, m, piece);
  return [product, &pool = bench.pool] { return product->run(pool); };
}

struct Figures {
  Kept read, alu, slower;  // share of the read probe, of the ALU probe, T(m) / T(1)
  double bytes_per_s = 0;
};

Figures measure(KernelBench& bench, const CpuModel& model, const Matrices& matrices, int64_t m) {
  Figures f;
  Load one = product_load(bench, model, matrices, 1),
       many = product_load(bench, model, matrices, m);
  std::vector<Load> subjects = {one, many};
  auto rounds =
      alternate(bench.protocol, bench.pool, read_probe(bench.memory, bench.pool), subjects);
  f.read = share_of_probe(rounds, 1);
  f.slower = ratio_of_subjects(rounds, 0, 1);
  f.bytes_per_s = rate_of_subject(rounds, 1).median;
  Load alu = bench.dtype == "bf16"   ? bf16_probe(bench.pool)
             : bench.dtype == "fp32" ? Load{}
                                     : int8_probe(bench.pool);
  if (m < 8 || !alu) return f;
  // The subject counts bytes; the probe FLOPs.
  double flops_per_byte = flops_of(matrices, m) / static_cast<double>(bytes_of(matrices));
  std::vector<Load> flops = {[many, flops_per_byte] { return many() * flops_per_byte; }};
  f.alu = share_of_probe(alternate(bench.protocol, bench.pool, alu, flops), 0);
  return f;
}

void add_line(KernelBench& bench, const std::string& what, const Matrices& matrices, int64_t m,
              const Figures& f) {
  double bytes = static_cast<double>(bytes_of(matrices)), flops = flops_of(matrices, m);
  double seconds = f.bytes_per_s > 0 ? bytes / f.bytes_per_s : NAN;
  bench.report->add("products", {{"matrices", what},
                                 {"model", bench.model},
                                 {"dtype", bench.dtype},
                                 {"threads", bench.pool.size()},
                                 {"m", m},
                                 {"us", or_null(1e6 * seconds)},
                                 {"MB", 1e-6 * bytes},
                                 {"MFLOP", 1e-6 * flops},
                                 {"of read", to_json(f.read)},
                                 {"of ALU", to_json(f.alu)},
                                 {"T(m)/T(1)", to_json(f.slower)}});
}

void judge(KernelBench& bench, int64_t m, const Figures& f) {
  auto add = [&](const char* id, const char* name, double value, double goal, bool at_least) {
    bench.report->add(
        Goal{bench.id(id), std::string(name) + ", " + bench.at(), value, goal, at_least});
  };
  bool four = bench.dtype == "int4", floats = bench.dtype == "bf16";
  double slower = f.slower.median(), alu = f.alu.median(), read = f.read.median();
  if (m == 1 && four)
    add("C2.products", "products alone over the read probe, m = 1", read, 0.90, true);
  if (m == 4 && (four || floats))
    add("C3.T4", "products, T(4) / T(1)", slower, four ? 1.10 : 1.05, false);
  if (m == 8 && floats) add("C3.T8", "products, T(8) / T(1)", slower, 1.12, false);
  if (f.alu.spread.n + f.alu.n_dropped == 0) return;  // the machine has no such probe
  if (m == 8 && four) add("C3.alu8", "products over the ALU probe, m = 8", alu, 0.60, true);
  if (m == 12 && floats) add("C3.alu12", "products over the ALU probe, m = 12", alu, 0.85, true);
  if (m == 512)
    add("C4", "prefill of 512, products over the ALU probe", alu, floats ? 0.90 : 0.70, true);
}

Matrices layers_of(const CpuModel& model) {
  Matrices layers;
  for (const CpuLayer& l : model.layers)
    for (const PackedMatrix* w : {&l.qkv, &l.o, &l.gate_up, &l.down}) layers.push_back(w);
  return layers;
}

// So many tiles of a matrix as half of the second-level caches hold, again and again: what is left
// is arithmetic.
void bench_resident(KernelBench& bench, const CpuModel& model, int64_t m) {
  constexpr size_t kTurns = 16;  // between two calls of the pool
  const PackedMatrix& whole = model.layers[0].qkv;
  const int64_t room = cache_bytes(2, 1 << 20) / 2 * bench.pool.size();
  PackedMatrix part;
  part.format = whole.format;
  part.k = whole.k;
  part.n_steps = whole.n_steps;
  part.n_tiles = std::clamp<int64_t>(room / whole.tile_bytes(), 1, whole.n / kTileRows);
  part.n = part.n_tiles * kTileRows;
  part.data = whole.data;
  const Matrices turns(kTurns, &part);
  auto product = std::make_shared<Product>(*model.kernels, turns, m, kTurns);
  Load alu = bench.dtype == "bf16" ? bf16_probe(bench.pool) : int8_probe(bench.pool);
  if (!alu || bench.dtype == "fp32") return;  // the machine has no such probe
  const double flops_per_byte = flops_of(turns, m) / static_cast<double>(bytes_of(turns));
  std::vector<Load> flops = {[&, product] { return product->run(bench.pool) * flops_per_byte; }};
  auto rounds = alternate(bench.protocol, bench.pool, alu, flops);
  const Kept share = share_of_probe(rounds, 0);
  const double rate = rate_of_subject(rounds, 0).median;
  bench.report->add("products in the cache", {{"model", bench.model},
                                              {"dtype", bench.dtype},
                                              {"threads", bench.pool.size()},
                                              {"m", m},
                                              {"KB", 1e-3 * static_cast<double>(part.bytes())},
                                              {"GFLOP/s", rate > 0 ? Json(1e-9 * rate) : Json()},
                                              {"of ALU", to_json(share)}});
  if (m == 8 && bench.dtype == "bf16")
    bench.report->add(Goal{bench.id("C3.resident8"),
                           "products in the cache over the ALU probe, m = 8, " + bench.at(),
                           share.median(), 0.90, true});
}

}  // namespace

void bench_groups(KernelBench& bench, const CpuModel& by_32, const CpuModel& by_128) {
  const Matrices blocks = layers_of(by_32), groups = layers_of(by_128);
  const double block_bytes = static_cast<double>(bytes_of(blocks)),
               group_bytes = static_cast<double>(bytes_of(groups));
  for (int m : bench.rows) {
    Load by_block = product_load(bench, by_32, blocks, m),
         by_group = product_load(bench, by_128, groups, m);
    std::vector<Load> passes = {[&] { return by_block() / block_bytes; },
                                [&] { return by_group() / group_bytes; }};
    auto rounds =
        alternate(bench.protocol, bench.pool, read_probe(bench.memory, bench.pool), passes);
    bench.report->add("groups", {{"model", bench.model},
                                 {"threads", bench.pool.size()},
                                 {"m", m},
                                 {"MB by 32", 1e-6 * block_bytes},
                                 {"MB by 128", 1e-6 * group_bytes},
                                 {"T(128)/T(32)", to_json(ratio_of_subjects(rounds, 0, 1))}});
  }
}

bool is_past_cache(int64_t weight_bytes) { return weight_bytes >= 4 * cache_bytes(3, 32 << 20); }

void bench_products(KernelBench& bench, const CpuModel& model) {
  Matrices qkv, o, gate_up, down;
  const Matrices layers = layers_of(model);
  for (const CpuLayer& l : model.layers) {
    qkv.push_back(&l.qkv);
    o.push_back(&l.o);
    gate_up.push_back(&l.gate_up);
    down.push_back(&l.down);
  }
  for (int m : bench.rows) {
    Figures f = measure(bench, model, layers, m);
    add_line(bench, "layers", layers, m, f);
    if (bench.quick || is_past_cache(bytes_of(layers))) judge(bench, m, f);
  }
  for (int64_t m : {4, 8, 12, 16})
    if (std::find(bench.rows.begin(), bench.rows.end(), m) != bench.rows.end())
      bench_resident(bench, model, m);
  struct Group {
    const char* name;
    const Matrices& matrices;
  };
  Matrices head = {&model.head};
  for (const Group& g : {Group{"qkv", qkv}, Group{"o", o}, Group{"gate up", gate_up},
                         Group{"down", down}, Group{"head", head}})
    for (int64_t m : {1, 4, 16, 512}) {
      if (bench.quick ? m != 1
                      : std::find(bench.rows.begin(), bench.rows.end(), m) == bench.rows.end())
        continue;
      if (m == 512 && &g.matrices == &head) continue;  // a prompt needs one row of logits
      add_line(bench, g.name, g.matrices, m, measure(bench, model, g.matrices, m));
    }
}

}  // namespace pf
