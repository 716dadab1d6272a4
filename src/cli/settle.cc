#include "cli/settle.h"

#include <cstdio>

#include "base/cpus.h"
#include "engine/unused_options.h"

namespace pf {

std::vector<std::string> settle(EngineOptions* o) {
  std::vector<std::string> lines = unused_options(*o);
  const int32_t cpus = n_usable_cpus();
  if (o->threads > cpus) {
    lines.push_back("--threads " + std::to_string(o->threads) + ": this process has " +
                    std::to_string(cpus) + (cpus == 1 ? " CPU" : " CPUs") + "; " +
                    std::to_string(cpus) + " compute");
    o->threads = cpus;
  }
  return lines;
}

std::string unused_alpha(const EngineOptions& o) {
  if (o.alpha == EngineOptions().alpha || o.acceptance.starts_with("threshold")) return "";
  return "--alpha: --acceptance " + o.acceptance +
         " has no use for it; it is of threshold and threshold-literal";
}

void settle_aloud(EngineOptions* o) {
  for (const std::string& line : settle(o))
    std::fprintf(stderr, "pilotfish: warning: %s\n", line.c_str());
}

}  // namespace pf
