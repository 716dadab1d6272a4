#include "speculation/cascade_drafter.h"

#include <cmath>

#include "backend/cpu/top_logits.h"
#include "base/check.h"
#include "batch/plan.h"
#include "sampling/grow.h"

namespace pf {
namespace {

constexpr int64_t kInsideChunk = 128;  // tokens of a lag that an inner model runs in one step

bool has_plane(Drafter& drafter) { return drafter.plane() >= 0 && !drafter.absorbs(); }

// Tokens that the model cannot say are -inf there.
bool is_sound(std::span<const float> row) {
  float most = -INFINITY;
  for (float v : row) {
    if (std::isnan(v)) return false;
    most = std::max(most, v);
  }
  return std::isfinite(most);
}

// How many drafts judge below this one.
uint32_t level_of(Drafter* drafter) {
  uint32_t level = 0;
  for (; drafter != nullptr; drafter = drafter->inner()) ++level;
  return level;
}

}  // namespace

CascadeDrafter::CascadeDrafter(Options options, std::unique_ptr<Drafter> cheap, Backend* model,
                               std::unique_ptr<Backend> own)
    : options_(std::move(options)),
      level_(level_of(cheap.get())),
      cheap_(std::move(cheap)),
      own_(std::move(own)),
      model_(model) {}

int64_t CascadeDrafter::base(const DraftTask& task) const {
  return task.sequence->table.filled[static_cast<size_t>(options_.plane)];
}

int64_t CascadeDrafter::n_fed(const DraftTask& task) const {
  return task.n_draft > 0 ? task.sequence->n_tokens() - base(task) : task.n_catchup;
}

void CascadeDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  ask_cheap(tasks);
  for (size_t first = 0; first < tasks.size();) {
    size_t end = first;
    int64_t n = 0;
    auto rows = [&](size_t t) { return n_fed(tasks[t]) + cheap_trees_[t].size(); };
    do n += rows(end++);
    while (end < tasks.size() && n + rows(end) <= options_.max_rows);
    judge_pass(tasks.subspan(first, end - first),
               std::span(cheap_trees_).subspan(first, end - first),
               trees.subspan(first, end - first));
    first = end;
  }
}

// One token less than may be drafted: the last is the model's. A cheap model whose plane lags far
// catches up first, a chunk in every step. Of a sequence that the cheap one is not asked for
// nothing is known of its plane: what an earlier round said may be of blocks that are gone.
void CascadeDrafter::ask_cheap(std::span<const DraftTask> tasks) {
  cheap_tasks_.clear();
  cheap_of_.clear();
  cheap_trees_.resize(std::max(cheap_trees_.size(), tasks.size()));
  for (size_t t = 0; t < tasks.size(); ++t) {
    cheap_trees_[t].clear();
    if (tasks[t].n_draft <= 0) {
      inside_.erase(tasks[t].sequence->order);
      continue;
    }
    DraftTask task = tasks[t];
    task.n_draft = tasks[t].depth() - 1;
    task.shape = {};
    if (has_plane(*cheap_)) {
      const Sequence& s = *task.sequence;
      int64_t filled = s.table.filled[static_cast<size_t>(cheap_->plane())];
      int64_t lag = s.n_tokens() - filled;
      if (lag > kInlineCatchupTokens) task.n_draft = 0;
      if (task.n_draft == 0) task.n_catchup = static_cast<int32_t>(std::min(lag, kInsideChunk));
      const bool drafts = task.n_draft > 0;
      inside_[s.order] = {drafts ? s.n_tokens() : filled + task.n_catchup, t, drafts};
    } else if (task.n_draft == 0) {
      continue;
    }
    cheap_tasks_.push_back(task);
    cheap_of_.push_back(t);
  }
  if (cheap_tasks_.empty()) return;
  answers_.resize(std::max(answers_.size(), cheap_tasks_.size()));
  cheap_->propose(cheap_tasks_, std::span(answers_).first(cheap_tasks_.size()));
  for (size_t c = 0; c < cheap_tasks_.size(); ++c)
    std::swap(cheap_trees_[cheap_of_[c]], answers_[c]);
}

