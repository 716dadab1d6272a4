#pragma once
// Who touched what, and was it ordered? A happens-before detector after FastTrack (Flanagan and
// Freund, PLDI 2009), cut to what a thread block needs.
//
// Each warp has a clock that ticks when it passes a barrier or a __syncwarp. An access leaves a
// stamp (clock, lane, warp) in its granule's cell. Warp w has `known[w][v]`: up to which clock of
// warp v everything happened before. A barrier over a set of warps joins their knowledge. An access
// conflicts with an earlier one iff they share a byte, at least one writes, they are not both
// atomic, the earlier stamp is not known, and they come from different threads.
//
// Between blocks nothing is ordered, except through the "last block" pattern: the earlier block
// fenced (__threadfence) after its access and the later one has executed an atomic or an acquire.
//
// Exact for words. Two limits, both on the quiet side: of many readers the last two warps are
// remembered; sub-word accesses by several lanes of one warp to one word are not told apart.

#include <array>
#include <cstdint>
#include <string>
#include <unordered_map>

#include "ptxvm/memory.h"

namespace pf::ptxvm {

class Shadow {
 public:
  static constexpr uint32_t kWarps = 32;
  struct Conflict {
    Kind kind;
    std::string text;
  };
  using Knowledge = std::array<uint32_t, kWarps>;

  void begin_launch();
  void begin_block(bool races, bool same_value_allowed);

  // Each returns false and fills `conflict` when the access is not allowed. `offset` and `n` are
  // bytes within the region. `value` are the bytes about to be stored (null: unlike the present).
  bool read(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane, bool atomic);
  bool write(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane, bool atomic,
             const uint8_t* value);
  // cp.async: from begin to end nobody may touch the target.
  bool begin_async(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane);
  void end_async(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane);
  // True when this launch wrote any byte of it: ld.global.nc may not see that.
  bool written_in_launch(const Region& r, uint64_t offset, uint32_t n) const;

  void warp_sync(uint32_t warp);
  // bar.arrive: what this warp gives to the barrier, without taking anything.
  Knowledge arrive(uint32_t warp);
  // Warps in `members` learn what all of them, and `arrived`, knew.
  void barrier(uint32_t members, const Knowledge& arrived);
  void fence(uint32_t warp);
  void acquire() { acquired_ = true; }
  uint32_t serial() const { return serial_; }

  Conflict conflict;

 private:
  uint32_t stamp(uint32_t warp, uint32_t lane) const {
    return clock_[warp] << 11 | lane << 5 | warp;
  }
  bool clashes(uint32_t stamp, uint8_t theirs, uint8_t mine, uint32_t warp, uint32_t lane) const;
  bool excused(uint32_t block, uint32_t stamp, bool atomic) const;
  bool check_write_seen(Region& r, Cell& c, uint8_t bytes, uint32_t warp, uint32_t lane,
                        bool atomic, const char* what);
  void note_read(Cell& c, uint8_t bytes, uint32_t warp, uint32_t lane);
  bool report(const Region& r, const Cell& c, uint32_t stamp, const char* what, bool across);

  bool races_ = true, same_value_allowed_ = true, acquired_ = false;
  uint32_t serial_ = 0, launch_first_ = 1;
  Knowledge clock_ = {};
  std::array<Knowledge, kWarps> known_ = {};
  std::unordered_map<uint32_t, Knowledge> fenced_;  // block serial -> clocks made visible
};

}  // namespace pf::ptxvm
