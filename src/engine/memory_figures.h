#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pf {

// A memory plan as operators see it.
struct MemoryFigures {
  struct Part {
    std::string name;
    int64_t bytes = 0;
  };
  std::vector<Part> parts;   // weights of each model, KV
  int64_t device_bytes = 0;  // what the device has to give
  bool fits = true;
  int64_t max_context = 0;
  int64_t n_full_sequences = 0;  // of max_context tokens, at a time
  int64_t kv_bytes_per_token = 0;

  int64_t total_bytes() const {
    int64_t total = 0;
    for (const Part& p : parts) total += p.bytes;
    return total;
  }
};

}  // namespace pf
