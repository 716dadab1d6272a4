#include "speculation/measured_choice.h"

#include <algorithm>

namespace pf {
namespace {

constexpr double kTrialShare = 0.012;  // of all time, for drafters that are not used; less in a
                                       // batch, where a trial tells more
constexpr double kFew = 4;             // sequences: no batch yet
constexpr double kBetter = 1.04;       // by which all change their drafters
constexpr double kLeastPrice = 0.02;   // of a sequence's share in a step: what noise hides
constexpr double kMostSaved = 8;       // steps' worth of it that can be saved up
constexpr size_t kTried = 8;           // sequences that try one drafter in one step
constexpr int32_t kTrialRounds = 6;    // a plane that has caught up is used for so many

}  // namespace

void MeasuredChoice::choose(const DraftLength& length, std::span<DraftOffers> sequences) {
  int32_t n_decoding = 0;
  bool open = false;
  for (DraftOffers& s : sequences) {
    s.picked = 0;
    n_decoding += s.decodes;
    open |= s.offers.size() > 1;
  }
  if (!open) return;
  forecasts_.clear();
  first_.clear();
  for (DraftOffers& s : sequences) {
    first_.push_back(forecasts_.size());
    double best = 0;
    for (size_t o = 0; o < s.offers.size(); ++o) {
      forecasts_.push_back(length.forecast(s.offers[o], std::max(1, n_decoding)));
      if (forecasts_.back().speed > best) best = forecasts_.back().speed, s.picked = o;
    }
  }
  if (n_decoding > 1) go_together(length, sequences);
  if (n_decoding > 0) try_another(length, sequences);
  for (DraftOffers& s : sequences)
    for (size_t o = 0; s.decodes && o < s.offers.size(); ++o)
      if (o != s.picked) ++s.offers[o].history->n_idle;
}

MeasuredChoice::Outcome MeasuredChoice::foretell(const DraftLength& length,
                                                 std::span<const DraftOffers> sequences) {
  constexpr auto kLevels = static_cast<size_t>(kMaxDraftDepth);
  rows_.assign(static_cast<size_t>(length.n_drafters()) * kLevels, 0);
  Outcome out;
  int32_t n_rows = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const DraftOffers& s = sequences[i];
    if (!s.decodes) continue;
    const DraftForecast& f = forecasts_[first_[i] + s.picked];
    const DraftAsk& offer = s.offers[s.picked];
    ++n_rows;
    bool tried = offer.least_depth > 0;
    if (!f.pays && !tried) {
      ++out.tokens;
      continue;
    }
    size_t levels = static_cast<size_t>(offer.drafter) * kLevels;
    out.tokens += tried ? f.trial_tokens : f.tokens;
    out.seconds += tried ? f.lag_seconds : f.lag_share;
    for (size_t l = 0; l < static_cast<size_t>(tried ? f.trial_depth : f.depth); ++l) {
      rows_[levels + l] += f.n_nodes[l];
      n_rows += f.n_nodes[l];
    }
  }
  for (size_t i = 0; i < rows_.size(); ++i)
    if (rows_[i] > 0)
      out.seconds += length.draft_cost(static_cast<int32_t>(i / kLevels)).at(rows_[i]);
  out.seconds += length.target_cost().at(n_rows);
  return out;
}

void MeasuredChoice::go_together(const DraftLength& length, std::span<DraftOffers> sequences) {
  users_.assign(static_cast<size_t>(length.n_drafters()), 0);
  for (const DraftOffers& s : sequences)
    if (s.decodes) ++users_[static_cast<size_t>(s.offers[s.picked].drafter)];
  if (std::count(users_.begin(), users_.end(), 0) + 1 >= length.n_drafters()) return;
  double speed = foretell(length, sequences).speed();
  auto weigh = [&](int32_t from, int32_t to) {  // -1: from any
    before_.clear();
    for (DraftOffers& s : sequences) {
      before_.push_back(s.picked);
      if (!s.decodes || (from >= 0 && s.offers[s.picked].drafter != from)) continue;
      for (size_t o = 0; o < s.offers.size(); ++o)
        if (s.offers[o].drafter == to) s.picked = o;
    }
    double together = foretell(length, sequences).speed();
    if (together > kBetter * speed) return void(speed = together);
    for (size_t i = 0; i < sequences.size(); ++i) sequences[i].picked = before_[i];
  };
  auto most = static_cast<int32_t>(std::max_element(users_.begin(), users_.end()) - users_.begin());
  for (int32_t d = 0; d < length.n_drafters(); ++d) {
    if (users_[static_cast<size_t>(d)] == 0) continue;
    weigh(-1, d);
    if (d != most) weigh(d, most);
  }
}

