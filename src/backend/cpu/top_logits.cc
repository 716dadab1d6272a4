#include "backend/cpu/top_logits.h"

#include <algorithm>
#include <cmath>

namespace pf {
namespace {

bool goes_first(const TokenProbability& a, const TokenProbability& b) {
  return a.probability != b.probability ? a.probability > b.probability : a.token < b.token;
}

// Leaves the n first and returns the last of them.
float trim(size_t n, std::vector<TokenProbability>* top) {
  auto last = top->begin() + static_cast<std::ptrdiff_t>(n) - 1;
  std::nth_element(top->begin(), last, top->end(), goes_first);
  float bar = last->probability;
  top->resize(n);
  return bar;
}

}  // namespace

void find_top_logits(std::span<const float> logits, std::span<const int32_t> tokens, size_t n,
                     std::vector<TokenProbability>* top) {
  constexpr size_t kBlock = 16;
  top->clear();
  top->reserve(4 * n + kBlock);
  if (n == 0) return;
  float bar = -INFINITY;  // what is below it has n better ones
  for (size_t first = 0; first < logits.size(); first += kBlock) {
    size_t end = std::min(first + kBlock, logits.size());
    if (end - first == kBlock) {
      bool any = false;
      for (size_t i = 0; i < kBlock; ++i) any |= logits[first + i] >= bar;
      if (!any) continue;
    }
    for (size_t i = first; i < end; ++i)
      if (logits[i] >= bar)
        top->push_back({tokens.empty() ? static_cast<int32_t>(i) : tokens[i], logits[i]});
    if (top->size() >= 4 * n) bar = trim(n, top);
  }
  if (top->size() > n) trim(n, top);
}

}  // namespace pf
