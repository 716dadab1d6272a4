// Findings as text, the process-wide settings, and PTX loaded and launched by name.

#include "ptxvm/report.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "ptxvm/machine.h"

namespace pf::ptxvm {
namespace {

std::vector<Finding> g_findings;

std::string triple(const int* v) {
  return std::string("(")
      .append(std::to_string(v[0]))
      .append(",")
      .append(std::to_string(v[1]))
      .append(",")
      .append(std::to_string(v[2]))
      .append(")");
}

}  // namespace

void (*clear_sticky_error)() = nullptr;

const char* kind_name(Kind kind) {
  static const char* kNames[] = {"out-of-bounds",
                                 "use-after-free",
                                 "misaligned",
                                 "peer-access",
                                 "read-only-write",
                                 "shared-race",
                                 "global-race",
                                 "uninitialised-read",
                                 "divergent-barrier",
                                 "deadlock",
                                 "partial-warp",
                                 "async-copy",
                                 "non-coherent-read",
                                 "step-limit",
                                 "launch-config",
                                 "shared-memory-limit",
                                 "assert",
                                 "trap",
                                 "unsupported",
                                 "host-access",
                                 "runtime-use"};
  return kNames[static_cast<int>(kind)];
}

std::string to_text(const Finding& f) {
  std::string text = f.file.empty() ? (f.kernel.empty() ? "cuda" : demangled(f.kernel))
                                    : f.file + ":" + std::to_string(f.line);
  text += ": error: " + std::string(kind_name(f.kind)) + ": " + f.message + "\n";
  if (!f.kernel.empty()) {
    text += "  note: kernel " + demangled(f.kernel) + ", block " + triple(f.block);
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

bool on_machine() { return true; }

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
  if (clear_sticky_error != nullptr) clear_sticky_error();
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
  count_launch(*k, grid, block, dynamic_shared_bytes);
  return run_launch(*k, grid, block, dynamic_shared_bytes, args);
}

}  // namespace pf::ptxvm
