#include "engine/head_rooms.h"

#include <algorithm>

#include "batch/draft_shape.h"
#include "engine/drafter_names.h"
#include "speculation/lookahead_drafter.h"

namespace pf {
namespace {

// Nodes of a full draft, and of its widest level.
struct FullDraft {
  int64_t nodes = 0, widest = 0;
};

FullDraft full_draft(const EngineOptions& o) {
  if (is_off(o)) return {};
  if (o.speculation_tree_nodes > 0) return {o.speculation_tree_nodes, o.speculation_tree_nodes};
  if (o.speculation_tree.empty()) return {longest_chain(o), 1};
  int64_t level = 1, widest = 1;
  for (int32_t width : o.speculation_tree)
    widest = std::max(widest, level = std::min<int64_t>(level * width, kMaxTreeNodes));
  const auto depth = static_cast<int32_t>(o.speculation_tree.size());
  return {DraftShape{o.speculation_tree}.nodes(depth), widest};
}

int32_t rows(const EngineOptions& o, int64_t of_each) {
  return static_cast<int32_t>(std::min(o.max_num_seqs * of_each, int64_t{kMostHeadRows}));
}

}  // namespace

int32_t longest_chain(const EngineOptions& o) {
  if (o.num_speculative_tokens >= 0) return o.num_speculative_tokens;
  return o.draft_length == "adaptive" || o.draft_length == "window" ? 10 : 5;
}

int32_t target_head_rows(const EngineOptions& o) {
  int64_t nodes = full_draft(o).nodes;
  const LookaheadDrafter lookahead;  // has a shape of its own
  const DraftShape own{lookahead.own_shape()};
  if (wants(o, lookahead.name())) nodes = std::max<int64_t>(nodes, own.nodes(own.full_depth(0)));
  return rows(o, 1 + nodes);
}

int32_t draft_head_rows(const EngineOptions& o, const Model& draft) {
  if (wants(o, "cascade")) return target_head_rows(o);  // it judges n-grams as the target does
  // Heads for each position look at a row of each sequence, whatever the shape.
  return rows(o, draft.medusa.empty() ? std::max<int64_t>(1, full_draft(o).widest) : 1);
}

}  // namespace pf
