#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "sampling/grown_tree.h"

namespace pf {

// The shape of a draft: a chain; a tree of given widths; or a tree that grows where it is likeliest
// to be kept, of which only the size is given.
struct DraftShape {
  std::span<const int32_t> widths = {};  // by depth; empty: a chain, or a tree that grows
  // A tree that grows, when full; 0: it does not. Requires: n_levels <= n_nodes.
  int32_t n_nodes = 0, n_levels = 0;

  static DraftShape grown(int32_t n_nodes, int32_t n_levels) {
    return {{}, n_nodes, std::min(n_nodes, n_levels)};
  }
  bool grows() const { return n_nodes > 0; }
  bool is_chain() const { return widths.empty() && !grows(); }

  // Levels of a full draft, where a chain may have `longest`.
  int32_t full_depth(int32_t longest) const {
    return grows() ? n_levels : widths.empty() ? longest : static_cast<int32_t>(widths.size());
  }
  // Nodes of the first `depth` levels. Requires: depth <= full_depth.
  int32_t nodes(int32_t depth) const {
    if (grows()) return grown_nodes(n_nodes, n_levels, depth);
    if (widths.empty()) return depth;
    int32_t level = 1, total = 0;
    for (int32_t d = 0; d < depth; ++d) total += level *= widths[static_cast<size_t>(d)];
    return total;
  }
  // Levels that so many nodes have; one that is begun counts.
  int32_t depth(int32_t n) const {
    if (is_chain()) return n;
    int32_t depth = 0;
    while (depth < full_depth(n) && nodes(depth) < n) ++depth;
    return depth;
  }
};

}  // namespace pf
