#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>

namespace pf {

// Which tokens stand in prompt and output, for the penalties. Kept per sequence and only when a
// penalty is set; grows by the tokens of a step, never by the length of the context.
class TokenCounts {
 public:
  struct Count {
    int32_t output = 0;
    bool prompt = false;
  };

  void add_prompt(std::span<const int32_t> tokens) {
    for (int32_t t : tokens) counts_[t].prompt = true;
  }
  void add_output(int32_t token) { ++counts_[token].output; }
  void remove_output(int32_t token) {
    auto it = counts_.find(token);
    if (--it->second.output == 0 && !it->second.prompt) counts_.erase(it);
  }
  const std::unordered_map<int32_t, Count>& counts() const { return counts_; }

 private:
  std::unordered_map<int32_t, Count> counts_;
};

}  // namespace pf