// Those who could try the drafter that has been idle longest, the longest idle first.
void MeasuredChoice::find_longest_idle(std::span<DraftOffers> sequences) {
  int32_t drafter = -1, longest = -1;
  auto each = [&](auto&& visit) {
    for (size_t i = 0; i < sequences.size(); ++i) {
      DraftOffers& s = sequences[i];
      for (size_t o = 0; s.decodes && o < s.offers.size(); ++o)
        if (o != s.picked && s.offers[o].max_depth > 0) visit(i, o, s.offers[o]);
    }
  };
  each([&](size_t, size_t, const DraftAsk& offer) {
    if (offer.history->n_idle > longest) longest = offer.history->n_idle, drafter = offer.drafter;
  });
  idle_.clear();
  each([&](size_t i, size_t o, const DraftAsk& offer) {
    if (offer.drafter == drafter) idle_.emplace_back(i, o);
  });
  auto n_idle = [&](auto at) { return sequences[at.first].offers[at.second].history->n_idle; };
  size_t n = std::min(idle_.size(), kTried);
  std::partial_sort(idle_.begin(), idle_.begin() + static_cast<std::ptrdiff_t>(n), idle_.end(),
                    [&](auto a, auto b) { return n_idle(a) > n_idle(b); });
  idle_.resize(n);
}

// Trials that have begun go on, and one more begins when the savings reach. What they cost is the
// time that the step takes longer than its tokens take now, and all that a plane lacks at once.
void MeasuredChoice::try_another(const DraftLength& length, std::span<DraftOffers> sequences) {
  Outcome now = foretell(length, sequences);
  if (now.tokens <= 0 || now.seconds <= 0) return;
  double least = kLeastPrice * now.seconds / now.tokens, paid = 0;
  int32_t n_tried = 0;
  auto price_with = [&](size_t i, size_t o) {
    sequences[i].picked = o;
    sequences[i].offers[o].least_depth = forecasts_[first_[i] + o].trial_depth;
    Outcome then = foretell(length, sequences);
    return std::max(then.seconds - then.tokens / now.speed(), ++n_tried * least);
  };
  find_trials(sequences);
  for (auto [i, o] : idle_) {
    --sequences[i].offers[o].history->n_trials;
    paid = price_with(i, o);
  }
  double most = kMostSaved * now.seconds;
  if (idle_.empty() && savings_ > 0) {
    find_longest_idle(sequences);
    for (auto [i, o] : idle_) {
      size_t pick = sequences[i].picked;
      double price = price_with(i, o);
      if (price > savings_ && (savings_ < most || n_tried > 1)) {
        sequences[i].picked = pick;
        sequences[i].offers[o].least_depth = 0;
        break;
      }
      paid = price;
      sequences[i].offers[o].history->n_trials = kTrialRounds - 1;
    }
  }
  savings_ = std::min(savings_ - paid, most);
}

// The trials that go on. One whose drafter has become the pick is over: it is used.
void MeasuredChoice::find_trials(std::span<DraftOffers> sequences) {
  idle_.clear();
  for (size_t i = 0; i < sequences.size(); ++i) {
    DraftOffers& s = sequences[i];
    for (size_t o = 0; s.decodes && o < s.offers.size(); ++o) {
      int32_t& left = s.offers[o].history->n_trials;
      if (o == s.picked) left = 0;
      if (left > 0 && s.offers[o].max_depth > 0) idle_.emplace_back(i, o);
    }
  }
}

void MeasuredChoice::earn(int32_t n_sequences, double total_seconds) {
  savings_ += kTrialShare * std::min(1.0, kFew / std::max(1, n_sequences)) * total_seconds;
}

}  // namespace pf
