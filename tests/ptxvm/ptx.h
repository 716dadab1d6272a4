#pragma once
// The decoded program. Text becomes statements (parse.cc), statements become a flat array of
// `Instr` (decode.cc): every operand is an offset into the warp's register file, constants and
// special registers included, calls are expanded in place, branches are indices. The interpreter
// (machine.cc) only ever looks at this array.

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace pf::ptxvm {

struct Warp;
struct Instr;
using Handler = void (*)(Warp&, const Instr&, uint32_t mask);

enum class Type : uint8_t {
  kNone,
  kB8,
  kU8,
  kS8,
  kB16,
  kU16,
  kS16,
  kF16,
  kBf16,
  kB32,
  kU32,
  kS32,
  kF32,
  kF16x2,
  kBf16x2,
  kB64,
  kU64,
  kS64,
  kF64,
  kB128,
  kPred
};
Type type_named(const std::string& name);  // "u32"; kNone when it names no type
int size_of(Type type);                    // bytes; kPred counts 1

enum class Space : uint8_t { kGeneric, kGlobal, kShared, kLocal, kParam, kConst };
// How the interpreter's loop treats an instruction; everything but kPlain moves the pc itself.
enum class Flow : uint8_t { kPlain, kBranch, kBranchIndexed, kExit, kBarrier };

// Generic addresses of the windows; global memory lies below kParamBase.
inline constexpr uint64_t kParamBase = 0x00fc'0000'0000'0000;
inline constexpr uint64_t kLocalBase = 0x00fd'0000'0000'0000;
inline constexpr uint64_t kSharedBase = 0x00fe'0000'0000'0000;
// The first KiB of shared memory belongs to the system, as on sm_80 and later; so a null pointer
// never looks like a shared variable.
inline constexpr uint32_t kSharedStart = 1024;

// The first two predicates of every warp: always true, and the sink `_`.
inline constexpr uint32_t kPredTrue = 0, kPredSink = 1;

// Where source text came from. `parent` is the call site of inlined code, -1 at the top.
struct Loc {
  int file = 0, line = 0, parent = -1;
};

struct Instr {
  Handler fn = nullptr;
  // Registers: offsets in 32-bit words. Predicates: index * 2 + negated.
  uint32_t r[6] = {};
  uint32_t list = 0, list2 = 0;  // vectors: first index in Kernel::lists
  int64_t disp = 0, disp2 = 0;   // of address operands
  uint32_t target = 0;           // Flow::kBranch
  uint32_t guard = 0;            // predicate; kPredTrue * 2 when unguarded
  int32_t loc = -1;              // in Kernel::locs
  int32_t text = -1;             // in Kernel::texts
  Flow flow = Flow::kPlain;
  Type type = Type::kNone, type2 = Type::kNone;
  Space space = Space::kGeneric;
  uint8_t vec = 1;                                // elements of a vector access; operands of an mma
  uint8_t mode = 0, mode2 = 0;                    // per opcode, see its selector
  bool address64 = false;                         // the address register is 64 bits wide
  bool ftz = false, sat = false, strong = false;  // strong: volatile, relaxed, acquire, release
  bool fence = false;
  uint32_t size = 0;  // bytes of one element
};

struct Counters {
  uint64_t warp_steps = 0, lane_steps = 0;
  uint64_t wavefronts = 0, wavefronts_ideal = 0, sectors = 0, sectors_ideal = 0;
};

struct Param {
  std::string name;
  uint32_t bytes = 0, align = 1, offset = 0;
};

struct Kernel {
  std::string name;
  std::vector<Instr> code;
  std::vector<uint32_t> lists;
  std::vector<Loc> locs;
  std::vector<std::string> texts, files;
  std::vector<int> ptx_lines;  // parallel to texts: where the instruction stands in the PTX
  std::vector<Param> params;
  uint32_t param_bytes = 0, shared_bytes = 0, local_bytes = 0;  // shared: static
  bool dynamic_shared = false;
  uint32_t dynamic_align = 16;
  uint32_t n_words = 0, n_preds = 2;                       // of the register file
  std::vector<std::pair<uint32_t, uint32_t>> constants32;  // (register, value), all lanes
  std::vector<std::pair<uint32_t, uint64_t>> constants64;
  std::vector<uint32_t> dynamic_base32, dynamic_base64;  // registers that hold where it starts
  std::vector<std::pair<std::string, uint32_t>> shared_symbols;
  uint32_t max_threads = 0, required_threads = 0, min_blocks = 0;  // 0: not stated
  std::vector<Counters> counters;                                  // parallel to code
  uint64_t n_launches = 0;
};

// Special registers occupy the front of the register file, 32 words each.
enum Special : uint32_t {
  kTidX,
  kTidY,
  kTidZ,
  kNtidX,
  kNtidY,
  kNtidZ,
  kCtaidX,
  kCtaidY,
  kCtaidZ,
  kNctaidX,
  kNctaidY,
  kNctaidZ,
  kLaneid,
  kWarpid,
  kNwarpid,
  kLanemaskEq,
  kLanemaskLt,
  kLanemaskLe,
  kLanemaskGt,
  kLanemaskGe,
  kSmid,
  kNsmid,
  kClock,
  kDynamicSmem,
  kTotalSmem,
  kGridid,
  kSpecials
};

}  // namespace pf::ptxvm
