// Trees that grow on the device. The host knows how many nodes a level may have and how deep they
// are, but not which they are: it plans each node's attention as a path of its own
// (kernels/attention_plan.h), and the device writes places and masks once the nodes are there. A
// level feeds its new nodes only; the ones above were fed before and left their keys and values.
#include <algorithm>

#include "backend/cuda/draft.h"
#include "kernels/place_nodes.h"

namespace pf {

// False where the jobs have no levels in common or too many nodes for one pass.
template <class A>
bool CudaDraft<A>::find_levels() {
  const std::span<const int32_t> widths = jobs_[0].widths;
  for (size_t i = 0; i < jobs_.order().size(); ++i)
    if (!std::equal(widths.begin(), widths.end(), jobs_[i].widths.begin(), jobs_[i].widths.end()))
      return false;
  if (widths.empty() || widths.size() > std::tuple_size_v<decltype(GraphKey::widths)>) return false;
  tree_levels_.clear();
  n_nodes_ = widest_ = 0;
  int32_t places = 1;
  for (int32_t width : widths) {
    Level level{places, std::min(width, kMaxTreeNodes), 0};
    level.next_places = places = std::min(places * level.width, kMaxTreeNodes);
    tree_levels_.push_back(level);
    n_nodes_ = std::min(n_nodes_ + places, kMaxTreeNodes);
    widest_ = std::max(widest_, places);
    // The first wants the most.
    if (!runs_all_levels_ && n_nodes_ >= jobs_[0].n_draft) break;
  }
  return jobs_.n() * widest_ <= max_rows_;
}

template <class A>
bool CudaDraft<A>::grow_trees(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  for (DraftTree& tree : trees) tree.clear();
  jobs_.set(jobs);
  const int64_t n = jobs_.n();
  if (n == 0) return run_committed(0), true;
  if (!find_levels()) return false;
  const int64_t padded = graphs_ != nullptr ? padded_rows(n, max_rows_ / widest_) : 0;
  const int64_t B = padded > 0 ? padded : n;
  stage_trees(B);
  // The places of a tree's tables are those of one plan.
  if (!std::all_of(passes_.begin(), passes_.end(), [](auto& p) { return p.fixed(); })) return false;
  run_committed(B);
  Layout layout{B, top_n_ * n_nodes_};
  make_room(layout.bytes(), &trees_);
  auto issue = [&] { issue_trees(layout); };
  if (padded > 0) {
    GraphKey key{GraphKey::Kind::kTrees, static_cast<int32_t>(B), static_cast<int32_t>(n_layers_),
                 static_cast<int32_t>(tree_levels_.size())};
    for (size_t i = 0; i < tree_levels_.size(); ++i)
      key.widths[i] = static_cast<uint8_t>(tree_levels_[i].width);
    graphs_->rest_on(key.kind, {staging_.base(), trees_.as()}, stream_);
    graphs_->run(key, stream_, issue);
  } else {
    issue();
  }
  fetch(layout, trees);

  // Where q has fewer tokens than a level is wide, a tree wants levels that were left out: then
  // they are not left out again.
  if (tree_levels_.size() == jobs_[0].widths.size()) return true;
  for (size_t j : jobs_.order()) {
    const DraftTree& tree = trees[j];
    if (tree.size() > 0 && tree.size() < jobs[j].n_draft &&
        tree.depths.back() == static_cast<int32_t>(tree_levels_.size()))
      runs_all_levels_ = true;
  }
  return !runs_all_levels_;
}

template <class A>
void CudaDraft<A>::stage_trees(int64_t B) {
  passes_.resize(tree_levels_.size() - 1);
  staging_.begin();
  place_rules(B);
  auto slots = staging_.make<int32_t>(B), first = staging_.make<int32_t>(B);
  placed_.slots = slots;
  placed_.first_block = first;
  for (size_t i = 0; i < passes_.size(); ++i) {
    const int64_t rows = B * tree_levels_[i].next_places;
    PassWriter::place(rows, rows, &staging_, &passes_[i]);
  }
  write_rules();
  for (size_t i = 0; i < passes_.size(); ++i) {
    batch_.clear();
    for (size_t j = 0; j < jobs_.order().size(); ++j)
      add_nodes(jobs_[j], static_cast<int32_t>(i) + 1, tree_levels_[i].next_places);
    forward_->writer().fill(batch_, &staging_, &passes_[i], i > 0 ? &passes_[i - 1] : nullptr);
  }
  int32_t table = passes_.empty() ? 0 : Staging::index(passes_[0].tables);
  for (size_t i = 0; i < static_cast<size_t>(B); ++i) {
    const ProposeJob* job = i < jobs_.order().size() ? &jobs_[i] : nullptr;
    staging_.host(slots)[i] =
        job ? static_cast<int32_t>(job->base) + static_cast<int32_t>(job->committed.size()) : 0;
    staging_.host(first)[i] = table;
    if (job) table += static_cast<int32_t>(job->blocks.size());
  }
  staging_.send(stream_);
}

// Rows for the nodes of one depth. A node has the bit of its row: the device writes the true mask,
// which has as many bits as the node is deep, and the slot.
template <class A>
void CudaDraft<A>::add_nodes(const ProposeJob& job, int32_t depth, int32_t n) {
  const auto first_slot =
      static_cast<int32_t>(job.base) + static_cast<int32_t>(job.committed.size());
  const int32_t first_row = batch_.n_rows();
  for (int32_t i = 0; i < n; ++i) {
    batch_.tokens.push_back(0);
    batch_.positions.push_back(first_slot - 1 + depth);
    batch_.slots.push_back(first_slot);
    batch_.visible.push_back(first_slot);
    batch_.masks.push_back(uint64_t{1} << i);
    batch_.row_segment.push_back(static_cast<int32_t>(batch_.segments.size()));
    batch_.logit_rows.push_back(first_row + i);
  }
  batch_.segments.push_back({first_row, n, 0, first_slot, job.blocks});
}

template <class A>
void CudaDraft<A>::issue_trees(const Layout& layout) {
  const int64_t B = layout.n;
  const kernels::DraftTrees trees = layout.at(trees_.as());
  clear_trees(layout);
  for (size_t i = 0; i < tree_levels_.size(); ++i) {
    const auto depth = static_cast<int32_t>(i) + 1;
    if (i > 0) {
      const Pass& pass = passes_[i - 1];
      const int64_t W = tree_levels_[i].places;
      kernels::place_nodes({staging_.at(pass.places), {B, W}}, {staging_.at(pass.masks), {B, W}},
                           {open_[depth % 2].data(), {B, W}}, trees.parents,
                           staging_.view(placed_.slots), staging_.view(placed_.first_block),
                           staging_.base<int32_t>(), block_tokens_, stream_);
      forward_->launch(pass, staging_, tokens_.data(), n_layers_);
    }
    const int64_t n = B * tree_levels_[i].places;
    for (int64_t first = 0; first < n; first += chunk_rows_)
      list_open(depth, first, std::min<int64_t>(chunk_rows_, n - first));
    grow(layout, depth, n_nodes_, B, tree_levels_[i]);
  }
}

template bool CudaDraft<f16>::grow_trees(std::span<const ProposeJob>, std::span<DraftTree>);
template bool CudaDraft<bf16>::grow_trees(std::span<const ProposeJob>, std::span<DraftTree>);

}  // namespace pf
