#include "ptxvm/memory.h"

#include <sys/mman.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"

namespace pf::ptxvm {
namespace {

constexpr uint64_t kArenaBytes = 64ull << 30;  // address space only
constexpr uint64_t kAlign = 256, kRedZone = 512;

uint64_t g_device_base = 0;
struct sigaction g_previous_segv;

// A host access to device memory: say so, then fall through to the default action.
void on_segv(int signal, siginfo_t* info, void* context) {
  auto address = reinterpret_cast<uint64_t>(info->si_addr);
  if (address - g_device_base < kArenaBytes) {
    char text[200];
    int n = std::snprintf(text, sizeof text,
                          "error: host-access: the host touches device memory at 0x%llx; copy it "
                          "with cudaMemcpy\n",
                          static_cast<unsigned long long>(address));
    if (n > 0) std::fwrite(text, 1, static_cast<size_t>(n), stderr);
    std::fflush(stderr);
  }
  if ((g_previous_segv.sa_flags & SA_SIGINFO) && g_previous_segv.sa_sigaction != nullptr) {
    g_previous_segv.sa_sigaction(signal, info, context);
  } else {
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
}

uint64_t map_range(int protection) {
  void* p =
      mmap(nullptr, kArenaBytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  check(p != MAP_FAILED, "ptxvm: cannot reserve 64 GiB of address space (ulimit -v?)");
  return reinterpret_cast<uint64_t>(p);
}

}  // namespace

CellArray::CellArray(size_t n) : cells(static_cast<Cell*>(std::calloc(n, sizeof(Cell)))) {
  check(cells != nullptr || n == 0, "ptxvm: out of host memory for the shadow of an allocation");
}
CellArray::~CellArray() { std::free(cells); }

void Region::set_written(uint64_t offset, uint64_t n) {
  if (written.empty() || n == 0) return;
  uint64_t end = offset + n;
  while (offset < end && (offset & 3))
    written[offset >> 2] |= uint8_t(1u << (offset & 3)), ++offset;
  if (end - offset >= 4 && offset < end) {
    std::memset(&written[offset >> 2], 0xf, (end - offset) >> 2);
    offset += (end - offset) & ~3ull;
  }
  for (; offset < end; ++offset) written[offset >> 2] |= uint8_t(1u << (offset & 3));
}

uint64_t Region::first_unwritten(uint64_t offset, uint64_t n) const {
  if (((offset | n) & 3) == 0) {  // whole words, the common case
    uint64_t g = offset >> 2, end = g + (n >> 2);
    while (g < end && written[g] == 0xf) ++g;
    if (g == end) return n;
  }
  for (uint64_t i = 0; i < n; ++i)
    if (!(written[(offset + i) >> 2] >> ((offset + i) & 3) & 1)) return i;
  return n;
}

DeviceMemory& DeviceMemory::get() {
  static DeviceMemory* memory = new DeviceMemory;  // outlives every static that frees memory
  return *memory;
}

DeviceMemory::DeviceMemory() {
  base_ = map_range(PROT_NONE);
  alias_ = map_range(PROT_READ | PROT_WRITE);
  g_device_base = base_;
  struct sigaction action = {};
  action.sa_sigaction = on_segv;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &action, &g_previous_segv);
}

Region* DeviceMemory::allocate(uint64_t bytes, std::string label, int device) {
  if (used_bytes(device) + bytes > settings().device_memory_bytes) return nullptr;
  uint64_t span = (bytes + kRedZone + kAlign - 1) / kAlign * kAlign, offset = top_;
  if (top_ + span <= kArenaBytes) {
    top_ += span;
  } else {  // the range is used up: take the oldest freed piece that fits
    auto it = freed_.begin();
    while (it != freed_.end() && it->span < span) ++it;
    if (it == freed_.end()) return nullptr;
    offset = it->base - base_;
    span = it->span;
    freed_.erase(it);
  }
  auto region = std::make_unique<Region>();
  region->base = base_ + offset;
  region->bytes = bytes;
  region->device = device;
  region->data = reinterpret_cast<uint8_t*>(alias_ + offset);
  region->label = label.empty() ? "allocation #" + std::to_string(++n_made_) + " of " +
                                      std::to_string(bytes) + " bytes"
                                : label;
  std::memset(region->data, 0xff, bytes);
  region->written.assign((bytes + 3) / 4 + 1, 0);
  region->shadow = std::make_unique<CellArray>((bytes + 3) / 4 + 1);
  used_[device] += bytes;
  Region* out = region.get();
  regions_[region->base] = std::move(region);
  return out;
}

bool DeviceMemory::release(uint64_t address) {
  auto it = regions_.find(address);
  if (it == regions_.end()) return false;
  Region& r = *it->second;
  uint64_t span = (r.bytes + kRedZone + kAlign - 1) / kAlign * kAlign;
  uint64_t first = (reinterpret_cast<uint64_t>(r.data) + 4095) & ~4095ull;
  uint64_t last = (reinterpret_cast<uint64_t>(r.data) + r.bytes) & ~4095ull;
  if (last > first) madvise(reinterpret_cast<void*>(first), last - first, MADV_DONTNEED);
  freed_.push_back({r.base, span, r.bytes, r.label});
  used_[r.device] -= r.bytes;
  regions_.erase(it);
  return true;
}

Region* DeviceMemory::adopt_host(void* data, uint64_t bytes, std::string label) {
  auto region = std::make_unique<Region>();
  region->base = reinterpret_cast<uint64_t>(data);
  region->bytes = bytes;
  region->data = static_cast<uint8_t*>(data);
  region->label = std::move(label);
  region->checked = false;
  Region* out = region.get();
  hosts_[region->base] = std::move(region);
  return out;
}

bool DeviceMemory::release_host(void* data) {
  return hosts_.erase(reinterpret_cast<uint64_t>(data)) != 0;
}

// Base of the region that holds the address, else 0.
uint64_t DeviceMemory::below(const Map& map, uint64_t address) {
  auto it = map.upper_bound(address);
  if (it == map.begin()) return 0;
  --it;
  return it->second->holds(address, 1) || it->first == address ? it->first : 0;
}

Region* DeviceMemory::find(uint64_t address) {
  Map& map = is_device_address(address) ? regions_ : hosts_;
  auto it = map.find(below(map, address));
  return it == map.end() ? nullptr : it->second.get();
}

bool DeviceMemory::is_device_address(uint64_t address) const {
  return address - base_ < kArenaBytes;
}

std::string DeviceMemory::describe(uint64_t address, bool* freed) const {
  *freed = false;
  char hex[40];
  std::snprintf(hex, sizeof hex, "0x%llx", static_cast<unsigned long long>(address));
  std::string text = std::string("address ") + hex;
  if (address < 65536) return text + " (a null pointer?)";
  for (const Freed& f : freed_) {
    if (address - f.base < f.span) {
      *freed = address - f.base < f.bytes;
      return text + " in " + f.label + ", which was freed";
    }
  }
  auto it = regions_.upper_bound(address);
  if (it != regions_.begin() && is_device_address(address)) {
    const Region& r = *std::prev(it)->second;
    return text + ", " + std::to_string(address - r.base - r.bytes) + " bytes past the end of " +
           r.label;
  }
  return text + (is_device_address(address) ? " before the first allocation"
                                            : " is no device memory (a host pointer?)");
}

}  // namespace pf::ptxvm
