#include "ptxvm/shadow.h"

#include <algorithm>

#include "base/check.h"

namespace pf::ptxvm {
namespace {

// Lane codes beside 0..31: several lanes touched the same bytes; several lanes touched the word but
// not the same bytes (their mutual order is then not checked).
constexpr uint32_t kSeveral = 32, kMixed = 33;
uint32_t warp_of(uint32_t stamp) { return stamp & 31; }
uint32_t lane_of(uint32_t stamp) { return stamp >> 5 & 63; }
uint32_t clock_of(uint32_t stamp) { return stamp >> 11; }
uint32_t with_lane(uint32_t stamp, uint32_t lane) { return (stamp & ~(63u << 5)) | lane << 5; }

// Bytes of [offset, offset + n) that lie in granule g.
uint8_t bytes_in(uint64_t g, uint64_t offset, uint32_t n) {
  uint64_t a = std::max(offset, g * 4), b = std::min(offset + n, g * 4 + 4);
  return static_cast<uint8_t>(((1u << (b - a)) - 1) << (a & 3));
}

}  // namespace

void Shadow::begin_launch() {
  launch_first_ = serial_ + 1;
  fenced_.clear();
}

void Shadow::begin_block(bool races, bool same_value_allowed) {
  ++serial_;
  races_ = races;
  same_value_allowed_ = same_value_allowed;
  acquired_ = false;
  clock_.fill(1);
  for (auto& row : known_) row.fill(0);
}

bool Shadow::clashes(uint32_t stamp, uint8_t theirs, uint8_t mine, uint32_t warp,
                     uint32_t lane) const {
  if (!(theirs & mine & 0xf) || clock_of(stamp) <= known_[warp][warp_of(stamp)]) return false;
  if (warp_of(stamp) != warp) return true;
  return lane_of(stamp) != lane && lane_of(stamp) != kMixed;
}

bool Shadow::excused(uint32_t block, uint32_t stamp, bool atomic) const {
  if (!acquired_) return false;
  if (atomic) return true;
  auto it = fenced_.find(block);
  return it != fenced_.end() && clock_of(stamp) <= it->second[warp_of(stamp)];
}

bool Shadow::report(const Region& r, const Cell& c, uint32_t stamp, const char* what, bool across) {
  uint64_t granule = static_cast<uint64_t>(&c - r.shadow->cells);
  std::string who = "warp " + std::to_string(warp_of(stamp));
  if (lane_of(stamp) < 32) who += " lane " + std::to_string(lane_of(stamp));
  conflict.kind = r.is_shared ? Kind::kSharedRace : Kind::kGlobalRace;
  conflict.text = std::string(what) + " " + (across ? "another block (its " + who + ")" : who) +
                  (across ? "" : " without a barrier between them") + ", at byte " +
                  std::to_string(granule * 4) + " of " + r.label;
  return false;
}

// The part that reads and writes share: is the last write visible, and not in flight?
bool Shadow::check_write_seen(Region& r, Cell& c, uint8_t bytes, uint32_t warp, uint32_t lane,
                              bool atomic, const char* what) {
  if (c.write_block == serial_) {
    if ((c.write_mask & kInFlight) && (c.write_mask & bytes)) {
      conflict = {Kind::kAsyncCopy,
                  "this address is the target of a cp.async in flight (issued by warp " +
                      std::to_string(warp_of(c.write)) + " lane " +
                      std::to_string(lane_of(c.write)) + "): wait_group is missing or too weak"};
      return false;
    }
    if (races_ && !(atomic && (c.write_mask & kAtomic)) &&
        clashes(c.write, c.write_mask, bytes, warp, lane))
      return report(r, c, c.write, what, false);
  } else if (races_ && !r.is_shared && c.write_block >= launch_first_ &&
             (c.write_mask & bytes & 0xf) && !(atomic && (c.write_mask & kAtomic)) &&
             !excused(c.write_block, c.write, c.write_mask & kAtomic)) {
    return report(r, c, c.write, what, true);
  }
  return true;
}

void Shadow::note_read(Cell& c, uint8_t bytes, uint32_t warp, uint32_t lane) {
  uint32_t me = stamp(warp, lane);
  if (c.read_block != serial_) {
    c.read_block = serial_;
    c.read0 = c.read1 = 0;
    c.read0_mask = c.read1_mask = 0;
  }
  auto merge = [&](uint32_t& s, uint8_t& mask) {
    if (clock_of(s) != clock_of(me)) {
      s = me, mask = bytes;
    } else {
      if (lane_of(s) != lane)
        s = with_lane(s, mask == bytes && lane_of(s) != kMixed ? kSeveral : kMixed);
      mask |= bytes;
    }
  };
  if (c.read0 == 0)
    c.read0 = me, c.read0_mask = bytes;
  else if (warp_of(c.read0) == warp)
    merge(c.read0, c.read0_mask);
  else if (c.read1 != 0 && warp_of(c.read1) == warp)
    merge(c.read1, c.read1_mask);
  else {
    c.read1 = c.read0, c.read1_mask = c.read0_mask;
    c.read0 = me, c.read0_mask = bytes;
  }
}

bool Shadow::read(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane,
                  bool atomic) {
  Cell* cells = r.shadow->cells;
  uint32_t me = stamp(warp, lane);
  const Knowledge& known = known_[warp];
  bool whole = ((offset | n) & 3) == 0;
  for (uint64_t g = offset >> 2; g * 4 < offset + n; ++g) {
    uint8_t bytes = whole ? 0xf : bytes_in(g, offset, n);
    Cell& c = cells[g];
    bool seen = c.write_block == serial_  // mostly: written before the last barrier, or not at all
                    ? !(c.write_mask & kInFlight) && clock_of(c.write) <= known[warp_of(c.write)]
                    : c.write_block < launch_first_ || r.is_shared;
    if (!seen && !check_write_seen(r, c, bytes, warp, lane, atomic, "reads what was written by"))
      return false;
    if (!races_ || atomic || (c.read_block == serial_ && c.read0 == me && c.read0_mask == bytes))
      continue;
    note_read(c, bytes, warp, lane);
  }
  return true;
}

bool Shadow::write(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane,
                   bool atomic, const uint8_t* value) {
  Cell* cells = r.shadow->cells;
  uint32_t me = stamp(warp, lane);
  for (uint64_t g = offset >> 2; g * 4 < offset + n; ++g) {
    uint8_t bytes = bytes_in(g, offset, n);
    Cell& c = cells[g];
    bool same = same_value_allowed_ && value != nullptr;
    uint64_t from = std::max(offset, g * 4);
    for (uint64_t i = from; same && i < offset + n && i < g * 4 + 4; ++i)
      same = r.data[i] == value[i - offset];
    bool in_flight = c.write_block == serial_ && (c.write_mask & kInFlight);
    if ((!same || in_flight) &&
        !check_write_seen(r, c, bytes, warp, lane, atomic, "overwrites what was written by"))
      return false;
    if (races_ && c.read_block == serial_) {
      if (clashes(c.read0, c.read0_mask, bytes, warp, lane))
        return report(r, c, c.read0, "overwrites what is read by", false);
      if (clashes(c.read1, c.read1_mask, bytes, warp, lane))
        return report(r, c, c.read1, "overwrites what is read by", false);
    } else if (races_ && !r.is_shared && c.read_block >= launch_first_ && !same &&
               ((c.read0_mask | c.read1_mask) & bytes) && !acquired_) {
      return report(r, c, c.read0, "overwrites what is read by", true);
    }
    // Several lanes of one warp in one interval: keep the union, and forget their mutual order.
    bool merge = c.write_block == serial_ && warp_of(c.write) == warp &&
                 clock_of(c.write) == clock_of(me) && lane_of(c.write) != lane;
    c.write_mask =
        static_cast<uint8_t>(bytes | (merge ? c.write_mask & 0xf : 0) | (atomic ? kAtomic : 0));
    c.write = merge ? with_lane(me, kMixed) : me;
    c.write_block = serial_;
    c.read0 = c.read1 = 0;
    c.read0_mask = c.read1_mask = 0;
  }
  return true;
}

bool Shadow::begin_async(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane) {
  if (!write(r, offset, n, warp, lane, false, nullptr)) return false;
  for (uint64_t g = offset >> 2; g * 4 < offset + n; ++g)
    r.shadow->cells[g].write_mask |= kInFlight;
  return true;
}

void Shadow::end_async(Region& r, uint64_t offset, uint32_t n, uint32_t warp, uint32_t lane) {
  for (uint64_t g = offset >> 2; g * 4 < offset + n; ++g) {
    Cell& c = r.shadow->cells[g];
    c.write = stamp(warp, lane);
    c.write_mask = static_cast<uint8_t>(c.write_mask & ~kInFlight);
    c.read0 = c.read1 = 0;
  }
}

bool Shadow::written_in_launch(const Region& r, uint64_t offset, uint32_t n) const {
  for (uint64_t g = offset >> 2; g * 4 < offset + n; ++g) {
    const Cell& c = r.shadow->cells[g];
    if (c.write_block >= launch_first_ && (c.write_mask & bytes_in(g, offset, n))) return true;
  }
  return false;
}

void Shadow::warp_sync(uint32_t warp) {
  known_[warp][warp] = clock_[warp]++;
  check(clock_[warp] < 1u << 21, "ptxvm: more than two million barriers in one block");
}

Shadow::Knowledge Shadow::arrive(uint32_t warp) {
  warp_sync(warp);
  return known_[warp];
}

void Shadow::barrier(uint32_t members, const Knowledge& arrived) {
  Knowledge all = arrived;
  for (uint32_t w = 0; w < kWarps; ++w) {
    if (!(members >> w & 1)) continue;
    warp_sync(w);
    for (uint32_t v = 0; v < kWarps; ++v) all[v] = std::max(all[v], known_[w][v]);
  }
  for (uint32_t w = 0; w < kWarps; ++w)
    if (members >> w & 1) known_[w] = all;
}

void Shadow::fence(uint32_t warp) {
  auto [it, fresh] = fenced_.try_emplace(serial_);
  if (fresh) it->second.fill(0);
  for (uint32_t v = 0; v < kWarps; ++v)
    it->second[v] = std::max(it->second[v], v == warp ? clock_[v] : known_[warp][v]);
}

}  // namespace pf::ptxvm
