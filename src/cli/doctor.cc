#include "cli/doctor.h"

#include <cstdio>

#include "cli/line.h"

namespace pf {
namespace {

using Level = Finding::Level;

constexpr int64_t kFewFiles = 1024, kEnoughFiles = 16'384;  // one a connection
constexpr int64_t kLittleMemory = int64_t{1} << 30;
constexpr int32_t kOldestDevice = 80;  // compute capability, 10 major + minor

std::string gigabytes(int64_t bytes) { return line("%.1f GB", 1e-9 * static_cast<double>(bytes)); }

std::string cuda_version(int32_t v) { return line("%d.%d", v / 1000, v % 1000 / 10); }

Finding cpu_finding(const MachineFacts& m) {
  std::string features;
  for (const std::string& f : m.cpu_features) features += " " + f;
  Finding f{Level::kFine, "CPU", m.cpu + (features.empty() ? "" : ":" + features), ""};
  if (m.kernels == "portable")
    f = {Level::kAdvice, f.what, f.value,
         "without AVX2 the CPU backend runs its portable kernels, several times slower; use "
         "another machine or a GPU"};
  return f;
}

Finding cores_finding(const MachineFacts& m) {
  Finding f{Level::kFine, "cores", line("%d", m.n_cpus), ""};
  if (m.cpu_quota > 0 && m.cpu_quota < m.n_cpus) {
    int threads = m.cpu_quota < 1 ? 1 : static_cast<int>(m.cpu_quota);
    f.value += line(", but a quota of %.1f", m.cpu_quota);
    f.level = Level::kAdvice;
    f.advice =
        line("threads beyond the quota are stopped within a step: set --threads %d", threads);
  }
  return f;
}

Finding memory_finding(const MachineFacts& m) {
  if (m.memory_bytes >= kLittleMemory)
    return {Level::kFine, "free memory", gigabytes(m.memory_bytes), ""};
  return {Level::kAdvice, "free memory", gigabytes(m.memory_bytes),
          "little room for weights and KV: lower --max-model-len and --max-num-seqs, or give more"};
}

Finding huge_pages_finding(const MachineFacts& m) {
  if (m.huge_pages != "never")
    return {Level::kFine, "huge pages", m.huge_pages.empty() ? "not told" : m.huge_pages, ""};
  return {Level::kAdvice, "huge pages", "never",
          "weights in small pages read slower on a CPU: echo madvise > "
          "/sys/kernel/mm/transparent_hugepage/enabled"};
}

Finding files_finding(const MachineFacts& m) {
  Finding f{Level::kFine, "open files", line("%lld", static_cast<long long>(m.max_open_files)), ""};
  if (m.max_open_files >= kEnoughFiles) return f;
  f.level = m.max_open_files < kFewFiles ? Level::kBad : Level::kAdvice;
  f.advice =
      "each connection needs one: raise the hard limit (ulimit -Hn 65536, LimitNOFILE=, "
      "--ulimit nofile=65536)";
  return f;
}

void add_cuda(const CudaFacts& cuda, std::vector<Finding>* out) {
  if (cuda.devices.empty()) {
    out->push_back({Level::kFine, "GPU", "none: " + cuda.why_none, ""});
    return;
  }
  if (cuda.driver / 1000 < cuda.runtime / 1000)
    out->push_back({Level::kBad, "CUDA driver", "for CUDA " + cuda_version(cuda.driver),
                    "this build needs a driver for CUDA " + cuda_version(cuda.runtime) +
                        (cuda.runtime >= 13'000 ? " (580 or later)" : "") + ": update it"});
  else
    out->push_back(
        {Level::kFine, "CUDA driver",
         "for CUDA " + cuda_version(cuda.driver) + "; built with " + cuda_version(cuda.runtime),
         ""});
  for (const CudaDeviceFacts& d : cuda.devices) {
    Finding f{Level::kFine, "GPU",
              line("%s, sm_%d%d, ", d.name.c_str(), d.major, d.minor) + gigabytes(d.memory_bytes),
              ""};
    if (10 * d.major + d.minor < kOldestDevice)
      f = {Level::kAdvice, f.what, f.value,
           "the kernels need sm_80 (A100) or later: hide it with CUDA_VISIBLE_DEVICES, or use "
           "--device cpu"};
    out->push_back(f);
  }
  if (cuda.devices.size() > 1)
    out->push_back({Level::kFine, "CUDA graphs",
                    "where a model has one GPU; not used with --tensor-parallel-size 2 or more",
                    ""});
}

}  // namespace

std::vector<Finding> examine(const MachineFacts& m) {
  std::vector<Finding> out = {cpu_finding(m)};
  out.push_back({Level::kFine, "CPU kernels", m.kernels, ""});
  out.push_back(cores_finding(m));
  out.push_back(memory_finding(m));
  out.push_back(huge_pages_finding(m));
  out.push_back(files_finding(m));
  out.push_back({Level::kFine, "locked memory",
                 m.locked_bytes < 0 ? "no limit"
                                    : line("%lld MB", static_cast<long long>(m.locked_bytes >> 20)),
                 ""});
  add_cuda(m.cuda, &out);
  for (const auto& [name, version] : m.libraries) out.push_back({Level::kFine, name, version, ""});
  return out;
}

std::string print(const std::vector<Finding>& findings) {
  std::string out;
  for (const Finding& f : findings) {
    const char* mark = f.level == Level::kFine ? "ok" : f.level == Level::kAdvice ? "note" : "BAD";
    out += line("%-5s%-15s", mark, f.what.c_str()) + f.value + "\n";
    if (!f.advice.empty()) out += "                    " + f.advice + "\n";
  }
  return out;
}

std::string chosen_word(const std::string& words) {
  size_t open = words.find('['), close = words.find(']');
  return open == std::string::npos || close == std::string::npos
             ? ""
             : words.substr(open + 1, close - open - 1);
}

double quota_of(const std::string& cpu_max) {
  long long quota = 0, period = 0;
  if (std::sscanf(cpu_max.c_str(), "%lld %lld", &quota, &period) != 2 || period <= 0) return 0;
  return static_cast<double>(quota) / static_cast<double>(period);
}

}  // namespace pf
