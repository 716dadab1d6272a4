#pragma once
// Device memory and what is known about its bytes.
//
// Global memory lives in one arena that is mapped twice in spirit: the device addresses are a
// reserved range without access rights, so a host that dereferences a device pointer faults (and
// the handler says so); the bytes lie at the same offset in a second range that only the machine
// knows. Addresses of freed memory are not reused until the range is used up.
//
// Each 4-byte granule of a region has a `Cell`: who wrote and who read it last (shadow.cc decides
// from it what is a race) and, apart, one byte saying which of its four bytes were ever written.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "ptxvm/ptxvm.h"

namespace pf::ptxvm {

// 24 bytes per granule; all zero means untouched.
struct Cell {
  uint32_t write = 0;                        // stamp of the last writer
  uint32_t read0 = 0, read1 = 0;             // stamps of the last readers of two different warps
  uint32_t write_block = 0, read_block = 0;  // serial numbers of the blocks
  uint8_t write_mask = 0;                    // low nibble: bytes; kAtomic, kInFlight
  uint8_t read0_mask = 0, read1_mask = 0;
};
inline constexpr uint8_t kAtomic = 0x10, kInFlight = 0x20;

struct CellArray {  // zero pages from the system until touched
  explicit CellArray(size_t n);
  ~CellArray();
  CellArray(const CellArray&) = delete;
  CellArray& operator=(const CellArray&) = delete;
  Cell* cells = nullptr;
};

inline constexpr int kEveryDevice = -1;  // of module variables and host memory

// An allocation, a module variable, a block's shared memory, or the kernel parameters.
struct Region {
  uint64_t base = 0, bytes = 0;
  uint8_t* data = nullptr;
  std::string label;  // for messages: "allocation #3 of 4096 bytes"
  bool read_only = false, is_shared = false;
  int device = kEveryDevice;
  bool checked = true;           // false: pinned host memory and parameters have no shadow
  std::vector<uint8_t> written;  // nibble per granule
  std::unique_ptr<CellArray> shadow;

  bool holds(uint64_t address, uint64_t n) const {
    return address - base <= bytes && n <= bytes - (address - base);
  }
  void set_written(uint64_t offset, uint64_t n);
  // First byte of [offset, offset + n) never written, or n.
  uint64_t first_unwritten(uint64_t offset, uint64_t n) const;
};

class DeviceMemory {
 public:
  static DeviceMemory& get();  // of the process

  // Null when the device is full. The bytes hold a pattern that is NaN in every float format.
  Region* allocate(uint64_t bytes, std::string label, int device = kEveryDevice);
  bool release(uint64_t address);  // false: not the start of a live allocation
  Region* adopt_host(void* data, uint64_t bytes,
                     std::string label);  // pinned, no checks but bounds
  bool release_host(void* data);
  // The live region that holds the address, or null.
  Region* find(uint64_t address);
  bool is_device_address(uint64_t address) const;
  bool is_pinned_host(const void* data) {
    return hosts_.count(below(hosts_, reinterpret_cast<uint64_t>(data))) != 0;
  }
  // One line on what lies at or near an address that no region holds; sets `freed` when it was one.
  std::string describe(uint64_t address, bool* freed) const;
  uint64_t used_bytes(int device) const {
    auto it = used_.find(device);
    return it == used_.end() ? 0 : it->second;
  }
  // Which device the running kernel is on, and whose memory it may touch besides its own.
  int running_on = 0;
  std::set<std::pair<int, int>> peers;  // (who reads, whose memory)
  bool reachable(const Region& r) const {
    return r.device == kEveryDevice || r.device == running_on ||
           peers.count({running_on, r.device}) != 0;
  }

 private:
  DeviceMemory();
  using Map = std::map<uint64_t, std::unique_ptr<Region>>;
  static uint64_t below(const Map& map, uint64_t address);

  uint64_t base_ = 0, alias_ = 0, top_ = 0;  // device range, the machine's range, bytes handed out
  std::map<int, uint64_t> used_;             // by device
  uint32_t n_made_ = 0;
  Map regions_, hosts_;
  struct Freed {
    uint64_t base, span, bytes;
    std::string label;
  };
  std::deque<Freed> freed_;
};

}  // namespace pf::ptxvm
