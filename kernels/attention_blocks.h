#pragma once

#include <algorithm>
#include <cstdint>

namespace pf::kernels {

// How many blocks of threads run attention (attention.h).

// What a device has to hold them.
struct Multiprocessors {
  int32_t n = 0;
  int64_t shared_bytes = 0;  // of each
};

// Shared memory of a block: keys and values of two tiles of 64 tokens in 16 bits, and beside them
// places, runs and what the warps tell each other; the scales of int8.
constexpr int64_t attention_shared_bytes(int64_t head_width, bool int8_kv) {
  return 2 * 2 * 64 * 2 * head_width + 4992 + (int8_kv ? 1024 : 0);
}

// As many as are resident at once, so that none waits for another to end. Registers hold three
// where D is 64 and the plane not int8, else two; shared memory (of which the system takes 1 KiB
// for each block) two and one on multiprocessors of 100 KiB (sm_86, sm_89). Two of D = 128 would
// need tiles of half the tokens there, and then other sums.
constexpr int32_t n_attention_blocks(int64_t head_width, bool int8_kv, const Multiprocessors& m) {
  const int64_t by_registers = head_width == 64 && !int8_kv ? 3 : 2;
  const int64_t by_shared = m.shared_bytes / (attention_shared_bytes(head_width, int8_kv) + 1024);
  return m.n * static_cast<int32_t>(std::max<int64_t>(1, std::min(by_registers, by_shared)));
}

}  // namespace pf::kernels
