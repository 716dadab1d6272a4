// The kernels' rooflines and the headline figures of a device, as ratios with pass marks:
//   device_bench [--tiny] [--json FILE]
// --tiny: sizes for the PTX machine, where a time says nothing and no goal counts. Ends with 0, 3
// where a goal was missed, 77 where no device is visible, 2 where a file cannot be written.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "backend/cuda/device_memory.h"
#include "device/bench.h"

namespace pf {

BenchSizes real_sizes() {
  BenchSizes s;
  s.target = known_shape("llama-3.1-8b")->config;
  s.draft = known_shape("llama-3.2-1b")->config;
  s.rows = {1, 4, 16, 64, 512};
  s.long_context = 65536;
  s.tree_prefix = 32768;
  s.batches = {1, 32, 256};
  s.step_context = 512;
  s.draft_lengths = {1, 3, 5};
  s.n_steps = 30;
  s.n_chosen_steps = 150;
  s.n_repeats = 20;
  s.copied_bytes = size_t{2} << 30;
  return s;
}

BenchSizes tiny_sizes() {
  BenchSizes s;
  ModelConfig& c = s.target;
  c.architecture = "llama";
  c.n_layers = 1;
  c.width = 64;
  c.ffn_width = 128;
  c.n_heads = 4;
  c.n_kv_heads = 2;
  c.head_width = 64;
  c.vocabulary_size = 256;
  c.max_context = 1024;
  c.rope_theta = 10000;
  c.norm_epsilon = 1e-5f;
  c.tied_head = true;
  s.draft = s.target;
  s.rows = {1, 8};
  s.long_context = 100;
  s.tree_prefix = 128;
  s.batches = {1};
  s.step_context = 20;
  s.draft_lengths = {1};
  s.n_steps = 1;
  s.n_chosen_steps = 3;
  s.n_repeats = 1;
  s.copied_bytes = size_t{1} << 20;
  s.most_copies = 2;
  return s;
}

std::vector<double> times_of(const std::vector<BenchLaunch>& launches, cudaStream_t stream,
                             int32_t n_repeats) {
  const int32_t n_launches = n_repeats > 1 ? 5 : 1;
  std::vector<int32_t> done(launches.size());
  std::vector<std::vector<double>> times(launches.size());
  cudaEvent_t begin, end;
  cuda_check(cudaEventCreate(&begin));
  cuda_check(cudaEventCreate(&end));
  for (size_t l = 0; l < launches.size(); ++l) launches[l](done[l]++);
  for (int32_t r = 0; r < n_repeats; ++r)
    for (size_t l = 0; l < launches.size(); ++l) {
      cuda_check(cudaEventRecord(begin, stream));
      for (int32_t i = 0; i < n_launches; ++i) launches[l](done[l]++);
      cuda_check(cudaEventRecord(end, stream));
      cuda_check(cudaEventSynchronize(end));
      float ms = 0;
      cuda_check(cudaEventElapsedTime(&ms, begin, end));
      times[l].push_back(1e-3 * static_cast<double>(ms) / n_launches);
    }
  cuda_check(cudaEventDestroy(begin));
  cuda_check(cudaEventDestroy(end));
  std::vector<double> medians;
  for (std::vector<double>& t : times) {
    std::nth_element(t.begin(), t.begin() + n_repeats / 2, t.end());
    medians.push_back(std::max(t[static_cast<size_t>(n_repeats / 2)], 1e-9));
  }
  return medians;
}

// Four caches' worth, and two at least: the end of the only one would be there still.
int32_t copies_past_cache(int64_t bytes, const BenchSizes& sizes) {
  int device = 0, cache_bytes = 0;
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaDeviceGetAttribute(&cache_bytes, cudaDevAttrL2CacheSize, device));
  const int64_t n = 4 * int64_t{cache_bytes} / std::max<int64_t>(1, bytes) + 1;
  return static_cast<int32_t>(std::clamp<int64_t>(n, 2, sizes.most_copies));
}

