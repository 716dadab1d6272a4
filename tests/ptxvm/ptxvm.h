#pragma once
// A PTX virtual machine: the public face.
//
// A test program is compiled by nvcc with its kernels left as PTX (the CMake function
// `ptxvm_executable`) and linked with this library in place of libcudart. `<<<>>>`, streams, events
// and graphs then run here, lane by lane, with every access checked. Most tests need only
// <cuda_runtime.h>; this header adds the settings and the findings, measure.h the measures.
//
// It takes what nvcc 13 emits for sm_80 code. Not here: textures, tf32 and fp8 formats, sparse mma,
// wgmma, mbarrier and bulk copies, clusters, indirect calls, recursion, dynamic parallelism.
// Whatever is not here is refused with its source line, never skipped. `__device__` variables exist
// once for all devices, and a failed kernel makes the error sticky for all of them.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ptxvm/measure.h"

namespace pf::ptxvm {

// What a check found. One launch stops at its first finding.
enum class Kind : uint8_t {
  kOutOfBounds,        // outside every allocation, or across the end of one
  kUseAfterFree,       // inside an allocation that was freed
  kMisaligned,         // address not a multiple of the access size
  kPeerAccess,         // memory of another device without peer access
  kReadOnlyWrite,      // a store to __constant__ memory or to a kernel parameter
  kSharedRace,         // two threads, one shared address, no barrier between them
  kGlobalRace,         // the same in global memory; between blocks too
  kUninitialisedRead,  // shared or global bytes that nobody has written
  kDivergentBarrier,   // a barrier that only a part of the warp or of the block reaches
  kDeadlock,           // every living warp waits
  kPartialWarp,        // mma, ldmatrix, shfl, vote... without all the lanes they name
  kAsyncCopy,          // cp.async target used in flight, or a thread exits with copies in flight
  kNonCoherentRead,    // ld.global.nc of memory written in the same launch
  kStepLimit,          // more instructions than Settings::max_steps
  kLaunchConfig,       // grid, block, __launch_bounds__, missing or too few arguments
  kSharedMemoryLimit,  // more shared memory than the architecture or the attribute allows
  kAssert,             // device assert()
  kTrap,               // trap, brkpt, __builtin_unreachable
  kUnsupported,        // PTX that this machine does not implement
  kHostAccess,         // reported by the signal handler before the program ends
  kRuntimeUse,         // misuse of the runtime: copies past an allocation, double free, ...
};
const char* kind_name(Kind kind);

struct Finding {
  Kind kind = Kind::kTrap;
  std::string message;     // one line, what and where in memory
  std::string kernel;      // empty for kRuntimeUse
  std::string file;        // of the source line; empty when compiled without -lineinfo
  int line = 0;            // 0: unknown
  std::string inlined_at;  // "file:line" of the caller when the line was inlined, else empty
  std::string ptx;         // the instruction
  int block[3] = {0, 0, 0};
  int thread[3] = {-1, -1, -1};
};
// "reduce.cu:12: error: shared-race: ... \n  note: ..." in a compiler's form, ends with '\n'.
std::string to_text(const Finding& finding);

// An architecture's limits; described_device("sm_80" | "sm_86" | "sm_89" | "sm_90").
struct Device {
  std::string name;
  int major = 8, minor = 0;
  int n_sms = 108;
  int max_threads_per_sm = 2048, max_blocks_per_sm = 32;
  size_t shared_per_sm_bytes = 164 << 10, shared_per_block_optin_bytes = 163 << 10;
  size_t l2_bytes = 40u << 20;
};
Device described_device(std::string_view name);

struct Settings {
  // 0: blocks in order, warps round robin to the next barrier. Otherwise a random order of blocks,
  // warps, time slices and streams; every seed is a different, repeatable schedule.
  uint32_t seed = 0;
  bool races = true, uninitialised = true, alignment = true;
  // Unordered writes of the same value (every thread stores the same flag) are not a race.
  bool same_value_writes_allowed = true;
  // CUDA lets a block barrier pass once every thread that still lives is there; kernels of this
  // project do not rely on it, so a thread that left early is a finding.
  bool exited_threads_may_skip_barriers = false;
  bool measure = true;                      // wavefronts and sectors
  bool note_launches = false;               // for take_launches()
  uint64_t max_steps = 400'000'000;         // warp instructions of one block
  size_t device_memory_bytes = 8ull << 30;  // of each device
  bool print_findings = true;               // to stderr, at once
  int registers_per_thread = 64;            // PTX has no register count; used by the occupancy
  int n_devices = 1;                        // each like `device`
  Device device = described_device("sm_80");
};
Settings& settings();  // of the process; change it between launches only

// False where tests are linked with a device's own runtime (tests/device): nothing to measure.
bool on_machine();

// Findings since the last call, oldest first. Also clears the sticky error of the runtime, so that
// a test can go on after a planted bug.
std::vector<Finding> take_findings();

// --- PTX text directly (the tests of the machine itself, and the mutation run) ---
struct Dim3 {
  uint32_t x = 1, y = 1, z = 1;
};
// Kernels in the order in which they ran, graph nodes included, since the last call; noted while
// Settings::note_launches.
struct Launched {
  std::string kernel;  // demangled, without its parameters
  Dim3 grid;
};
std::vector<Launched> take_launches();

class Module;
// On an error returns null and leaves a finding (kUnsupported) that names the line.
std::shared_ptr<Module> load_ptx(std::string text);
// Runs at once. `args` as for cudaLaunchKernel. False: a finding was made.
bool launch_ptx(Module& module, const std::string& kernel, Dim3 grid, Dim3 block,
                size_t dynamic_shared_bytes, void** args);
// --- mutation run: a program of one .cu file whose PTX is looked at and replaced ---
std::string registered_ptx();
void replace_ptx(std::string text);  // from the next launch on
// Lines of the PTX (from 1) with an instruction that some lane executed since clear_measures().
std::vector<int> executed_ptx_lines(std::string_view kernel_part);

}  // namespace pf::ptxvm
