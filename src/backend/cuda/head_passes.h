#pragma once

#include <cstdint>

namespace pf {

// What heads for each position to come (cuda_heads.h) do to sequences that draft together, in
// order: written once, for whoever issues it and for whoever wants to know what would be issued, as
// passes.h is for a pass. An operation is one kernel, but run_head_block(), which is a product and
// what is made of it, and list_head(), which is a product and the two of list_candidates.
template <class Ops>
void issue_heads(Ops& ops, int32_t n_heads) {
  ops.gather_states();
  for (int32_t h = 0; h < n_heads; ++h) {
    for (int32_t b = 0; b < ops.n_head_blocks(h); ++b) ops.run_head_block(h, b);
    ops.list_head(h);
  }
  ops.fetch();
}

}  // namespace pf