// The peak that shares are of: the data sheet's where the device is known, else a copy's.
void bench_peak(const BenchSizes& sizes, BenchReport* report) {
  int device = 0;
  cudaDeviceProp properties{};
  cuda_check(cudaGetDevice(&device));
  cuda_check(cudaGetDeviceProperties(&properties, device));
  report->device = properties.name;
  const size_t bytes = std::min<size_t>(properties.totalGlobalMem / 16, sizes.copied_bytes);
  DeviceMemory from(bytes), to(bytes);
  cuda_check(cudaMemset(from.as(), 0, bytes));
  const double s = times_of(
      {[&](int32_t) {
        cuda_check(cudaMemcpyAsync(to.as(), from.as(), bytes, cudaMemcpyDeviceToDevice, nullptr));
      }},
      nullptr, sizes.n_repeats)[0];
  report->copied_bytes_per_s = 2 * static_cast<double>(bytes) / s;
  report->memory_bytes_per_s = report->copied_bytes_per_s;
  const double gib = static_cast<double>(properties.totalGlobalMem) / (1 << 30);
  for (const DeviceModel& m : device_models()) {
    std::string family(m.name);
    family = family.substr(0, family.find('-'));
    std::transform(family.begin(), family.end(), family.begin(), ::toupper);
    if (report->device.find(family) == std::string::npos || std::abs(gib / m.memory_gib - 1) > 0.15)
      continue;
    report->memory_bytes_per_s = m.memory_bytes_per_s;
    report->tensor_flops_per_s = m.tensor_flops_per_s;
  }
  std::printf("%s: peak %.0f GB/s, a copy reaches %.0f GB/s\n", report->device.c_str(),
              1e-9 * report->memory_bytes_per_s, 1e-9 * report->copied_bytes_per_s);
}

void BenchReport::line(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

void BenchReport::kernel(const std::string& name, const std::string& shape, double seconds,
                         const kernels::LaunchCost& cost) {
  const double memory = static_cast<double>(cost.bytes()) / seconds / memory_bytes_per_s;
  const double tensor = tensor_flops_per_s > 0 ? cost.flops / seconds / tensor_flops_per_s : 0;
  char text[256];
  std::snprintf(text, sizeof text, "  %-18s %-34s %10.2f us %9.2f MB  memory %5.3f  tensor %5.3f",
                name.c_str(), shape.c_str(), 1e6 * seconds,
                1e-6 * static_cast<double>(cost.bytes()), memory, tensor);
  line(text);
  std::snprintf(text, sizeof text,
                "{\"kernel\": \"%s\", \"shape\": \"%s\", \"seconds\": %.4g, \"bytes\": %lld, "
                "\"flops\": %.4g, \"memory_share\": %.4f}",
                name.c_str(), shape.c_str(), seconds, static_cast<long long>(cost.bytes()),
                cost.flops, memory);
  rows_.push_back(text);
}

void BenchReport::goal(Goal g) {
  char text[256];
  std::snprintf(text, sizeof text, "%-4s %-62s %7.3f  goal %.2f", g.pass() ? "ok" : "MISS",
                g.name.c_str(), g.value, g.goal);
  line(text);
  goals_.push_back(std::move(g));
}

std::string BenchReport::json() const {
  char text[384];
  std::snprintf(text, sizeof text,
                "{\"device\": \"%s\", \"memory_bytes_per_s\": %.4g, \"copied_bytes_per_s\": %.4g,\n"
                " \"kernels\": [",
                device.c_str(), memory_bytes_per_s, copied_bytes_per_s);
  std::string out = text;
  for (size_t i = 0; i < rows_.size(); ++i) out += (i ? ",\n  " : "\n  ") + rows_[i];
  out += "],\n \"goals\": [";
  for (size_t i = 0; i < goals_.size(); ++i) {
    const Goal& g = goals_[i];
    std::snprintf(text, sizeof text,
                  "%s{\"id\": \"%s\", \"name\": \"%s\", \"value\": %.4f, \"goal\": %.2f, "
                  "\"pass\": %s}",
                  i ? ",\n  " : "\n  ", g.id.c_str(), g.name.c_str(), g.value, g.goal,
                  g.pass() ? "true" : "false");
    out += text;
  }
  return out + "]}\n";
}

}  // namespace pf

int main(int argc, char** argv) {
  bool tiny = false;
  std::string json;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--tiny") == 0) {
      tiny = true;
    } else if (std::strcmp(argv[i], "--json") == 0 && i + 1 < argc) {
      json = argv[++i];
    } else {
      std::fprintf(stderr, "device_bench: %s: known are --tiny and --json FILE\n", argv[i]);
      return 2;
    }
  }
  int n = 0;
  if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
    std::fprintf(stderr, "device_bench: SKIPPED: no CUDA device is visible\n");
    return 77;
  }
  const pf::BenchSizes sizes = tiny ? pf::tiny_sizes() : pf::real_sizes();
  pf::BenchReport report;
  pf::bench_peak(sizes, &report);
  pf::bench_products(sizes, &report);
  pf::bench_attention(sizes, &report);
  pf::bench_steps(sizes, &report);
  if (!json.empty()) {
    std::ofstream out(json);
    out << report.json();
    if (!out.flush()) {
      std::fprintf(stderr, "device_bench: --json %s: cannot be written\n", json.c_str());
      return 2;
    }
  }
  if (tiny) return 0;  // times of a machine in software judge nothing
  return std::all_of(report.goals().begin(), report.goals().end(),
                     [](const pf::Goal& g) { return g.pass(); })
             ? 0
             : 3;
}
