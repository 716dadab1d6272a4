#pragma once

#include <cstddef>
#include <cstdint>

namespace pf {

// A mapped file that is cut short, or whose disk fails, takes its bytes away from those who read
// them: SIGBUS. From this call on `end` is told which file it was, and must not return. It runs in
// the signal handler of whichever thread has read: async-signal-safe functions only. A SIGBUS for
// which no file is to blame ends the process as ever. Once, before there are threads.
void on_lost_bytes(void (*end)(const char* path));

// The file that is mapped at an address, by a text in the form of /proc/self/maps that `fd` gives.
// Fills `path`, of `size` bytes; a longer one is cut. False: no file is. Async-signal-safe.
bool find_mapped_path(int fd, uintptr_t address, char* path, size_t size);

}  // namespace pf
