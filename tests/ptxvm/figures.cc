// What a program's kernels did, all launches together, however often its tests cleared their
// measures: written at its end as JSON to the file that PF_PTX_FIGURES names, for
// scripts/ptx_table.py. And the launches in their order, for tests that compare them.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>

#include "ptxvm/report.h"

namespace pf::ptxvm {
namespace {

struct Figures {
  std::vector<bool> reached;  // instructions that some launch executed
  uint64_t n_launches = 0, wavefronts = 0, wavefronts_ideal = 0, sectors = 0, sectors_ideal = 0;
  uint64_t static_shared_bytes = 0, dynamic_shared_bytes = 0, block_threads = 0;
};
std::map<std::string, Figures>& all_figures() {
  static auto* m = new std::map<std::string, Figures>;
  return *m;
}
std::vector<Launched>& noted() {
  static auto* list = new std::vector<Launched>;
  return *list;
}

void write_figures() {
  keep_figures();
  std::FILE* out = std::fopen(std::getenv("PF_PTX_FIGURES"), "w");
  if (out == nullptr) return;
  const char* separator = "[\n";
  for (const auto& [kernel, f] : all_figures()) {
    using ull = unsigned long long;
    std::fprintf(out,
                 "%s{\"kernel\": \"%s\", \"launches\": %llu, \"instructions\": %zu, "
                 "\"reached\": %lld, \"wavefronts\": %llu, \"wavefronts_ideal\": %llu, "
                 "\"sectors\": %llu, \"sectors_ideal\": %llu, \"static_shared\": %llu, "
                 "\"dynamic_shared\": %llu, \"threads\": %llu}",
                 separator, kernel.c_str(), ull{f.n_launches}, f.reached.size(),
                 static_cast<long long>(std::count(f.reached.begin(), f.reached.end(), true)),
                 ull{f.wavefronts}, ull{f.wavefronts_ideal}, ull{f.sectors}, ull{f.sectors_ideal},
                 ull{f.static_shared_bytes}, ull{f.dynamic_shared_bytes}, ull{f.block_threads});
    separator = ",\n";
  }
  std::fprintf(out, "%s\n", all_figures().empty() ? "[]" : "\n]");
  std::fclose(out);
}

}  // namespace

void note_launch(const std::string& kernel, Dim3 grid, Dim3 block, size_t dynamic_shared_bytes) {
  static const bool writes =
      std::getenv("PF_PTX_FIGURES") != nullptr && std::atexit(write_figures) == 0;
  if (writes) {
    Figures& f = all_figures()[kernel];
    f.dynamic_shared_bytes = std::max<uint64_t>(f.dynamic_shared_bytes, dynamic_shared_bytes);
    f.block_threads = std::max<uint64_t>(f.block_threads, uint64_t{block.x} * block.y * block.z);
  }
  if (!settings().note_launches) return;
  std::string name = demangled(kernel);
  noted().push_back({name.substr(0, name.find('(', name.find("_kernel"))), grid});
}

void add_figures(const Measure& m, const std::vector<bool>& reached) {
  auto it = all_figures().find(m.kernel);
  if (it == all_figures().end()) return;  // nobody wants them
  Figures& f = it->second;
  f.reached.resize(reached.size());
  for (size_t i = 0; i < reached.size(); ++i) f.reached[i] = f.reached[i] || reached[i];
  f.n_launches += m.n_launches;
  f.wavefronts += m.wavefronts;
  f.wavefronts_ideal += m.wavefronts_ideal;
  f.sectors += m.sectors;
  f.sectors_ideal += m.sectors_ideal;
  f.static_shared_bytes = std::max(f.static_shared_bytes, m.static_shared_bytes);
}

std::vector<Launched> take_launches() { return std::exchange(noted(), {}); }

}  // namespace pf::ptxvm
