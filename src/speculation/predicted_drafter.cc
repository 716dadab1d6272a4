#include "speculation/predicted_drafter.h"

#include <algorithm>

namespace pf {
namespace {

uint64_t pair_key(int32_t a, int32_t b) {
  return static_cast<uint64_t>(static_cast<uint32_t>(a)) << 32 | static_cast<uint32_t>(b);
}

// Tokens before place p of `text` that equal the ending of `output`, at most kLongest.
int64_t agreement(std::span<const int32_t> text, int64_t p, std::span<const int32_t> output) {
  int64_t most = std::min({p, static_cast<int64_t>(output.size()), Alignment::kLongest});
  int64_t n = 0;
  while (n < most &&
         text[static_cast<size_t>(p - 1 - n)] == output[output.size() - 1 - static_cast<size_t>(n)])
    ++n;
  return n;
}

}  // namespace

Alignment::Alignment(std::span<const int32_t> predicted) {
  for (size_t i = 2; i <= predicted.size(); ++i)
    places_[pair_key(predicted[i - 2], predicted[i - 1])].push_back(static_cast<int32_t>(i));
}

void Alignment::update(std::span<const int32_t> predicted, std::span<const int32_t> output) {
  for (; n_seen_ < static_cast<int64_t>(output.size()); ++n_seen_) {
    int32_t token = output[static_cast<size_t>(n_seen_)];
    ++expected_;
    if (next_ != kLost && next_ < static_cast<int64_t>(predicted.size()) &&
        predicted[static_cast<size_t>(next_)] == token) {
      expected_ = parted_at_ = ++next_;
      ++n_agreed_;
      continue;
    }
    find(predicted, output.first(static_cast<size_t>(n_seen_ + 1)));
  }
}

void Alignment::find(std::span<const int32_t> predicted, std::span<const int32_t> output) {
  next_ = kLost;
  n_agreed_ = 0;
  int64_t best_distance = 0;
  auto consider = [&](int64_t place, int64_t agreed) {
    int64_t distance = std::abs(place - expected_);
    if (agreed < n_agreed_ || (agreed == n_agreed_ && distance >= best_distance)) return;
    next_ = place;
    n_agreed_ = static_cast<int32_t>(agreed);
    best_distance = distance;
  };
  if (output.size() >= 2) {
    auto it = places_.find(pair_key(output[output.size() - 2], output.back()));
    if (it != places_.end()) {
      const std::vector<int32_t>& places = it->second;
      auto middle = std::lower_bound(places.begin(), places.end(), expected_);
      auto from = middle - std::min<int64_t>(kCandidates, middle - places.begin());
      auto to = middle + std::min<int64_t>(kCandidates, places.end() - middle);
      // Backwards, so that of two places as near the one further on is met first.
      while (to != from) {
        --to;
        consider(*to, agreement(predicted, *to, output));
      }
    }
  }
  int64_t end = std::min(static_cast<int64_t>(predicted.size()), parted_at_ + kNear);
  for (int64_t p = parted_at_; n_agreed_ == 0 && p < end; ++p)
    if (predicted[static_cast<size_t>(p)] == output.back()) consider(p + 1, 1);
  if (next_ != kLost) expected_ = parted_at_ = next_;
}

const Alignment& PredictedDrafter::align(const Sequence& sequence) {
  const std::vector<int32_t>& predicted = sequence.request->speculation.predicted;
  Alignment& at = alignments_.try_emplace(sequence.order, predicted).first->second;
  at.update(predicted,
            std::span(sequence.tokens).subspan(static_cast<size_t>(sequence.n_prompt())));
  return at;
}

int32_t PredictedDrafter::match_length(const Sequence& sequence) {
  const std::vector<int32_t>& predicted = sequence.request->speculation.predicted;
  if (predicted.empty()) return 0;
  const Alignment& at = align(sequence);
  bool more = at.next() != Alignment::kLost && at.next() < static_cast<int64_t>(predicted.size());
  return more ? std::max(1, at.n_agreed()) : 0;
}

void PredictedDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  for (size_t i = 0; i < tasks.size(); ++i) {
    trees[i].clear();
    const std::vector<int32_t>& predicted = tasks[i].sequence->request->speculation.predicted;
    int64_t next = align(*tasks[i].sequence).next();
    if (next == Alignment::kLost) continue;
    int64_t n = std::min<int64_t>(tasks[i].depth(), static_cast<int64_t>(predicted.size()) - next);
    for (int32_t d = 0; d < n; ++d)
      trees[i].add_one_hot(predicted[static_cast<size_t>(next + d)], d - 1);
  }
}

}  // namespace pf
