// Findings and measures as text, the process-wide settings, and the list of loaded programs.

#include "ptxvm/report.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <tuple>
#include <utility>

#include "ptxvm/machine.h"

namespace pf::ptxvm {
namespace {

std::vector<Finding> g_findings;
uint64_t g_launches = 0;

std::string triple(const int* v) {
  return std::string("(")
      .append(std::to_string(v[0]))
      .append(",")
      .append(std::to_string(v[1]))
      .append(",")
      .append(std::to_string(v[2]))
      .append(")");
}

std::vector<Kernel*>& launched() {
  static auto* list = new std::vector<Kernel*>;
  return *list;
}

void add(Measure& m, const Kernel& k, size_t i) {
  const Counters& c = k.counters[i];
  ++m.n_instructions;
  m.n_executed += c.warp_steps > 0;
  m.warp_steps += c.warp_steps;
  m.lane_steps += c.lane_steps;
  m.wavefronts += c.wavefronts;
  m.wavefronts_ideal += c.wavefronts_ideal;
  m.sectors += c.sectors;
  m.sectors_ideal += c.sectors_ideal;
  if (k.code[i].text >= 0 && k.texts[static_cast<size_t>(k.code[i].text)].rfind("mma.", 0) == 0)
    m.n_mma += c.warp_steps;
}

}  // namespace

const char* kind_name(Kind kind) {
  static const char* kNames[] = {
      "out-of-bounds", "use-after-free", "misaligned",          "read-only-write",
      "shared-race",   "global-race",    "uninitialised-read",  "divergent-barrier",
      "deadlock",      "partial-warp",   "async-copy",          "non-coherent-read",
      "step-limit",    "launch-config",  "shared-memory-limit", "assert",
      "trap",          "unsupported",    "host-access",         "runtime-use"};
  return kNames[static_cast<int>(kind)];
}

std::string to_text(const Finding& f) {
  std::string text = f.file.empty() ? (f.kernel.empty() ? "cuda" : f.kernel)
                                    : f.file + ":" + std::to_string(f.line);
  text += ": error: " + std::string(kind_name(f.kind)) + ": " + f.message + "\n";
  if (!f.kernel.empty()) {
    text += "  note: kernel " + f.kernel + ", block " + triple(f.block);
    if (f.thread[0] >= 0) text += ", thread " + triple(f.thread);
    if (!f.ptx.empty()) text += ", at `" + f.ptx + "`";
    text += "\n";
  }
  if (!f.inlined_at.empty()) text += "  note: inlined at " + f.inlined_at + "\n";
  return text;
}

Settings& settings() {
  static Settings s;
  return s;
}

Device described_device(std::string_view name) {
  Device d;
  d.name = name;
  if (name == "sm_86" || name == "sm_89") {
    d.minor = name == "sm_86" ? 6 : 9;
    d.n_sms = name == "sm_86" ? 80 : 128;
    d.max_threads_per_sm = 1536;
    d.max_blocks_per_sm = name == "sm_86" ? 16 : 24;
    d.shared_per_sm_bytes = 100 << 10;
    d.shared_per_block_optin_bytes = 99 << 10;
    d.l2_bytes = name == "sm_86" ? 6u << 20 : 72u << 20;
  } else if (name == "sm_90") {
    d.major = 9;
    d.n_sms = 132;
    d.shared_per_sm_bytes = 228 << 10;
    d.shared_per_block_optin_bytes = 227 << 10;
    d.l2_bytes = 50u << 20;
  }
  return d;
}

void record(Finding f) {
  if (settings().print_findings) std::fputs(to_text(f).c_str(), stderr);
  g_findings.push_back(std::move(f));
}
std::vector<Finding> take_findings() {
  clear_sticky_error();
  return std::exchange(g_findings, {});
}

std::shared_ptr<Module> load_ptx(std::string text) {
  try {
    return std::make_shared<Module>(std::move(text));
  } catch (const PtxError& e) {
    record_ptx_error(e, nullptr, "");
    return nullptr;
  }
}

// The source line of a PTX line: of the instruction there, if any.
void record_ptx_error(const PtxError& e, const Unit* unit, const std::string& kernel) {
  Finding f;
  f.kind = Kind::kUnsupported;
  f.kernel = kernel;
  f.message = std::string(e.what()) + " (PTX line " + std::to_string(e.line) + ")";
  if (unit != nullptr)
    for (const Function& g : unit->functions)
      for (const Statement& s : g.body)
        if (s.ptx_line == e.line && s.loc >= 0) {
          const Loc& l = unit->locs[static_cast<size_t>(s.loc)];
          f.file = unit->files[static_cast<size_t>(l.file)];
          f.line = l.line;
        }
  record(std::move(f));
}

bool launch_ptx(Module& module, const std::string& name, Dim3 grid, Dim3 block,
                size_t dynamic_shared_bytes, void** args) {
  Kernel* k;
  try {
    k = &module.kernel(name);
  } catch (const PtxError& e) {
    record_ptx_error(e, &module.unit(), name);
    return false;
  }
  bool known = false;
  for (Kernel* other : launched()) known |= other == k;
  if (!known) launched().push_back(k);
  ++g_launches;
  return run_launch(*k, grid, block, dynamic_shared_bytes, args);
}
uint64_t n_launches() { return g_launches; }

void forget_module(const Module& module) {
  auto& list = launched();
  std::erase_if(list, [&](Kernel* k) { return module.owns(k); });
}

std::vector<Measure> kernel_measures() {
  std::vector<Measure> out;
  for (Kernel* k : launched()) {
    Measure m;
    m.kernel = k->name;
    for (size_t i = 0; i < k->code.size(); ++i) add(m, *k, i);
    out.push_back(std::move(m));
  }
  return out;
}

std::vector<Measure> line_measures(std::string_view part) {
  std::map<std::tuple<std::string, std::string, int>, Measure> lines;
  for (Kernel* k : launched()) {
    if (k->name.find(part) == std::string::npos) continue;
    for (size_t i = 0; i < k->code.size(); ++i) {
      int loc = k->code[i].loc;
      if (loc < 0) continue;
      const Loc& l = k->locs[static_cast<size_t>(loc)];
      Measure& m = lines[{k->name, k->files[static_cast<size_t>(l.file)], l.line}];
      m.kernel = k->name;
      m.file = k->files[static_cast<size_t>(l.file)];
      m.line = l.line;
      add(m, *k, i);
    }
  }
  std::vector<Measure> out;
  for (auto& [key, m] : lines) out.push_back(std::move(m));
  return out;
}

std::string unreached_text(std::string_view part) {
  std::string out;
  for (Kernel* k : launched()) {
    if (k->name.find(part) == std::string::npos) continue;
    for (size_t i = 0; i < k->code.size(); ++i) {
      const Instr& in = k->code[i];
      if (k->counters[i].warp_steps || in.text < 0) continue;
      int line = in.loc >= 0 ? k->locs[static_cast<size_t>(in.loc)].line : 0;
      out.append(k->name)
          .append(": line ")
          .append(std::to_string(line))
          .append(": ")
          .append(k->texts[static_cast<size_t>(in.text)])
          .append("\n");
    }
  }
  return out;
}

std::string measures_text() {
  std::string out;
  char row[512];
  auto line = [&](const std::string& name, const Measure& m) {
    std::snprintf(row, sizeof row,
                  "%-44.44s %5.1f %% of %5llu  %11llu steps  %9llu mma  wavefronts %9llu / %9llu  "
                  "sectors %9llu / %9llu\n",
                  name.c_str(),
                  100.0 * double(m.n_executed) / double(std::max<uint64_t>(m.n_instructions, 1)),
                  static_cast<unsigned long long>(m.n_instructions),
                  static_cast<unsigned long long>(m.warp_steps),
                  static_cast<unsigned long long>(m.n_mma),
                  static_cast<unsigned long long>(m.wavefronts),
                  static_cast<unsigned long long>(m.wavefronts_ideal),
                  static_cast<unsigned long long>(m.sectors),
                  static_cast<unsigned long long>(m.sectors_ideal));
    out += row;
  };
  for (const Measure& m : kernel_measures()) {
    line(m.kernel, m);
    for (const Measure& l : line_measures(m.kernel))
      if (l.wavefronts || l.sectors || l.n_mma)
        line(std::string("  ")
                 .append(l.file, l.file.find_last_of('/') + 1)
                 .append(":")
                 .append(std::to_string(l.line)),
             l);
  }
  return out;
}

void clear_measures() {
  for (Kernel* k : launched()) std::fill(k->counters.begin(), k->counters.end(), Counters{});
  launched().clear();
}

}  // namespace pf::ptxvm