void CascadeDrafter::judge_pass(std::span<const DraftTask> tasks, std::span<const DraftTree> cheap,
                                std::span<DraftTree> trees) {
  batch_.clear();
  first_rows_.clear();
  for (size_t t = 0; t < tasks.size(); ++t) {
    const Sequence& s = *tasks[t].sequence;
    int64_t first = base(tasks[t]), n = n_fed(tasks[t]);
    check(n >= 1 && first + n <= s.n_tokens(), "a draft's catch-up is outside the text");
    first_rows_.push_back(static_cast<int32_t>(batch_.logit_rows.size()));
    batch_.add(std::span(s.tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n)),
               first, &cheap[t], s.table.blocks,
               tasks[t].n_draft > 0 ? Batch::Logits::kLast : Batch::Logits::kNone);
  }
  model_->forward(batch_);
  for (size_t t = 0; t < tasks.size(); ++t) {
    trees[t].clear();
    if (tasks[t].n_draft > 0) judge_one(tasks[t], cheap[t], first_rows_[t], &trees[t]);
  }
}

void CascadeDrafter::judge_one(const DraftTask& task, const DraftTree& cheap, int32_t first_row,
                               DraftTree* tree) {
  const Sequence& s = *task.sequence;
  int64_t width = model_->info().vocabulary_size;
  auto n_rows = static_cast<size_t>(cheap.size()) + 1;
  logits_.resize(std::max(logits_.size(), n_rows * static_cast<size_t>(width)));
  top_.resize(std::max(top_.size(), n_rows));
  View<float, 2> rows{logits_.data(), {static_cast<int64_t>(n_rows), width}};
  model_->read_logits(first_row, static_cast<int32_t>(n_rows), rows);
  for (size_t r = 0; r < n_rows; ++r) {
    std::span<const float> row = rows[static_cast<int64_t>(r)].span();
    top_[r].clear();
    if (is_sound(row)) find_top_logits(row, {}, static_cast<size_t>(options_.n_top), &top_[r]);
  }
  FilterInput in;
  in.root.position = s.n_tokens();
  in.root.n_generated = static_cast<int32_t>(s.n_generated());
  in.root.params = task.params;
  in.root.stop = &s.request->stop;
  in.root.counts = s.counts.get();
  in.root.key = {s.request->seed, static_cast<uint32_t>(s.index)};
  in.root.coupled = task.policy.rule == Acceptance::kCoupled;
  in.cheap = &cheap;
  in.rows = std::span(top_).first(n_rows);
  in.max_nodes = task.depth();
  in.level = level_;
  filter_chain(in, tree);
}

// The last node is the model's own token and was not fed; those before it were, in their places.
void CascadeDrafter::settle(std::span<JudgedDraft> drafts) {
  for (JudgedDraft& d : drafts)
    d.filled = d.n_tokens + std::min<int64_t>(static_cast<int64_t>(d.path.size()),
                                              std::max(0, d.tree->size() - 1));
  if (has_plane(*cheap_)) settle_inside(drafts);
}

// Both are chains: of the cheap one's the target has kept the nodes that this one left in and the
// path goes through.
void CascadeDrafter::settle_inside(std::span<const JudgedDraft> drafts) {
  judged_.clear();
  for (const JudgedDraft& d : drafts) {
    const Inside& in = inside_.at(d.sequence->order);
    if (!in.drafted) continue;
    const DraftTree& cheap = cheap_trees_[in.task];
    size_t n = 0, most = std::min(d.path.size(), cheap.tokens.size());
    while (n < most && d.tree->tokens[n] == cheap.tokens[n]) ++n;
    judged_.push_back({d.sequence, &cheap, d.path.first(n), d.n_tokens});
  }
  if (judged_.empty()) return;
  cheap_->settle(judged_);
  for (const JudgedDraft& j : judged_) inside_.at(j.sequence->order).filled = j.filled;
}

int64_t CascadeDrafter::filled_inside(const Sequence& sequence) const {
  auto it = inside_.find(sequence.order);
  return it == inside_.end() ? 0 : it->second.filled;
}

void CascadeDrafter::copy_blocks(std::span<const BlockCopy> copies) {
  if (own_) own_->copy_blocks(copies);  // a model of somebody else's has copied them already
  cheap_->copy_blocks(copies);
}

void CascadeDrafter::forget(const Sequence& sequence) {
  inside_.erase(sequence.order);
  cheap_->forget(sequence);
}

}  // namespace pf
