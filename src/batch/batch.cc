#include "batch/batch.h"

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

void Batch::add(std::span<const int32_t> committed, int64_t base, const DraftTree* tree,
                std::span<const BlockId> blocks, Logits logits) {
  int32_t n_plain = static_cast<int32_t>(committed.size());
  int32_t n_nodes = tree ? tree->size() : 0;
  check(n_plain >= 1, "a segment needs a committed token");
  check(n_nodes <= kMaxTreeNodes, "a tree is wider than its mask");
  Segment s{n_rows(), n_plain + n_nodes, n_plain, base, blocks};
  int32_t segment = static_cast<int32_t>(segments.size());
  segments.push_back(s);
  auto row = [&](int32_t token, int64_t position, int64_t slot, int64_t sees, uint64_t mask,
                 bool wants_logits) {
    if (wants_logits) logit_rows.push_back(n_rows());
    tokens.push_back(token);
    positions.push_back(static_cast<int32_t>(position));
    slots.push_back(static_cast<int32_t>(slot));
    visible.push_back(static_cast<int32_t>(sees));
    masks.push_back(mask);
    row_segment.push_back(segment);
  };
  for (int32_t i = 0; i < n_plain; ++i)
    row(committed[static_cast<size_t>(i)], base + i, base + i, base + i + 1, 0,
        logits == Logits::kAll || (logits == Logits::kLast && i == n_plain - 1));
  for (int32_t i = 0; i < n_nodes; ++i) {
    size_t n = static_cast<size_t>(i);
    int32_t parent = tree->parents[n];
    uint64_t above =
        parent == DraftTree::kRoot ? 0 : masks[static_cast<size_t>(s.first_row + n_plain + parent)];
    row(tree->tokens[n], base + n_plain - 1 + tree->depths[n], s.node_slot(i), base + n_plain,
        above | uint64_t{1} << i, logits != Logits::kNone);
  }
}

}  // namespace pf
