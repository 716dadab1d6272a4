#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/cuda/limits.h"
#include "base/check.h"
#include "kernels/sample_types.h"

namespace pf {

// Sequences that the accept rule has room for at once: each needs a residual of the vocabulary.
inline int32_t n_judged_at_once(const CudaOptions& o) {
  return std::min(o.head_chunk_rows, o.max_sequences);
}

// Room for what the accept rule says of all rows of a pass, each a sequence at most, and the laws.
inline size_t judge_answer_bytes(const CudaOptions& o) {
  using namespace kernels;
  return static_cast<size_t>(n_max_rows(o)) *
             (sizeof(Accepted) + kMaxListedTop * sizeof(TokenValue) + sizeof(RowLaw)) +
         alignof(RowLaw);
}

// What the head and the accept rule take at once: sequences [first, end) of those that are judged,
// whose logit rows are [first_row, first_row + n_rows) of theirs. The head's weights are read once
// for each, so a step has one, but for what no option foresaw (engine/head_rooms.h).
struct HeadChunk {
  size_t first = 0, end = 0;
  int64_t first_row = 0, n_rows = 0;

  int64_t n_sequences() const { return static_cast<int64_t>(end - first); }
};

// Calls f with each, in order; rows_of(i): logit rows of the i-th of n sequences.
template <class RowsOf, class F>
void each_head_chunk(const CudaOptions& o, size_t n, RowsOf&& rows_of, F&& f) {
  HeadChunk c;
  for (; c.first < n; c.first = c.end, c.first_row += c.n_rows) {
    c.end = c.first;
    c.n_rows = 0;
    while (c.end < n && c.n_sequences() < n_judged_at_once(o) &&
           c.n_rows + rows_of(c.end) <= o.head_chunk_rows)
      c.n_rows += rows_of(c.end++);
    check(c.end > c.first, "a tree has more rows than there is room for");
    f(static_cast<const HeadChunk&>(c));
  }
}

}  // namespace pf
