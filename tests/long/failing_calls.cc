// LD_PRELOAD for soak.py: calls of the system that fail now and then, as on a machine that runs out
// of things. PF_FAIL_{MALLOC,MMAP,ACCEPT} = n: one of n fails, drawn by PF_FAIL_SEED. Only
// allocations of 4 KB and more fail: no library asks twice for smaller ones.
#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <ctime>

extern "C" void* __libc_malloc(size_t);
extern "C" void* __libc_memalign(size_t, size_t);

namespace {

constexpr size_t kLarge = 4 << 10;
constexpr uint64_t kStart_ms = 30;  // in which libraries set themselves up, before main
std::atomic<uint64_t> n_calls{0};

uint64_t number(const char* name) {
  const char* text = getenv(name);
  return text == nullptr ? 0 : strtoull(text, nullptr, 10);
}

uint64_t now_ms() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1000 + static_cast<uint64_t>(t.tv_nsec) / 1'000'000;
}

bool fails(const char* name) {
  const uint64_t one_of = number(name);
  if (one_of == 0) return false;
  static std::atomic<uint64_t> began_ms{0};
  if (uint64_t none = 0, now = now_ms(); began_ms.compare_exchange_strong(none, now)) return false;
  if (now_ms() - began_ms.load() < kStart_ms) return false;
  // SplitMix64 of a counter.
  uint64_t x = (n_calls.fetch_add(1) + 1) * 0x9e3779b97f4a7c15 + number("PF_FAIL_SEED");
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return (x ^ x >> 31) % one_of == 0;
}

}  // namespace

extern "C" {

void* malloc(size_t size) {
  if (size < kLarge || !fails("PF_FAIL_MALLOC")) return __libc_malloc(size);
  errno = ENOMEM;
  return nullptr;
}

void* aligned_alloc(size_t alignment, size_t size) {
  if (size < kLarge || !fails("PF_FAIL_MALLOC")) return __libc_memalign(alignment, size);
  errno = ENOMEM;
  return nullptr;
}

void* mmap(void* at, size_t size, int protection, int flags, int fd, off_t offset) {
  if (fails("PF_FAIL_MMAP")) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(syscall(SYS_mmap, at, size, protection, flags, fd, offset));
}

int accept4(int fd, sockaddr* address, socklen_t* length, int flags) {
  if (!fails("PF_FAIL_ACCEPT"))
    return static_cast<int>(syscall(SYS_accept4, fd, address, length, flags));
  errno = EMFILE;
  return -1;
}
}
