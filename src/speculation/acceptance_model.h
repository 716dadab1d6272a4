#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "batch/draft_history.h"
#include "speculation/difficulty_model.h"

namespace pf {

// How likely drafted tokens are kept: per drafter, per level, given that the level before was kept.
// The server-wide estimate is the prior of every sequence; a sequence's own rounds outweigh it as
// they come, first as one factor over all levels and then level by level. Everything is forgotten
// slowly. Drafters that copy (n-grams) are judged apart by how long the match is that they rest on.
class AcceptanceModel {
 public:
  explicit AcceptanceModel(int32_t n_drafters);

  // Fills out[d] = P(level d + 1 is kept | level d was kept). `match`: Drafter::match_length.
  // `text`: where several models could draft, what is known of the text; null else.
  void estimate(const DraftHistory& history, int32_t drafter, int32_t match, std::span<float> out,
                const TextEase* text = nullptr) const;
  // A round with `depth` levels of which the first n_kept were kept.
  void observe(int32_t drafter, int32_t match, int32_t depth, int32_t n_kept, DraftHistory* history,
               TextEase* text = nullptr);

  // Share of drafted levels that were kept lately, all drafters together. One that drafts no more
  // is forgotten as the others go on.
  double rate() const { return offered_.rate(); }
  // Of the levels whose parent was kept, less than 5 % are kept though the drafter drafts:
  // something is wrong with it. (Levels behind a rejected one say nothing about it, however many
  // there are.)
  bool dead(int32_t drafter) const;

 private:
  static constexpr int32_t kClasses = 4;  // matches of 1, 2, 3 and more tokens
  struct Count {
    float tried = 0, kept = 0;
    double rate() const { return tried > 0 ? kept / tried : 0; }
  };
  using Levels = std::array<Count, kMaxDraftDepth>;
  static size_t cell(int32_t drafter, int32_t match);
  static void priors(const Levels& levels, std::span<float> out);
  // Of all sequences, or of those whose text is as easy as this one.
  void foretell(int32_t drafter, int32_t match, const TextEase* text, std::span<float> out) const;

  DifficultyModel difficulty_;
  std::vector<Levels> levels_;  // [drafters, classes]
  Count offered_;               // levels offered and kept, by all
  std::vector<Count> reached_;  // [drafters]: levels judged and kept
};

}  // namespace pf
