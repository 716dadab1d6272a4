// The kernels launched so far and what they did: sums over the counters of their instructions.

#include "ptxvm/measure.h"

#include <cxxabi.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <set>
#include <tuple>

#include "ptxvm/machine.h"
#include "ptxvm/report.h"

namespace pf::ptxvm {
namespace {

uint64_t g_launches = 0;

std::vector<Kernel*>& launched() {
  static auto* list = new std::vector<Kernel*>;
  return *list;
}

bool is_named(const Kernel& k, std::string_view part) {
  return k.name.find(part) != std::string::npos ||
         demangled(k.name).find(part) != std::string::npos;
}
std::string base_name(const std::string& path) { return path.substr(path.find_last_of('/') + 1); }

// A branch that is never taken has run; what a false predicate always skipped has not.
bool executed(const Kernel& k, size_t i) {
  bool flows = k.code[i].flow == Flow::kBranch || k.code[i].flow == Flow::kBranchIndexed;
  return flows ? k.counters[i].warp_steps > 0 : k.counters[i].lane_steps > 0;
}
// The implicit end of a kernel is no instruction of the program.
bool is_written(const Kernel& k, size_t i) { return k.code[i].text >= 0; }
const std::string& text_of(const Kernel& k, size_t i) {
  return k.texts[static_cast<size_t>(k.code[i].text)];
}

void add(Measure& m, const Kernel& k, size_t i) {
  if (!is_written(k, i)) return;
  const Counters& c = k.counters[i];
  ++m.n_instructions;
  m.n_executed += executed(k, i);
  m.warp_steps += c.warp_steps;
  m.lane_steps += c.lane_steps;
  m.wavefronts += c.wavefronts;
  m.wavefronts_ideal += c.wavefronts_ideal;
  m.sectors += c.sectors;
  m.sectors_ideal += c.sectors_ideal;
  if (text_of(k, i).rfind("mma.", 0) == 0) m.n_mma += c.lane_steps / 32;
}
void add(Measure& m, const Kernel& k) {
  for (size_t i = 0; i < k.code.size(); ++i) add(m, k, i);
  m.n_launches += k.n_launches;
  m.static_shared_bytes = std::max<uint64_t>(m.static_shared_bytes, k.shared_bytes);
  m.local_bytes = std::max<uint64_t>(m.local_bytes, k.local_bytes);
}

}  // namespace

std::string demangled(const std::string& name) {
  int status = 0;
  std::unique_ptr<char, void (*)(void*)> text(
      abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status), std::free);
  return status == 0 ? text.get() : name;
}

void count_launch(Kernel& kernel, Dim3 grid, Dim3 block, size_t dynamic_shared_bytes) {
  auto& list = launched();
  note_launch(kernel.name, grid, block, dynamic_shared_bytes);
  if (std::find(list.begin(), list.end(), &kernel) == list.end()) list.push_back(&kernel);
  ++kernel.n_launches;
  ++g_launches;
}
uint64_t n_launches() { return g_launches; }

void forget_module(const Module& module) {
  keep_figures();
  std::erase_if(launched(), [&](Kernel* k) { return module.owns(k); });
}

void locate(const Kernel& k, const Instr& in, std::string* file, int* line,
            std::string* inlined_at) {
  auto at = [&](int loc) -> const Loc& { return k.locs[static_cast<size_t>(loc)]; };
  auto file_of = [&](int loc) { return k.files[static_cast<size_t>(at(loc).file)]; };
  auto in_headers = [&](int loc) {
    std::string f = file_of(loc);
    return f.find("/include/") != std::string::npos &&
           (f.find("cuda") != std::string::npos || f.find("targets/") != std::string::npos);
  };
  int loc = in.loc;
  while (loc >= 0 && at(loc).parent >= 0 && in_headers(loc)) loc = at(loc).parent;
  if (loc < 0) return;
  *file = file_of(loc);
  *line = at(loc).line;
  int caller = at(loc).parent;
  if (caller >= 0) *inlined_at = base_name(file_of(caller)) + ":" + std::to_string(at(caller).line);
}

Measure measure(std::string_view part) {
  Measure m;
  m.kernel = part;
  for (const Kernel* k : launched())
    if (is_named(*k, part)) add(m, *k);
  return m;
}

std::vector<Measure> kernel_measures() {
  std::vector<Measure> out;
  for (const Kernel* k : launched()) {
    Measure m;
    m.kernel = k->name;
    add(m, *k);
    out.push_back(std::move(m));
  }
  return out;
}

