#include "speculation/acceptance_model.h"

#include <algorithm>
#include <cmath>

namespace pf {
namespace {

// Effective numbers of rounds that are remembered: 1 / (1 - keep).
constexpr float kSequenceKeep = 0.985f, kServerKeep = 0.998f, kRecentKeep = 0.999f;
constexpr float kFirstGuess = 0.7f;   // before anything was drafted: worth trying
constexpr float kServerPrior = 4;     // samples that the level before is worth
constexpr float kFactorPrior = 4;     // expected tokens that "as the server's average" is worth
constexpr float kSequencePrior = 16;  // samples that factor times server's average is worth
// Where the text's ease is known, it is what makes a sequence differ from the average.
constexpr float kEaseFactorPrior = 20, kEaseSequencePrior = 60;
constexpr float kDoubtSteps = 64;    // without a draft until the most doubt counts
constexpr float kMostDoubt = 1.5f;   // standard deviations
constexpr float kDeadRate = 0.05f;   // SPECULATION section 5
constexpr float kDeadSamples = 100;  // levels judged before a drafter can be called dead
constexpr float kLeast = 0.001f, kMost = 0.995f;

}  // namespace

AcceptanceModel::AcceptanceModel(int32_t n_drafters)
    : difficulty_(n_drafters),
      levels_(static_cast<size_t>(n_drafters) * kClasses),
      reached_(static_cast<size_t>(n_drafters)) {}

size_t AcceptanceModel::cell(int32_t drafter, int32_t match) {
  return static_cast<size_t>(drafter * kClasses + std::clamp(match, 1, kClasses) - 1);
}

void AcceptanceModel::priors(const Levels& levels, std::span<float> out) {
  float before = kFirstGuess;
  for (size_t d = 0; d < out.size(); ++d) {
    const Count& c = levels[std::min(d, levels.size() - 1)];
    before = out[d] = (c.kept + kServerPrior * before) / (c.tried + kServerPrior);
  }
}

void AcceptanceModel::foretell(int32_t drafter, int32_t match, const TextEase* text,
                               std::span<float> out) const {
  if (text != nullptr)
    difficulty_.estimate(*text, drafter, out);
  else
    priors(levels_[cell(drafter, match)], out);
}

void AcceptanceModel::estimate(const DraftHistory& h, int32_t drafter, int32_t match,
                               std::span<float> out, const TextEase* text) const {
  foretell(drafter, match, text, out);
  const float factor_prior = text != nullptr ? kEaseFactorPrior : kFactorPrior,
              sequence_prior = text != nullptr ? kEaseSequencePrior : kSequencePrior;
  float factor = (h.found + factor_prior) / (h.expected + factor_prior);
  for (size_t d = 0; d < out.size(); ++d) {
    size_t i = std::min<size_t>(d, kMaxDraftDepth - 1);
    float prior = out[d] = std::clamp(out[d] * factor, kLeast, kMost);
    if (match < kClasses) continue;  // what is known of its levels is of longer matches
    out[d] = (h.kept[i] + sequence_prior * prior) / (h.tried[i] + sequence_prior);
  }
  // Who drafts nothing learns nothing: the longer that lasts, the more of the doubt counts for it.
  float n = h.tried[0] + sequence_prior;
  float doubt = std::sqrt(out[0] * (1 - out[0]) / n);
  float share = std::min(1.0f, static_cast<float>(h.n_idle) / kDoubtSteps);
  out[0] = std::min(kMost, out[0] + kMostDoubt * share * doubt);
}

void AcceptanceModel::observe(int32_t drafter, int32_t match, int32_t depth, int32_t n_kept,
                              DraftHistory* h, TextEase* text) {
  if (depth <= 0) return;
  Levels& cells = levels_[cell(drafter, match)];
  auto n_reached = static_cast<size_t>(std::min({depth, n_kept + 1, kMaxDraftDepth}));
  std::array<float, kMaxDraftDepth> prior;
  foretell(drafter, match, text, std::span(prior).first(n_reached));
  if (text != nullptr) difficulty_.observe(drafter, depth, n_kept, text);
  // All levels are forgotten alike, so that one which is not reached any more becomes open again.
  h->expected *= kSequenceKeep, h->found *= kSequenceKeep;
  for (size_t i = 0; i < kMaxDraftDepth; ++i) {
    h->tried[i] *= kSequenceKeep, h->kept[i] *= kSequenceKeep;
    cells[i].tried *= kServerKeep, cells[i].kept *= kServerKeep;
  }
  for (size_t i = 0; i < n_reached; ++i) {
    float kept = static_cast<int32_t>(i) < n_kept ? 1 : 0;
    h->expected += prior[i], h->found += kept;
    if (match >= kClasses) h->tried[i] += 1, h->kept[i] += kept;
    cells[i].tried += 1, cells[i].kept += kept;
  }
  auto add = [n_kept](Count* c, int32_t n_tried) {
    c->tried = kRecentKeep * c->tried + static_cast<float>(n_tried);
    c->kept = kRecentKeep * c->kept + static_cast<float>(n_kept);
  };
  add(&offered_, depth);
  add(&reached_[static_cast<size_t>(drafter)], std::min(depth, n_kept + 1));
}

bool AcceptanceModel::dead(int32_t drafter) const {
  const Count& c = reached_[static_cast<size_t>(drafter)];
  return c.tried >= kDeadSamples && c.kept < kDeadRate * c.tried;
}

}  // namespace pf
