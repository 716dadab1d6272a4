#pragma once

#include <vector>

#include "backend/cuda/staging.h"
#include "batch/batch.h"
#include "kernels/attention.h"

namespace pf {

// Where token t of a sequence lies in a plane (kernels/kv_plane.h).
inline int32_t place_of(const Segment& s, int64_t slot, int32_t block_tokens) {
  return s.blocks[static_cast<size_t>(slot / block_tokens)] * block_tokens +
         static_cast<int32_t>(slot % block_tokens);
}

// What the launches of one forward pass read, in a Staging. What a launch is told by address lies
// where the numbers of rows alone put it, so that a captured launch finds it in every step; the
// rest, as long as the step needs, is reached through indices in there.
struct Pass {
  struct Attention {  // one plan (kernels/attention_plan.h)
    int32_t first_row = 0, end_row = 0;
    Staging::Part<kernels::AttentionWork::Counts> counts;
    Staging::Part<kernels::AttentionRowParts> row_parts;
  };
  int64_t T = 0, R = 0;  // rows and logit rows that are launched: padding included
  Staging::Part<int32_t> tokens, positions, places, logit_rows;
  Staging::Part<uint64_t> masks;
  std::vector<Attention> attention;  // one, unless the contexts are long and the rows are many
  Staging::Part<int32_t> tables;     // of the first plan
  // A head's (head_input.h): where the states of its rows lie; -1: a padded row's.
  struct Hidden {
    Staging::Part<int32_t> states;  // [T] in target's, kept, and (EAGLE) own, one behind the other
    Staging::Part<int32_t> own;     // EAGLE-3: [T] in own; -1: another's
    bool has_own = false, has_other = false;
  } hidden;

  // True when what is launched depends on T and R alone.
  bool fixed() const { return attention.size() == 1; }
  kernels::AttentionWork work(const Attention& plan, const Staging& staging) const;
};

// Writes passes. A padded row reads nothing and writes nothing: it has token -1, place -1, no part
// of attention, and the logit row that it would be is -1.
class PassWriter {
 public:
  PassWriter(const kernels::AttentionLimits& limits)
      : block_tokens_(limits.block_tokens), plan_(limits) {}

  // Room for the fixed places, in the same order in every step of a shape.
  static void place(int64_t T, int64_t R, Staging* staging, Pass* pass);
  // Fills them and puts the rest behind. `before`: an earlier pass in this staging whose block
  // tables are used again where they are the same. Requires: batch rows <= T, logit rows <= R.
  void fill(const Batch& batch, Staging* staging, Pass* pass, const Pass* before = nullptr);

 private:
  void put_plan(Staging* staging, const Pass::Attention& at, const Pass* before, Pass* pass);

  const int32_t block_tokens_;
  kernels::AttentionPlan plan_;
  std::vector<kernels::AttentionSegment> segments_;
};

}  // namespace pf
