#include <algorithm>
#include <random>

#include "backend/cpu/rotate.h"
#include "bench/kernels.h"

namespace pf {
namespace {

std::vector<float> normal_values(int64_t n) {
  std::mt19937 rng(1);
  std::normal_distribution<float> normal;
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = normal(rng);
  return v;
}

}  // namespace

// One thread and one row, which stays in the cache: this is time that no memory hides.
void bench_rows(KernelBench& bench, const CpuModel& model) {
  const CpuKernels& k = *model.kernels;
  std::vector<float> x = normal_values(std::max(model.E, 2 * model.F)), out(x.size());
  const PackedMatrix& wide = model.layers[0].down;
  Buffer chunk(static_cast<size_t>(packed_rows_bytes(wide.format, wide.n_steps, kMaxChunkRows)));
  ThreadPool alone(1);
  struct Kernel {
    const char* name;
    int64_t n;
    double bytes, flops;  // read and written; as the formula says
    std::function<void()> run;
  };
  KvPlane plane(1, 1, model.G, 16, model.D, plain_kv(model));
  const BlockId block = 0;
  const int32_t token = 5;
  Batch one;
  one.add({&token, 1}, 7, nullptr, {&block, 1}, Batch::Logits::kLast);
  std::vector<float> qkv = normal_values(model.qkv_width()), turned(qkv.size()),
                     cosine(static_cast<size_t>(model.D / 2), 0.8f), sine(cosine.size(), 0.6f);
  const double n_qkv = static_cast<double>(model.qkv_width());
  double E = static_cast<double>(model.E), F = static_cast<double>(model.F);
  const Kernel kernels[] = {
      {"rms norm", model.E, 12 * E, 4 * E,
       [&] { k.rms_norm(x.data(), x.data(), 1e-5f, model.E, out.data()); }},
      {"silu times up", model.F, 12 * F, 5 * F,
       [&] { k.silu_mul(x.data(), x.data() + model.F, model.F, out.data()); }},
      {"rope, K and V stored", model.qkv_width(),
       8 * n_qkv + 2.0 * static_cast<double>(model.G * model.D * (model.f32 ? 4 : 2)),
       4.0 * static_cast<double>((model.H + model.G) * model.D),
       [&] {
         std::copy(qkv.begin(), qkv.end(), turned.begin());
         rotate_and_store(model, one, 0, {0, 1}, {cosine.data(), sine.data()}, turned.data(),
                          &plane);
       }},
      {"pack a row", model.F, 4 * F + static_cast<double>(chunk.bytes()) / kMaxChunkRows, F,
       [&] { k.pack_row(wide.format, x.data(), model.F, wide.n_steps, 0, 1, chunk.as()); }}};
  for (const Kernel& kernel : kernels) {
    std::vector<Load> subjects = {[&] {
      for (int i = 0; i < 100; ++i) kernel.run();
      return 100 * kernel.bytes;
    }};
    auto rounds = alternate(bench.protocol, alone, read_probe(bench.memory, alone), subjects);
    double rate = rate_of_subject(rounds, 0).median;
    bench.report->add("rows", {{"kernel", kernel.name},
                               {"model", bench.model},
                               {"dtype", bench.dtype},
                               {"n", kernel.n},
                               {"us", rate > 0 ? Json(1e6 * kernel.bytes / rate) : Json()},
                               {"KB", 1e-3 * kernel.bytes},
                               {"KFLOP", 1e-3 * kernel.flops},
                               {"of read", to_json(share_of_probe(rounds, 0))}});
  }
}

}  // namespace pf
