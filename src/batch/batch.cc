#include "batch/batch.h"

#include <array>

#include "base/check.h"

namespace pf {

void Batch::clear() {
  tokens.clear();
  positions.clear();
  slots.clear();
  visible.clear();
  masks.clear();
  row_segment.clear();
  segments.clear();
  logit_rows.clear();
}

// Of the last segment.
void Batch::add_row(int32_t token, int64_t position, int64_t slot, int64_t sees, uint64_t mask,
                    bool wants_logits) {
  if (wants_logits) logit_rows.push_back(n_rows());
  tokens.push_back(token);
  positions.push_back(static_cast<int32_t>(position));
  slots.push_back(static_cast<int32_t>(slot));
  visible.push_back(static_cast<int32_t>(sees));
  masks.push_back(mask);
  row_segment.push_back(static_cast<int32_t>(segments.size()) - 1);
}

void Batch::add_rows_of_nodes(const DraftTree& tree, int32_t first, bool wants_logits) {
  check(tree.size() <= kMaxTreeNodes, "a tree is wider than its mask");
  const Segment& s = segments.back();
  std::array<uint64_t, kMaxTreeNodes> path{};  // by node: itself and those above it
  for (int32_t i = 0; i < tree.size(); ++i) {
    const auto n = static_cast<size_t>(i);
    const int32_t parent = tree.parents[n];
    path[n] = uint64_t{1} << i;
    if (parent != DraftTree::kRoot) path[n] |= path[static_cast<size_t>(parent)];
    if (i < first) continue;
    add_row(tree.tokens[n], s.node_slot(tree.depths[n] - 1), s.node_slot(i), s.node_slot(0),
            path[n], wants_logits);
  }
}

void Batch::add(std::span<const int32_t> committed, int64_t base, const DraftTree* tree,
                std::span<const BlockId> blocks, Logits logits) {
  const auto n_plain = static_cast<int32_t>(committed.size());
  check(n_plain >= 1, "a segment needs a committed token");
  segments.push_back({n_rows(), n_plain + (tree ? tree->size() : 0), n_plain, base, blocks});
  for (int32_t i = 0; i < n_plain; ++i)
    add_row(committed[static_cast<size_t>(i)], base + i, base + i, base + i + 1, 0,
            logits == Logits::kAll || (logits == Logits::kLast && i == n_plain - 1));
  if (tree) add_rows_of_nodes(*tree, 0, logits != Logits::kNone);
}

void Batch::add_nodes(const DraftTree& tree, int32_t first, int64_t root,
                      std::span<const BlockId> blocks, Logits logits) {
  check(first < tree.size(), "a segment needs a row");
  segments.push_back({n_rows(), tree.size() - first, 0, root + 1, blocks});
  add_rows_of_nodes(tree, first, logits != Logits::kNone);
}

}  // namespace pf
