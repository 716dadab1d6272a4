#pragma once
// What kernels did on the machine, for the budgets of their tests:
//
//   clear_measures();
//   rms_norm(...);                                    // any number of launches
//   Measure m = measure("rms_norm_kernel");           // sums every instantiation of that name
//   EXPECT_GE(m.coverage(), 0.95) << unreached_text("rms_norm_kernel");
//   EXPECT_LE(m.wavefronts_over_ideal(), 1.0);        // no bank conflict
//   EXPECT_LE(m.sectors_over_ideal(), 1.05);
//   EXPECT_EQ(m.n_mma, ...);
//
// A kernel's name here is the mangled or the demangled one; `part` is any piece of either. Launches
// on streams count when they have run, so synchronise first. Settings::measure is on by default.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace pf::ptxvm {

// Work of one source line or kernel. Wavefronts: passes of the shared-memory banks (ideal: distinct
// bytes / 128). Sectors: 32-byte pieces of global memory (ideal: distinct bytes / 32). Both per
// warp access and summed.
struct Measure {
  std::string kernel;  // mangled
  std::string file;    // of a line, else empty
  int line = 0;        // 0 in a kernel's total
  uint64_t n_launches = 0;
  // PTX instructions here, and of these the ones that some lane executed.
  uint64_t n_instructions = 0, n_executed = 0;
  uint64_t warp_steps = 0, lane_steps = 0, n_mma = 0;
  uint64_t wavefronts = 0, wavefronts_ideal = 0, sectors = 0, sectors_ideal = 0;
  uint64_t static_shared_bytes = 0, local_bytes = 0;  // of a block, of a thread; of a kernel

  double coverage() const {
    return n_instructions == 0 ? 0 : double(n_executed) / double(n_instructions);
  }
  double wavefronts_over_ideal() const {
    return wavefronts_ideal == 0 ? 1 : double(wavefronts) / double(wavefronts_ideal);
  }
  double sectors_over_ideal() const {
    return sectors_ideal == 0 ? 1 : double(sectors) / double(sectors_ideal);
  }
};

Measure measure(std::string_view part);  // all kernels of that name as one; zeros when none ran
std::vector<Measure> kernel_measures();  // one per kernel launched so far
std::vector<Measure> line_measures(std::string_view part);  // per source line

// PTX instructions that no lane executed, grouped by the source line that they come from.
struct UnreachedLine {
  std::string kernel, file;  // file empty: compiled without -lineinfo, or a library's code
  int line = 0;
  std::string inlined_at;        // "file:line" of the caller when the line was inlined, else empty
  uint64_t n_instructions = 0;   // of the line
  std::vector<std::string> ptx;  // the unreached ones
};
std::vector<UnreachedLine> unreached_lines(std::string_view part);
std::string unreached_text(std::string_view part);  // the same, "file:line: 2 of 5: ptx; ptx"

std::string measures_text();  // kernels, and their lines that touch memory or multiply, as a table
void clear_measures();
uint64_t n_launches();  // kernels run since the start, graph nodes included

}  // namespace pf::ptxvm
