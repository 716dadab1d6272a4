#include "speculation/draft_depths.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace pf {
namespace {

constexpr int kPrices = 32;  // four per octave, from 4 tokens per row down to 1/64
constexpr double kLeastGain = 1.01;
constexpr uint32_t kAll = ~0u;
constexpr size_t kMaxDrafters = 16;  // in one step; further ones count at the cost of the last

// Prices fall with their index: 0 is the dearest. The upper bits of a float are its logarithm.
int price_of(float worth) {
  if (!(worth > 0)) return kPrices;
  auto quarter = [](float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) >> 21); };
  return std::max(0, quarter(4.0f) - quarter(worth));
}

// What one level of one drafter holds at one price and above.
struct Sum {
  int32_t n_nodes;
  float tokens;
};
using Level = std::array<Sum, kMaxDraftDepth>;

struct Choice {
  double score = 0, tokens = 0, seconds = 0;
  int price = -1;  // none
  int32_t levels = 0, n_nodes = 0;
  uint32_t drafters = kAll;  // by place: those that take part
};

class Search {
 public:
  Search(const DepthQuestion& question, const StepCosts& costs,
         std::span<const DepthCandidate> candidates)
      : question_(question), costs_(costs) {
    for (const DepthCandidate& c : candidates) add(c);
  }

  // The best by tokens / seconds; with a rate, by tokens - rate * seconds, prompt rows included.
  // A drafter's passes are paid once whoever takes part; so each is also weighed alone, and left
  // out.
  Choice best(double rate) const {
    Choice best = best_of(rate, kAll);
    auto weigh = [&](uint32_t drafters) {
      Choice c = best_of(rate, drafters);
      if (c.score > best.score) best = c;
    };
    if (n_drafters_ < 2) return best;
    uint32_t all = (1u << n_drafters_) - 1;
    for (size_t d = 0; d < n_drafters_; ++d) weigh(1u << d);
    for (size_t d = 0; n_drafters_ > 2 && d < n_drafters_; ++d) weigh(all & ~(1u << d));
    return best;
  }

  bool takes_part(int32_t drafter, uint32_t drafters) const {
    for (size_t d = 0; d < n_drafters_; ++d)
      if (drafters_[d] == drafter) return drafters >> d & 1;
    return true;
  }

 private:
  // With these of the drafters.
  Choice best_of(double rate, uint32_t drafters) const {
    int32_t others = question_.n_plain_rows + (rate > 0 ? question_.n_prompt_rows : 0);
    Choice best;
    best.drafters = drafters;
    best.tokens = question_.plain_tokens;
    best.seconds = costs_.target->at(others);
    best.score = score(best, rate) * (rate > 0 ? 1 : kLeastGain);
    std::array<Level, kMaxDrafters> sums;
    std::fill_n(sums.begin(), n_drafters_, Level{});
    for (int price = 0; price < kPrices; ++price) {
      bool more = false;
      for (size_t d = 0; d < n_drafters_; ++d)
        for (size_t l = 0; drafters >> d & 1 && l < kMaxDraftDepth; ++l) {
          const Sum& from = at_[d][static_cast<size_t>(price)][l];
          if (from.n_nodes == 0) continue;
          sums[d][l].n_nodes += from.n_nodes;
          sums[d][l].tokens += from.tokens;
          more = true;
        }
      if (more) try_levels(sums, price, others, rate, &best);
    }
    return best;
  }

  void add(const DepthCandidate& c) {
    if (c.max_depth <= 0) return;
    size_t d = place_of(c.drafter);
    int price = 0;
    for (size_t l = 0; l < static_cast<size_t>(c.max_depth); ++l) {
      float tokens = c.weight * c.reach[l];
      price = std::max(price, price_of(tokens / static_cast<float>(c.n_nodes[l])));
      if (price >= kPrices) break;
      Sum& sum = at_[d][static_cast<size_t>(price)][l];
      sum.n_nodes += c.n_nodes[l];
      sum.tokens += tokens;
    }
  }

  size_t place_of(int32_t drafter) {
    for (size_t d = 0; d < n_drafters_; ++d)
      if (drafters_[d] == drafter) return d;
    if (n_drafters_ == kMaxDrafters) return kMaxDrafters - 1;
    drafters_[n_drafters_] = drafter;
    at_[n_drafters_] = {};
    return n_drafters_++;
  }

  static double score(const Choice& c, double rate) {
    return rate > 0 ? c.tokens - rate * c.seconds : c.seconds > 0 ? c.tokens / c.seconds : 0;
  }

  void try_levels(const std::array<Level, kMaxDrafters>& sums, int price, int32_t others,
                  double rate, Choice* best) const {
    Choice c;
    c.drafters = best->drafters;
    c.price = price;
    c.tokens = question_.plain_tokens;
    double draft_seconds = 0;
    for (size_t l = 0; l < kMaxDraftDepth; ++l) {
      int32_t before = c.n_nodes;
      for (size_t d = 0; d < n_drafters_; ++d) {
        const Sum& sum = sums[d][l];
        if (sum.n_nodes == 0) continue;
        c.n_nodes += sum.n_nodes;
        c.tokens += sum.tokens;
        draft_seconds += costs_.drafts[static_cast<size_t>(drafters_[d])].at(sum.n_nodes);
      }
      if (c.n_nodes == before || c.n_nodes > question_.max_draft_rows) return;
      c.levels = static_cast<int32_t>(l + 1);
      c.seconds = draft_seconds + costs_.target->at(others + c.n_nodes);
      c.score = score(c, rate);
      if (c.score > best->score) *best = c;
    }
  }

  const DepthQuestion& question_;
  const StepCosts& costs_;
  size_t n_drafters_ = 0;
  std::array<int32_t, kMaxDrafters> drafters_{};
  std::array<std::array<Level, kPrices>, kMaxDrafters> at_;  // of those that take part
};

}  // namespace

DepthAnswer choose_depths(const DepthQuestion& question, const StepCosts& costs,
                          std::span<DepthCandidate> candidates) {
  Search search(question, costs, candidates);
  Choice chosen = search.best(0);
  double plain_seconds = costs.target->at(question.n_plain_rows);
  DepthAnswer answer;
  if (question.n_prompt_rows > 0 && chosen.seconds > 0 && chosen.n_nodes > 0)
    chosen = search.best(chosen.tokens / chosen.seconds);
  answer.n_nodes = chosen.n_nodes;
  answer.tokens = chosen.tokens;
  answer.seconds = chosen.seconds;
  if (chosen.seconds > 0 && plain_seconds > 0 && question.plain_tokens > 0)
    answer.gain = chosen.tokens / chosen.seconds * plain_seconds / question.plain_tokens;
  for (DepthCandidate& c : candidates) {
    int price = 0;
    c.depth = 0;
    if (!search.takes_part(c.drafter, chosen.drafters)) continue;
    for (size_t l = 0; l < static_cast<size_t>(std::min(c.max_depth, chosen.levels)); ++l) {
      price = std::max(price, price_of(c.weight * c.reach[l] / static_cast<float>(c.n_nodes[l])));
      if (price > chosen.price) break;
      ++c.depth;
    }
  }
  return answer;
}

}  // namespace pf
