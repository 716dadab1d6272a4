#pragma once

#include <cstdint>

#include "kv/block_pool.h"

namespace pf {

// Hidden states of a target, as a head over them reads them: they stay on the device where the
// target computes them, and whoever plans a draft names them by where they lie.

enum class StateType : uint8_t { kF32, kF16, kBf16 };

// The states of a target's last forward. Where they lie never changes while the target lives.
struct HiddenStates {
  const void* data = nullptr;  // [rows, width], on the target's device
  int64_t rows = 0;            // that a forward may have
  int64_t width = 0;           // E; n E where the states of n layers stand side by side
  StateType type = StateType::kF32;
  bool on_device = false;
  void* stream = nullptr;  // the cudaStream_t that writes them, where on_device
};

// Where one state lies.
struct HiddenRef {
  enum class In : uint8_t {
    kForward,  // row `index` of the target's last forward
    kBlock,    // kept for KV block `index` (Backend::keep_hidden)
    kOwn,      // what the head itself said: logit row `index` of its pass before
  };
  In in = In::kForward;
  int32_t index = 0;
};

// Keeps the state of a row of the target's last forward for a KV block.
struct HiddenKeep {
  int32_t row = 0;
  BlockId block = 0;
};

}  // namespace pf
