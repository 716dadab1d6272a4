#include "speculation/model_drafter.h"

#include <algorithm>
#include <cmath>

#include "backend/cpu/top_logits.h"
#include "base/check.h"
#include "speculation/propose_job.h"

namespace pf {
namespace {

constexpr size_t kListed = 128;  // tokens that q ranges over, as in a backend's own proposals

}  // namespace

ModelDrafter::ModelDrafter(Options options, std::unique_ptr<Backend> model)
    : options_(std::move(options)), model_(std::move(model)), levels_(translated_device()) {
  if (options_.windows.n_tokens > 0)
    windows_ = std::make_unique<DraftWindows>(options_.windows, &options_.vocabulary);
  check(windows_ != nullptr || (options_.plane >= 0 && options_.vocabulary.empty()),
        "a draft model without a place for its K and V");
  const DraftVocabulary& v = options_.vocabulary;
  for (size_t t = 0; t < v.to_draft.size(); ++t) {
    int32_t d = v.to_draft[t];
    if (d < 0 || v.to_target[static_cast<size_t>(d)] != static_cast<int32_t>(t)) continue;
    said_.push_back(d);
    said_as_.push_back(static_cast<int32_t>(t));
  }
}

DraftLevels::Device ModelDrafter::translated_device() {
  return {[this](const Batch& batch, std::span<const HiddenRef>) { model_->forward(batch); },
          [this](std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out) {
            list_translated(rows, out);
          },
          options_.max_rows, nullptr, options_.vocabulary.to_draft};
}

bool ModelDrafter::uses_plane(int64_t n_tokens) const {
  if (options_.plane < 0) return false;
  // With windows to go on in, a draft of any shape ends inside the tables' part.
  return !windows_ || n_tokens + kMaxTreeNodes < options_.max_context;
}

int64_t ModelDrafter::room_tokens() const {
  const DraftWindows::Options& w = options_.windows;
  return options_.plane >= 0 ? options_.max_context
                             : std::min<int64_t>(w.n_tokens, int64_t{w.n_blocks} * w.block_tokens);
}

int32_t ModelDrafter::match_length(const Sequence& s) {
  bool able = uses_plane(s.n_tokens()) || windows_->follow(s);
  return able ? static_cast<int32_t>(s.n_tokens()) : 0;
}

int64_t ModelDrafter::lag(const Sequence& s) const {
  return uses_plane(s.n_tokens())
             ? s.n_tokens() - s.table.filled[static_cast<size_t>(options_.plane)]
             : windows_->lag(s);
}

ProposeJob ModelDrafter::job_in_plane(const DraftTask& task) {
  const Sequence& s = *task.sequence;
  int64_t base = s.table.filled[static_cast<size_t>(options_.plane)];
  int64_t n = task.n_draft > 0 ? s.n_tokens() - base : task.n_catchup;
  check(n >= 1 && base + n <= s.n_tokens(), "a draft's catch-up lies outside the committed tokens");
  ProposeJob job = propose_job(task, base);
  job.committed = job.committed.first(static_cast<size_t>(n));
  return job;
}

ProposeJob ModelDrafter::job_in_window(const DraftTask& task, DraftWindows::Job* window) {
  const Sequence& s = *task.sequence;
  *window =
      task.n_draft > 0 ? windows_->job(s, task.n_draft) : windows_->catchup(s, task.n_catchup);
  ProposeJob job = propose_job(task, 0);
  job.committed = window->committed;
  job.base = window->base;
  job.blocks = window->blocks;
  job.n_draft = window->n_draft;
  job.offset = window->offset;
  return job;
}

void ModelDrafter::propose(std::span<const DraftTask> tasks, std::span<DraftTree> trees) {
  jobs_.clear();
  job_tasks_.clear();
  preparing_.clear();
  window_jobs_.assign(tasks.size(), {});
  for (size_t i = 0; i < tasks.size(); ++i) {
    bool in_plane = uses_plane(tasks[i].sequence->n_tokens());
    ProposeJob job = in_plane ? job_in_plane(tasks[i]) : job_in_window(tasks[i], &window_jobs_[i]);
    if (options_.overlaps && take_ahead(tasks[i], window_jobs_[i], &trees[i])) continue;
    jobs_.push_back(job);
    job_tasks_.push_back(i);
  }
  job_trees_.resize(std::max(job_trees_.size(), jobs_.size()));
  propose_jobs(job_trees_);
  for (size_t j = 0; j < jobs_.size(); ++j) std::swap(trees[job_tasks_[j]], job_trees_[j]);
  for (size_t i = 0; i < tasks.size(); ++i) {
    if (window_jobs_[i].committed.empty()) continue;
    windows_->note(*tasks[i].sequence, window_jobs_[i], trees[i]);
    if (options_.overlaps) remember(tasks[i], trees[i]);
  }
}

void ModelDrafter::propose_jobs(std::span<DraftTree> trees) {
  if (jobs_.empty()) return;
  if (options_.n_known > 0) stand_in();
  if (options_.vocabulary.empty())
    model_->propose(jobs_, trees.first(jobs_.size()));
  else
    levels_.grow(jobs_, trees.first(jobs_.size()));
}

// The proposal that prepare() made, if the target has said what it was made for. Its draws are
// those that would be made now: they depend on the text and the positions alone.
bool ModelDrafter::take_ahead(const DraftTask& task, const DraftWindows::Job& due,
                              DraftTree* tree) {
  auto it = ahead_.find(task.sequence->order);
  if (it == ahead_.end()) return false;
  Ahead& a = it->second;
  const std::vector<int32_t>& tokens = task.sequence->tokens;
  // Only the root is due, which was fed then, unless the window has moved on since.
  bool fits = task.n_draft > 0 && task.shape.is_chain() && due.committed.size() == 1 &&
              a.next.size() > 0 &&
              a.n_tokens + static_cast<int64_t>(a.expected.size()) == task.sequence->n_tokens() &&
              std::equal(a.expected.begin(), a.expected.end(), tokens.begin() + a.n_tokens);
  if (fits) {
    tree->clear();
    for (int32_t n = 0; n < std::min(a.next.size(), task.n_draft); ++n) {
      auto first = static_cast<int32_t>(tree->q_entries.size());
      auto q = a.next.q(n);
      tree->q_entries.insert(tree->q_entries.end(), q.begin(), q.end());
      auto i = static_cast<size_t>(n);
      tree->add(a.next.tokens[i], a.next.parents[i], first, a.next.scores[i]);
    }
    ++n_ahead_used_;
  }
  ahead_.erase(it);
  return fits;
}

void ModelDrafter::remember(const DraftTask& task, const DraftTree& tree) {
  if (tree.size() == 0 || !task.shape.is_chain()) return;
  Ahead& a = ahead_[task.sequence->order];
  a.sequence = task.sequence;
  a.proposed = tree;
  a.n_draft = task.n_draft;
  a.policy = task.policy;
  a.params = *task.params;
  a.n_tokens = task.sequence->n_tokens();
  a.expected = tree.tokens;
  a.next.clear();
  preparing_.push_back(&a);
}

// Behind everything that is expected so far.
ProposeJob ModelDrafter::job_ahead(const Ahead& a, int32_t n_draft, std::span<const int32_t> last) {
  DraftWindows::Job window = windows_->job_ahead(*a.sequence, a.proposed, a.n_draft, last);
  ProposeJob job = propose_job({a.sequence, n_draft, 0, {}, a.policy, &a.params}, 0);
  auto n_more = static_cast<int32_t>(a.expected.size()) - a.proposed.size();
  job.committed = last;
  job.base = window.base + n_more;
  job.blocks = window.blocks;
  job.n_draft = n_draft > 1 ? window.n_draft : std::min(n_draft, window.n_draft);
  job.offset = window.offset;
  job.n_generated += static_cast<int32_t>(a.expected.size());
  return job;
}

// First one token behind each proposal, which stands for the target's own; then the next proposals
// behind that.
void ModelDrafter::prepare() {
  for (int pass : {1, 2}) {
    jobs_.clear();
    job_tasks_.clear();
    tokens_ahead_.clear();
    tokens_ahead_.reserve(preparing_.size());  // jobs point into it
    for (size_t i = 0; i < preparing_.size(); ++i) {
      Ahead& a = *preparing_[i];
      bool begun = a.expected.size() > a.proposed.tokens.size();
      if (begun != (pass == 2)) continue;
      int32_t last = a.expected.back();
      tokens_ahead_.push_back(options_.vocabulary.empty()
                                  ? last
                                  : options_.vocabulary.to_draft[static_cast<size_t>(last)]);
      ProposeJob job = job_ahead(a, pass == 1 ? 1 : a.n_draft, std::span(tokens_ahead_).last(1));
      if (job.n_draft == 0) continue;
      if (job.counts)
        for (int32_t token : a.expected) job.counts->add_output(token);
      jobs_.push_back(job);
      job_tasks_.push_back(i);
    }
    job_trees_.resize(std::max(job_trees_.size(), jobs_.size()));
    propose_jobs(job_trees_);
    for (size_t j = 0; j < jobs_.size(); ++j) {
      Ahead& a = *preparing_[job_tasks_[j]];
      if (jobs_[j].counts)
        for (int32_t token : a.expected) jobs_[j].counts->remove_output(token);
      note_ahead(pass, job_trees_[j], &a);
    }
  }
  preparing_.clear();
}

// What stands behind the window now; nodes of the last level were not fed.
void ModelDrafter::note_ahead(int pass, DraftTree& grown, Ahead* a) {
  if (pass == 1) {
    windows_->note_ahead(*a->sequence, a->expected);
    if (grown.size() > 0) a->expected.push_back(grown.tokens[0]);
    return;
  }
  std::vector<int32_t> fed = a->expected;
  for (int32_t n = 0; n + 1 < grown.size(); ++n)
    fed.push_back(grown.tokens[static_cast<size_t>(n)]);
  windows_->note_ahead(*a->sequence, fed);
  std::swap(a->next, grown);
}

// Token 0 is fed for those that the draft does not have.
void ModelDrafter::stand_in() {
  size_t n = 0;
  for (const ProposeJob& job : jobs_) n += job.committed.size();
  tokens_.clear();
  tokens_.reserve(n);  // jobs point into it
  for (ProposeJob& job : jobs_) {
    auto strange = [&](int32_t token) { return token >= options_.n_known; };
    if (std::none_of(job.committed.begin(), job.committed.end(), strange)) continue;
    size_t first = tokens_.size();
    for (int32_t token : job.committed) tokens_.push_back(strange(token) ? 0 : token);
    job.committed = std::span(tokens_).subspan(first);
  }
}

// What the target knows of the draft's likeliest tokens, under the target's names.
void ModelDrafter::list_translated(std::span<const int32_t> rows,
                                   std::span<std::vector<TokenProbability>> out) {
  auto V = model_->info().vocabulary_size;
  logits_.resize(static_cast<size_t>(V));
  said_logits_.resize(said_.size());
  for (size_t r = 0; r < rows.size(); ++r) {
    std::vector<TokenProbability>& top = out[r];
    top.clear();
    model_->read_logits(rows[r], 1, {logits_.data(), {1, V}});
    for (size_t i = 0; i < said_.size(); ++i)
      said_logits_[i] = logits_[static_cast<size_t>(said_[i])];
    if (std::any_of(said_logits_.begin(), said_logits_.end(),
                    [](float x) { return std::isnan(x) || x == INFINITY; }))
      continue;  // a draft that is ill proposes nothing
    find_top_logits(said_logits_, said_as_, kListed, &top);
    std::erase_if(top, [](const TokenProbability& e) { return e.probability == -INFINITY; });
  }
}

// The slots of an accepted path from the place that its first token has in the text; those that lie
// there already need no move. What was proposed and never fed, a last level's node, ends it.
void ModelDrafter::settle(std::span<JudgedDraft> drafts) {
  moves_.clear();
  for (JudgedDraft& d : drafts) {
    if (!uses_plane(d.n_tokens)) {
      windows_->settle(*d.sequence, *d.tree, d.path, &moves_);
      continue;
    }
    d.filled = d.n_tokens;
    for (int32_t node : d.path) {
      int32_t place = d.tree->place_in_draft(node);
      if (place < 0) break;
      int64_t from = d.n_tokens + place, to = d.filled++;
      if (from != to)
        moves_.push_back(
            {d.sequence->table.blocks, static_cast<int32_t>(from), static_cast<int32_t>(to)});
    }
  }
  if (!moves_.empty()) model_->move_slots(moves_);
}

}  // namespace pf
