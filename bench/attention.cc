#include <algorithm>
#include <memory>
#include <numeric>
#include <random>

#include "bench/kernels.h"

namespace pf {
namespace {

constexpr int32_t kBlockTokens = 16;

struct Scene {
  const char* name;
  int32_t n_sequences, n_rows;  // rows of each sequence, the last ones of its context
  int32_t context;
  int32_t n_shared = 0;  // tokens that all sequences begin with, in blocks that they share
};

// Sequences of the same length, whose tables have nothing in common but the shared blocks.
class AttentionScene {
 public:
  AttentionScene(const CpuModel& model, const Scene& scene, int n_threads, KvType type)
      : model_(model),
        n_own_((scene.context - scene.n_shared) / kBlockTokens + 1),
        n_shared_(scene.n_shared / kBlockTokens),
        plane_(model.L, n_shared_ + scene.n_sequences * n_own_, model.G, kBlockTokens, model.D,
               type),
        attention_(model.H, model.G, model.D, model.sliding_window,
                   scene.n_sequences * scene.n_rows, scene.context + 1, n_threads) {
    std::mt19937 rng(1);
    std::normal_distribution<float> normal;
    for (int32_t s = 0; s < scene.n_sequences; ++s) {
      std::vector<BlockId>& table = tables_.emplace_back(static_cast<size_t>(n_shared_ + n_own_));
      auto own = table.begin() + n_shared_;
      std::iota(table.begin(), own, 0);
      std::iota(own, table.end(), n_shared_ + s * n_own_);
    }
    std::vector<int32_t> tokens(static_cast<size_t>(scene.n_rows));
    for (const std::vector<BlockId>& table : tables_)
      batch_.add(tokens, scene.context - scene.n_rows, nullptr, table, Batch::Logits::kLast);
    fill_plane(&rng);
    queries_.resize(static_cast<size_t>(batch_.n_rows() * model.qkv_width()));
    for (float& q : queries_) q = 0.125f * normal(rng);
    out_.resize(static_cast<size_t>(batch_.n_rows() * model.H * model.D));
    attention_.plan(batch_, plane_);
    for (int32_t r = 0; r < batch_.n_rows(); ++r)
      flops_ +=
          4.0 * static_cast<double>(model.H * model.D * batch_.visible[static_cast<size_t>(r)]);
    double token_bytes = static_cast<double>(plane_.bytes()) /
                         static_cast<double>(model.L * n_blocks() * kBlockTokens);
    n_keys_ = scene.n_shared + scene.n_sequences * (scene.context - scene.n_shared);
    bytes_ = static_cast<double>(n_keys_) * token_bytes;
  }

  double bytes() const { return bytes_; }  // K and V of one layer, each read once
  double flops() const { return flops_; }
  int64_t n_keys() const { return n_keys_; }  // tokens whose K and V there are
  int64_t n_keys_read() const { return attention_.n_keys_read(batch_); }

  // One layer; counts layers.
  double run(ThreadPool& pool) {
    pool.run([&](int thread) {
      attention_.run(*model_.kernels, batch_, plane_, layer_, queries_.data(), model_.qkv_width(),
                     out_.data(), thread, pool.barrier());
    });
    layer_ = (layer_ + 1) % model_.L;
    return 1;
  }

 private:
  void fill_plane(std::mt19937* rng) {
    std::normal_distribution<float> normal;
    std::vector<float> token(static_cast<size_t>(model_.D));
    for (float& v : token) v = normal(*rng);
    std::vector<BlockId> blocks(static_cast<size_t>(n_blocks()));
    std::iota(blocks.begin(), blocks.end(), 0);
    Segment all;  // one table of all blocks
    all.blocks = blocks;
    const int64_t n_slots = n_blocks() * kBlockTokens;
    for (int64_t l = 0; l < model_.L; ++l)
      for (int64_t slot = 0; slot < n_slots; ++slot)
        for (int64_t g = 0; g < model_.G; ++g)
          plane_.store(l, all, slot, g, token.data(), token.data());
  }

  int64_t n_blocks() const { return n_shared_ + static_cast<int64_t>(tables_.size()) * n_own_; }

