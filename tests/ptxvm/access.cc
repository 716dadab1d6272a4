// One lane's memory access: which region, is it whole inside, aligned, initialised, ordered? And
// the two measures of a warp's access: passes of the shared banks, sectors of global memory.

#include <algorithm>
#include <cstring>

#include "ptxvm/machine.h"

namespace pf::ptxvm {
namespace {

const char* verb(Access kind) {
  return kind == Access::kRead ? "reads " : kind == Access::kWrite ? "writes " : "updates ";
}

Space window_of(uint64_t address) {
  switch (address >> 48) {
    case kSharedBase >> 48:
      return Space::kShared;
    case kLocalBase >> 48:
      return Space::kLocal;
    case kParamBase >> 48:
      return Space::kParam;
    default:
      return Space::kGlobal;
  }
}

[[noreturn]] void out_of_window(Warp& w, const Instr& in, int lane, const char* what,
                                uint64_t offset, uint32_t n, uint64_t size) {
  fail(w, in, lane, Kind::kOutOfBounds,
       std::to_string(n) + " bytes at offset " + std::to_string(static_cast<int64_t>(offset)) +
           " of " + what + ", which has " + std::to_string(size) + " bytes");
}

// Looks the region up, with the last hit of this thread of execution as a first guess.
Region* find_global(Warp& w, const Instr& in, int lane, uint64_t address, uint32_t n) {
  static Region* last = nullptr;
  static uint32_t last_serial = 0;
  uint32_t serial = w.block->shadow->serial();
  if (last != nullptr && last_serial == serial && last->holds(address, n)) return last;
  DeviceMemory& memory = DeviceMemory::get();
  Region* r = memory.find(address);
  if (r != nullptr && r->holds(address, n)) {
    if (!memory.reachable(*r))
      fail(w, in, lane, Kind::kPeerAccess,
           r->label + " is on device " + std::to_string(r->device) +
               "; this kernel runs on device " + std::to_string(memory.running_on) +
               " without cudaDeviceEnablePeerAccess");
    last = r;
    last_serial = serial;
    return r;
  }
  if (r != nullptr)
    fail(w, in, lane, Kind::kOutOfBounds,
         std::to_string(n) + " bytes at byte " + std::to_string(address - r->base) + " of " +
             r->label + " cross its end");
  bool freed = false;
  std::string text = memory.describe(address, &freed);
  fail(w, in, lane, freed ? Kind::kUseAfterFree : Kind::kOutOfBounds,
       std::to_string(n) + " bytes at " + text);
}

}  // namespace

uint8_t* resolve(Warp& w, const Instr& in, int lane, Space space, uint64_t address, uint32_t n,
                 bool writes, Region** region, uint64_t* offset) {
  Block& b = *w.block;
  if (b.alignment && (address & (n - 1)))
    fail(w, in, lane, Kind::kMisaligned,
         "an access of " + std::to_string(n) +
             " bytes needs an address that is a multiple of it, this one is " +
             std::to_string(address & (n - 1)) + " past");
  if (space == Space::kGeneric) space = window_of(address);
  *region = nullptr;
  switch (space) {
    case Space::kShared: {
      if (address >> 48 == kSharedBase >> 48) address -= kSharedBase;
      if (!b.shared.holds(address, n))
        out_of_window(w, in, lane, "the block's shared memory", address - kSharedStart, n,
                      b.shared.bytes);
      *region = &b.shared;
      *offset = address - kSharedStart;
      return b.shared.data + *offset;
    }
    case Space::kLocal: {
      if (address >> 48 == kLocalBase >> 48) address -= kLocalBase;
      uint64_t size = b.kernel->local_bytes;
      if (address > size || n > size - address)
        out_of_window(w, in, lane, "the thread's local memory", address, n, size);
      return &w.local[static_cast<uint64_t>(lane) * size + address];
    }
    case Space::kParam: {
      if (address >> 48 == kLocalBase >> 48)
        return resolve(w, in, lane, Space::kLocal, address, n, writes, region, offset);
      if (address >> 48 != kParamBase >> 48) address += kParamBase;
      if (!b.params.holds(address, n))
        out_of_window(w, in, lane, "the kernel's parameters", address - kParamBase, n,
                      b.params.bytes);
      if (writes) fail(w, in, lane, Kind::kReadOnlyWrite, "a store to a kernel parameter");
      *region = &b.params;
      *offset = address - kParamBase;
      return b.params.data + *offset;
    }
    default: {
      Region* r = find_global(w, in, lane, address, n);
      if (writes && r->read_only) fail(w, in, lane, Kind::kReadOnlyWrite, "a store to " + r->label);
      *region = r;
      *offset = address - r->base;
      return r->data + *offset;
    }
  }
}

uint8_t* access(Warp& w, const Instr& in, int lane, Space space, uint64_t address, uint32_t n,
                Access kind, const uint8_t* value) {
  Block& b = *w.block;
  Region* r;
  uint64_t offset = 0;
  uint8_t* data = resolve(w, in, lane, space, address, n, kind != Access::kRead, &r, &offset);
  if (r == nullptr || !r->checked) return data;
  bool atomic = kind == Access::kAtomic || in.strong;
  bool good =
      kind == Access::kRead
          ? b.shadow->read(*r, offset, n, w.id, static_cast<uint32_t>(lane), atomic)
          : b.shadow->write(*r, offset, n, w.id, static_cast<uint32_t>(lane), atomic, value);
  if (!good) fail(w, in, lane, b.shadow->conflict.kind, b.shadow->conflict.text);
  if (kind != Access::kWrite && b.uninitialised) {
    uint64_t bad = r->first_unwritten(offset, n);
    if (bad < n)
      fail(w, in, lane, Kind::kUninitialisedRead,
           std::string(verb(kind)) + "byte " + std::to_string(offset + bad) + " of " + r->label +
               ", which nobody has written");
  }
  if (kind != Access::kRead) r->set_written(offset, n);
  return data;
}

namespace {

// Passes of the 32 banks for the words of some lanes: the most different words in one bank.
struct Banks {
  uint64_t words[32][32];
  uint8_t count[32] = {};
  uint32_t worst = 0, distinct = 0;
  void add(uint64_t word) {
    uint64_t* in_bank = words[word & 31];
    uint8_t& n = count[word & 31];
    for (uint32_t i = 0; i < n; ++i)
      if (in_bank[i] == word) return;
    in_bank[n++] = word;
    worst = std::max<uint32_t>(worst, n);
    ++distinct;
  }
};
void measure_shared(Counters& count, const uint64_t* address, uint32_t mask, uint32_t n) {
  // A warp access of 8 (16) bytes per lane goes out by half (quarter) warps.
  uint32_t group = 32 / std::max(1u, n / 4);
  uint64_t distinct = 0;
  for (uint32_t first = 0; first < 32; first += group) {
    Banks banks;
    for (uint32_t l = first; l < first + group; ++l)
      if (mask >> l & 1)
        for (uint64_t u = address[l] / 4; u <= (address[l] + n - 1) / 4; ++u) banks.add(u);
    count.wavefronts += banks.worst;
    distinct += banks.distinct;
  }
  count.wavefronts_ideal += (distinct + 31) / 32;
}
void measure_global(Counters& count, const uint64_t* address, uint32_t mask, uint32_t n) {
  uint64_t from[32], distinct = 0, sectors = 0, end = 0, next_sector = 0;
  uint32_t k = 0;
  each_lane(mask, [&](int l) { from[k++] = address[l]; });
  if (!std::is_sorted(from, from + k)) std::sort(from, from + k);
  for (uint32_t i = 0; i < k; ++i) {
    uint64_t last = from[i] + n, fresh = std::max(from[i], end);
    if (last > fresh) distinct += last - fresh, end = last;
    uint64_t first_sector = std::max(from[i] / 32, next_sector), last_sector = (last - 1) / 32;
    if (last_sector >= first_sector)
      sectors += last_sector - first_sector + 1, next_sector = last_sector + 1;
  }
  count.sectors += sectors;
  count.sectors_ideal += (distinct + 31) / 32;
}

}  // namespace

void measure_access(Warp& w, const Instr& in, Space space, const uint64_t* address, uint32_t mask,
                    uint32_t n) {
  Counters& count =
      w.block->kernel->counters[static_cast<size_t>(&in - w.block->kernel->code.data())];
  if (space == Space::kGeneric) space = window_of(address[__builtin_ctz(mask)]);
  if (space == Space::kShared) measure_shared(count, address, mask, n);
  if (space == Space::kGlobal) measure_global(count, address, mask, n);
}

void complete_copies(Warp& w, uint32_t mask, uint32_t keep_groups) {
  Block& b = *w.block;
  auto done = [&](const AsyncCopy& c) {
    if (!(mask >> c.lane & 1) || c.group + keep_groups >= w.commits[c.lane]) return false;
    uint8_t* to = b.shared.data + c.target;
    if (c.source_bytes) std::memcpy(to, c.source, c.source_bytes);
    std::memset(to + c.source_bytes, 0, c.bytes - c.source_bytes);
    b.shared.set_written(c.target, c.bytes);
    b.shadow->end_async(b.shared, c.target, c.bytes, w.id, c.lane);
    return true;
  };
  w.copies.erase(std::remove_if(w.copies.begin(), w.copies.end(), done), w.copies.end());
}

}  // namespace pf::ptxvm
