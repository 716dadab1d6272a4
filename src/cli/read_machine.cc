#include <google/protobuf/stubs/common.h>
#include <grpcpp/grpcpp.h>
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <spdlog/version.h>
#include <sys/resource.h>
#include <unicode/uversion.h>

#include <fstream>

#include "backend/cpu/kernels.h"
#include "base/cpus.h"
#include "cli/doctor.h"
#include "cli/line.h"
#include "engine/memory_plan.h"

namespace pf {
namespace {

std::string first_line(const char* path) {
  std::ifstream in(path);
  std::string text;
  std::getline(in, text);
  return text;
}

std::string cpu_name() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string text; std::getline(in, text);)
    if (text.starts_with("model name")) return text.substr(text.find(':') + 2);
  return "unknown";
}

std::vector<std::string> cpu_features() {
  std::vector<std::string> out;
#if defined(__x86_64__)
  auto add = [&out](const char* name, bool has) {
    if (has) out.emplace_back(name);
  };
  add("avx2", __builtin_cpu_supports("avx2"));
  add("fma", __builtin_cpu_supports("fma"));
  add("avx512bw", __builtin_cpu_supports("avx512bw"));
  add("avx512vl", __builtin_cpu_supports("avx512vl"));
  add("avx512vnni", __builtin_cpu_supports("avx512vnni"));
  add("avx512bf16", __builtin_cpu_supports("avx512bf16"));
#endif
  return out;
}

int64_t hard_limit(int resource) {
  rlimit limit{};
  if (getrlimit(static_cast<__rlimit_resource>(resource), &limit) != 0) return 0;
  return limit.rlim_max == RLIM_INFINITY ? -1 : static_cast<int64_t>(limit.rlim_max);
}

std::vector<std::pair<std::string, std::string>> libraries() {
  return {{"gRPC", grpc::Version()},
          {"protobuf", line("%d.%d.%d", GOOGLE_PROTOBUF_VERSION / 1'000'000,
                            GOOGLE_PROTOBUF_VERSION / 1000 % 1000, GOOGLE_PROTOBUF_VERSION % 1000)},
          {"spdlog", line("%d.%d.%d", SPDLOG_VER_MAJOR, SPDLOG_VER_MINOR, SPDLOG_VER_PATCH)},
          {"PCRE2", line("%d.%d", PCRE2_MAJOR, PCRE2_MINOR)},
          {"ICU", U_ICU_VERSION}};
}

}  // namespace

MachineFacts read_machine() {
  MachineFacts m;
  m.cpu = cpu_name();
  m.cpu_features = cpu_features();
  m.kernels = choose_kernels("")->name;
  m.n_cpus = n_usable_cpus();
  m.cpu_quota = quota_of(first_line("/sys/fs/cgroup/cpu.max"));
  m.memory_bytes = available_memory_bytes();
  m.max_open_files = hard_limit(RLIMIT_NOFILE);
  if (m.max_open_files < 0) m.max_open_files = INT64_MAX;
  m.locked_bytes = hard_limit(RLIMIT_MEMLOCK);
  m.huge_pages = chosen_word(first_line("/sys/kernel/mm/transparent_hugepage/enabled"));
  m.cuda = cuda_facts();
  m.libraries = libraries();
  return m;
}

}  // namespace pf