std::vector<Measure> line_measures(std::string_view part) {
  std::map<std::tuple<std::string, std::string, int>, Measure> lines;
  for (const Kernel* k : launched()) {
    if (!is_named(*k, part)) continue;
    for (size_t i = 0; i < k->code.size(); ++i) {
      std::string file, caller;
      int line = 0;
      locate(*k, k->code[i], &file, &line, &caller);
      if (line == 0) continue;
      Measure& m = lines[{k->name, file, line}];
      m.kernel = k->name;
      m.file = file;
      m.line = line;
      add(m, *k, i);
    }
  }
  std::vector<Measure> out;
  for (auto& [key, m] : lines) out.push_back(std::move(m));
  return out;
}

std::vector<UnreachedLine> unreached_lines(std::string_view part) {
  std::map<std::tuple<std::string, std::string, int, std::string>, UnreachedLine> lines;
  for (const Kernel* k : launched()) {
    if (!is_named(*k, part)) continue;
    for (size_t i = 0; i < k->code.size(); ++i) {
      if (!is_written(*k, i)) continue;
      UnreachedLine l;
      l.kernel = k->name;
      locate(*k, k->code[i], &l.file, &l.line, &l.inlined_at);
      auto [it, fresh] = lines.try_emplace({l.kernel, l.file, l.line, l.inlined_at}, l);
      ++it->second.n_instructions;
      if (!executed(*k, i)) it->second.ptx.push_back(text_of(*k, i));
    }
  }
  std::vector<UnreachedLine> out;
  for (auto& [key, l] : lines)
    if (!l.ptx.empty()) out.push_back(std::move(l));
  return out;
}

std::vector<int> executed_ptx_lines(std::string_view part) {
  std::set<int> lines;
  for (const Kernel* k : launched())
    for (size_t i = 0; is_named(*k, part) && i < k->code.size(); ++i)
      if (is_written(*k, i) && executed(*k, i))
        lines.insert(k->ptx_lines[static_cast<size_t>(k->code[i].text)]);
  return {lines.begin(), lines.end()};
}

std::string unreached_text(std::string_view part) {
  std::string out, kernel;
  for (const UnreachedLine& l : unreached_lines(part)) {
    if (l.kernel != kernel) out += demangled(kernel = l.kernel) + ":\n";
    out += "  " + (l.file.empty() ? "(no line)" : base_name(l.file) + ":" + std::to_string(l.line));
    if (!l.inlined_at.empty()) out += " inlined at " + l.inlined_at;
    out += ": " + std::to_string(l.ptx.size()) + " of " + std::to_string(l.n_instructions) +
           " not reached:";
    for (size_t i = 0; i < l.ptx.size(); ++i) out += (i ? "; " : " ") + l.ptx[i];
    out += "\n";
  }
  return out;
}

std::string measures_text() {
  std::string out;
  char row[512];
  auto line = [&](const std::string& name, const Measure& m) {
    using ull = unsigned long long;
    std::snprintf(row, sizeof row,
                  "%-44.44s %5.1f %% of %5llu  %11llu steps  %9llu mma  wavefronts %9llu / %9llu  "
                  "sectors %9llu / %9llu\n",
                  name.c_str(), 100 * m.coverage(), ull{m.n_instructions}, ull{m.warp_steps},
                  ull{m.n_mma}, ull{m.wavefronts}, ull{m.wavefronts_ideal}, ull{m.sectors},
                  ull{m.sectors_ideal});
    out += row;
  };
  for (const Measure& m : kernel_measures()) {
    line(demangled(m.kernel), m);
    for (const Measure& l : line_measures(m.kernel))
      if (l.wavefronts || l.sectors || l.n_mma)
        line("  " + base_name(l.file) + ":" + std::to_string(l.line), l);
  }
  return out;
}

void keep_figures() {
  for (Kernel* k : launched()) {
    Measure m;
    m.kernel = k->name;
    add(m, *k);
    std::vector<bool> reached;
    for (size_t i = 0; i < k->code.size(); ++i)
      if (is_written(*k, i)) reached.push_back(executed(*k, i));
    add_figures(m, reached);
  }
}

void clear_measures() {
  keep_figures();
  for (Kernel* k : launched()) {
    std::fill(k->counters.begin(), k->counters.end(), Counters{});
    k->n_launches = 0;
  }
  launched().clear();
}

}  // namespace pf::ptxvm