  const CpuModel& model_;
  int32_t n_own_, n_shared_;  // blocks of a sequence alone, and of all
  KvPlane plane_;
  Attention attention_;
  std::vector<std::vector<BlockId>> tables_;  // by sequence
  Batch batch_;
  std::vector<float> queries_, out_;
  int64_t layer_ = 0, n_keys_ = 0;
  double bytes_ = 0, flops_ = 0;
};

// KV in int8 beside KV as the model computes, in turns: bytes of a layer and how often as fast.
void bench_int8(KernelBench& bench, const CpuModel& model, const Scene& s) {
  KvType type = plain_kv(model);
  auto plain = std::make_shared<AttentionScene>(model, s, bench.pool.size(), type);
  auto int8 = std::make_shared<AttentionScene>(model, s, bench.pool.size(), KvType::kInt8);
  std::vector<Load> subjects = {[&, int8] { return int8->run(bench.pool); }};
  Load probe = [&, plain] { return plain->run(bench.pool); };
  Kept speed = share_of_probe(alternate(bench.protocol, bench.pool, probe, subjects), 0);
  bench.report->add("attention with int8 KV", {{"case", s.name},
                                               {"model", bench.model},
                                               {"threads", bench.pool.size()},
                                               {"rows", s.n_sequences * s.n_rows},
                                               {"context", s.context},
                                               {"MB", 1e-6 * int8->bytes()},
                                               {"bytes of plain", int8->bytes() / plain->bytes()},
                                               {"speed over plain", to_json(speed)}});
}

// Rows over one prefix beside as many rows whose contexts are as long and have nothing in common:
// "a block that several rows see is read once". `apart` has the rows in sequences of their own.
void bench_shared(KernelBench& bench, const CpuModel& model, const Scene& s) {
  KvType type = plain_kv(model);
  const Scene apart = {s.name, s.n_sequences * s.n_rows, 1, s.context};
  auto alone = std::make_shared<AttentionScene>(model, apart, bench.pool.size(), type);
  auto shared = std::make_shared<AttentionScene>(model, s, bench.pool.size(), type);
  std::vector<Load> subjects = {[&, alone] { return alone->run(bench.pool); },
                                [&, shared] { return shared->run(bench.pool); }};
  auto rounds =
      alternate(bench.protocol, bench.pool, read_probe(bench.memory, bench.pool), subjects);
  auto over = [](int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); };
  const double once = over(shared->n_keys_read(), shared->n_keys());
  bench.report->add("attention over a shared prefix",
                    {{"case", s.name},
                     {"model", bench.model},
                     {"threads", bench.pool.size()},
                     {"rows", s.n_sequences * s.n_rows},
                     {"context", s.context},
                     {"shared", s.n_rows > 1 ? s.context - s.n_rows : s.n_shared},
                     {"keys read / there", once},
                     {"keys read / apart", over(shared->n_keys_read(), alone->n_keys_read())},
                     {"T / T apart", to_json(ratio_of_subjects(rounds, 0, 1))}});
  std::string id = s.name;
  std::replace(id.begin(), id.end(), ' ', '-');
  bench.report->add(Goal{bench.id("attention.once." + id),
                         std::string("keys read over those there, ") + s.name + ", " + bench.at(),
                         once, 1.02, false});
}

}  // namespace

void bench_attention(KernelBench& bench, const CpuModel& model) {
  std::vector<Scene> scenes = {{"decode", 1, 1, 128},    {"decode", 1, 1, 1024},
                               {"decode", 1, 1, 4096},   {"8 sequences", 8, 1, 1024},
                               {"verify", 1, 6, 1024},   {"verify", 1, 16, 1024},
                               {"prefill", 1, 512, 512}, {"prefill", 1, 512, 2048}};
  if (bench.quick) scenes = {{"decode", 1, 1, 64}, {"verify", 1, 6, 64}, {"prefill", 1, 64, 64}};
  for (const Scene& s : scenes) {
    KvType type = plain_kv(model);
    auto scene = std::make_shared<AttentionScene>(model, s, bench.pool.size(), type);
    std::vector<Load> bytes = {[&, scene] { return scene->run(bench.pool) * scene->bytes(); }};
    auto rounds =
        alternate(bench.protocol, bench.pool, read_probe(bench.memory, bench.pool), bytes);
    Load alu = bf16_probe(bench.pool);
    Kept of_alu;
    if (alu && s.n_rows > 1) {
      std::vector<Load> flops = {[&, scene] { return scene->run(bench.pool) * scene->flops(); }};
      of_alu = share_of_probe(alternate(bench.protocol, bench.pool, alu, flops), 0);
    }
    double rate = rate_of_subject(rounds, 0).median;
    bench.report->add("attention",
                      {{"case", s.name},
                       {"model", bench.model},
                       {"threads", bench.pool.size()},
                       {"rows", s.n_sequences * s.n_rows},
                       {"context", s.context},
                       {"us per layer", rate > 0 ? Json(1e6 * scene->bytes() / rate) : Json()},
                       {"MB", 1e-6 * scene->bytes()},
                       {"MFLOP", 1e-6 * scene->flops()},
                       {"of read", to_json(share_of_probe(rounds, 0))},
                       {"of bf16 ALU", to_json(of_alu)}});
  }
  std::vector<Scene> beside = {{"decode", 1, 1, 1024},
                               {"decode", 1, 1, 4096},
                               {"verify", 1, 6, 4096},
                               {"8 sequences", 8, 1, 4096},
                               {"prefill", 1, 512, 2048}};
  if (bench.quick) beside = {{"decode", 1, 1, 64}};
  for (const Scene& s : beside) bench_int8(bench, model, s);
  std::vector<Scene> shared = {{"8 sequences", 8, 1, 1104, 1024},
                               {"32 siblings", 32, 1, 1040, 1024},
                               {"16 branches", 1, 16, 1040}};
  if (bench.quick) shared = {{"8 sequences", 8, 1, 272, 256}, {"16 branches", 1, 16, 272}};
  for (const Scene& s : shared) bench_shared(bench, model, s);
}

}  // namespace pf
