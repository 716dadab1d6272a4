#include "engine/hash_model.h"

#include <algorithm>
#include <numeric>

#include "backend/head_drafts.h"
#include "base/check.h"
#include "sampling/grown_tree.h"

namespace pf {
namespace {

void write_hash(uint64_t h, float* out) {
  for (int i = 0; i < HashBackend::kHidden; ++i) out[i] = static_cast<float>(h >> 16 * i & 0xffff);
}

uint64_t read_hash(const float* in) {
  uint64_t h = 0;
  for (int i = 0; i < HashBackend::kHidden; ++i) h |= static_cast<uint64_t>(in[i]) << 16 * i;
  return h;
}

}  // namespace

HashBackend::HashBackend(HashModel model, int32_t n_blocks, int32_t block_tokens,
                         int64_t max_context)
    : model_(model),
      block_tokens_(block_tokens),
      plane_(static_cast<size_t>(n_blocks) * static_cast<size_t>(block_tokens)),
      hidden_(static_cast<size_t>(kMaxRows * kHidden)),
      kept_(static_cast<size_t>(n_blocks)) {
  info_.device = "hash";
  info_.dtype = "none";
  info_.vocabulary_size = model.vocabulary;
  info_.max_context = max_context;
}

void HashBackend::forward(const Batch& batch) {
  batch_ = batch;
  n_rows_run += batch.n_rows();
  max_rows_seen = std::max(max_rows_seen, batch.n_rows());
  ++n_forwards;
  if (on_pass && !proposing_) on_pass(batch.n_rows());
  for (const Segment& s : batch_.segments)
    for (int32_t r = s.first_row; r < s.first_row + s.n_rows; ++r) {
      size_t i = static_cast<size_t>(r);
      check(batch_.positions[i] < info_.max_context, "a row beyond the context");
      slot(s, batch_.slots[i]) = {batch_.tokens[i], batch_.positions[i],
                                  is_head ? before_.at(i) : 0};
    }
  if (!keeps_hidden) return;
  check(batch_.n_rows() <= kMaxRows, "more rows than hidden states are kept of");
  for (int32_t r = 0; r < batch_.n_rows(); ++r)
    write_hash(hash_of_row(r), hidden_.data() + r * kHidden);
}

uint64_t HashBackend::hash_at(HiddenRef ref) const {
  if (ref.in == HiddenRef::In::kBlock) return kept_[static_cast<size_t>(ref.index)];
  return read_hash(static_cast<const float*>(hidden_of.data) + ref.index * kHidden);
}

uint64_t HashBackend::hash_of_row(int32_t row) {
  size_t i = static_cast<size_t>(row);
  const Segment& s = batch_.segments[static_cast<size_t>(batch_.row_segment[i])];
  uint64_t h = model_.salt;
  text_.clear();
  int32_t position = is_head ? 1 : 0;  // a head's slot 0 stays empty
  auto see = [&](int64_t logical) {
    const Slot& seen = slot(s, logical);
    check(seen.position == position, "a row sees a key of another position");
    if (is_head) {
      check(position == 1 || seen.before == h, "a head's key was made of a wrong hidden state");
      h = seen.before;
    }
    h = HashModel::extend(h, model_.known(seen.token));
    text_.push_back(seen.token);
    ++position;
  };
  for (int32_t l = position; l < batch_.visible[i]; ++l) see(l);
  for (int32_t n = 0; n < kMaxTreeNodes; ++n)
    if (batch_.masks[i] >> n & 1) see(s.node_slot(n));
  check(position == batch_.positions[i] + 1, "a row does not see exactly its past and itself");
  return model_.memory > 0 ? model_.hash(text_) : h;
}

int32_t HashBackend::agreement_on_text() const {
  return model_.hard_agreement >= 0 && text_.front() % 2 == 1 ? model_.hard_agreement
                                                              : model_.agreement;
}

void HashBackend::read_logits(int32_t first, int32_t n, View<float, 2> out) {
  for (int32_t k = 0; k < n; ++k) {
    int32_t row = batch_.logit_rows[static_cast<size_t>(first + k)];
    uint64_t h = hash_of_row(row);
    model_.logits(h, out[k].span(), agreement_on_text());
    if (spoil) spoil(text_, out[k].span());
  }
}

void HashBackend::accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) {
  for (size_t j = 0; j < jobs.size(); ++j) {
    const Segment& s = batch_.segments[static_cast<size_t>(jobs[j].segment)];
    int32_t root = s.first_row + s.n_plain - 1, n = s.n_rows - s.n_plain + 1;
    auto at = std::lower_bound(batch_.logit_rows.begin(), batch_.logit_rows.end(), root);
    logits_.resize(static_cast<size_t>(n) * static_cast<size_t>(model_.vocabulary));
    AcceptInput in = jobs[j].input;
    View<float, 2> rows{logits_.data(), {n, model_.vocabulary}};
    read_logits(static_cast<int32_t>(at - batch_.logit_rows.begin()), n, rows);
    in.logits = rows;
    pf::accept(in, &results[j]);
  }
}

void HashBackend::score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) {
  logits_.resize(static_cast<size_t>(model_.vocabulary));
  for (size_t j = 0; j < jobs.size(); ++j) {
    read_logits(jobs[j].logit_row, 1, {logits_.data(), {1, model_.vocabulary}});
    results[j] = logprobs_of(logits_, jobs[j].token, jobs[j].n_top);
  }
}

// A head knows the text up to the token before the root, and thinks that greedy tokens follow.
void HashBackend::propose_as_medusa(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  std::vector<std::vector<TokenProbability>> lists;
  std::vector<uint64_t> hashes;
  for (const ProposeJob& job : jobs) hashes.push_back(hash_at(job.hidden.back()));
  std::vector<float> logits(static_cast<size_t>(model_.vocabulary));
  for (int32_t head = 0; head < n_medusa_heads; ++head)
    for (uint64_t& h : hashes) {
      model_.logits(h, logits);
      auto likeliest = std::max_element(logits.begin(), logits.end()) - logits.begin();
      h = HashModel::extend(h, model_.known(static_cast<int32_t>(likeliest)));
      model_.logits(h, logits);
      lists.emplace_back();
      for (int32_t t = 0; t < model_.vocabulary; ++t)
        lists.back().push_back({t, logits[static_cast<size_t>(t)]});
    }
  grow_from_heads(jobs, n_medusa_heads, lists, nullptr, trees);
}

void HashBackend::propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  if (n_medusa_heads > 0) return propose_as_medusa(jobs, trees);
  level_rows_.clear();
  proposing_ = true;
  for (size_t j = 0; j < jobs.size(); ++j) propose_one(jobs[j], &trees[j]);
  proposing_ = false;
  for (int32_t rows : level_rows_)
    if (on_pass) on_pass(rows);
}

// One pass over the catch-up and all nodes so far stands for feeding the last level. A device feeds
// what is new: what is committed, then a chain's last node, or a tree with its root.
void HashBackend::feed(const ProposeJob& job, const DraftTree& tree, size_t level) {
  level_rows_.resize(std::max(level_rows_.size(), level + 1), 0);
  level_rows_[level] += level == 0       ? static_cast<int32_t>(job.committed.size())
                        : job.is_chain() ? 1
                                         : 1 + tree.size();
  Batch batch;
  batch.add(job.committed, job.base, &tree, job.blocks, Batch::Logits::kLast);
  if (is_head) {
    before_.clear();
    for (size_t i = 0; i < job.committed.size(); ++i) before_.push_back(hash_at(job.hidden[i]));
    size_t root = before_.size() - 1;
    for (int32_t n = 0; n < tree.size(); ++n) {
      int32_t parent = tree.parents[static_cast<size_t>(n)];
      size_t row = root + 1 + static_cast<size_t>(parent);
      before_.push_back(HashModel::extend(before_[row], batch.tokens[row]));
    }
  }
  forward(batch);
}

void HashBackend::propose_grown(const ProposeJob& job, DraftTree* tree) {
  GrownTree grown;
  std::vector<float> logits(static_cast<size_t>(model_.vocabulary));
  grown.begin(job.n_draft, job.grown_levels);
  GrowthPoint root{
      DraftTree::kRoot, job.offset + job.base + static_cast<int64_t>(job.committed.size()),
      job.n_generated,  job.params,
      job.stop,         job.counts,
      job.key,          job.policy.rule == Acceptance::kCoupled};
  for (size_t level = 0; !grown.complete(); ++level) {
    feed(job, grown.fed(), level);
    check(grown.fed().size() <= job.n_draft, "a draft is fed more nodes than there is room for");
    std::vector<std::vector<TokenProbability>> top(grown.open().size());
    for (size_t i = 0; i < top.size(); ++i) {
      read_logits(grown.open()[i] + 1, 1, {logits.data(), {1, model_.vocabulary}});
      for (int32_t t = 0; t < model_.vocabulary; ++t)
        top[i].push_back({t, logits[static_cast<size_t>(t)]});
    }
    grown.add_level(root, top);
  }
  grown.take(tree);
}

void HashBackend::propose_one(const ProposeJob& job, DraftTree* tree) {
  tree->clear();
  std::vector<float> logits(static_cast<size_t>(model_.vocabulary));
  std::vector<TokenProbability> top(logits.size());
  std::vector<int32_t> open = {DraftTree::kRoot};
  if (job.grown_levels > 0 && job.n_draft > 0) return propose_grown(job, tree);
  // Rules may leave a level fewer children than its width: then the levels end before the nodes do.
  for (int32_t depth = 0; depth == 0 || (tree->size() < job.n_draft && depth < job.n_levels());
       ++depth) {
    feed(job, *tree, static_cast<size_t>(depth));
    if (job.n_draft == 0) return;
    int32_t width = job.widths.empty() ? 1 : job.widths[static_cast<size_t>(depth)];
    std::vector<int32_t> next;
    for (int32_t parent : open) {
      read_logits(parent + 1, 1, {logits.data(), {1, model_.vocabulary}});
      for (size_t t = 0; t < top.size(); ++t) top[t] = {static_cast<int32_t>(t), logits[t]};
      GrowthPoint at{parent,
                     job.offset + job.base + static_cast<int64_t>(job.committed.size()) + depth,
                     job.n_generated + depth,
                     job.params,
                     job.stop,
                     job.counts,
                     job.key,
                     job.policy.rule == Acceptance::kCoupled};
      int32_t n = add_children(at, top, std::min(width, job.n_draft - tree->size()), tree);
      for (int32_t i = 0; i < n; ++i) next.push_back(tree->size() - n + i);
    }
    if (next.empty()) return;
    open = next;
  }
}

void HashBackend::copy_blocks(std::span<const BlockCopy> copies) {
  for (const BlockCopy& c : copies) {
    ++n_blocks_copied;
    std::copy_n(plane_.begin() + c.from * block_tokens_, block_tokens_,
                plane_.begin() + c.to * block_tokens_);
    kept_[static_cast<size_t>(c.to)] = kept_[static_cast<size_t>(c.from)];
  }
}

void HashBackend::move_slots(std::span<const SlotMove> moves) {
  n_slots_moved += static_cast<int64_t>(moves.size());
  for (const SlotMove& m : moves) {
    const Segment s{.blocks = m.blocks};
    slot(s, m.to) = slot(s, m.from);
  }
}

PlainRun plain_run(const HashModel& model, const Request& request, int32_t index,
                   int64_t max_context) {
  PlainRun run;
  std::vector<int32_t> text = request.prompt;
  std::vector<float> logits(static_cast<size_t>(model.vocabulary));
  TokenCounts counts;
  counts.add_prompt(text);
  DraftTree none;
  while (static_cast<int32_t>(run.tokens.size()) < request.stop.max_new_tokens &&
         static_cast<int64_t>(text.size()) <= max_context) {
    model.logits(model.hash(text), logits);
    AcceptInput in{};
    in.tree = &none;
    in.logits = {logits.data(), {1, model.vocabulary}};
    in.params = &request.sampling;
    in.stop = &request.stop;
    in.policy.rule = request.has_seed ? Acceptance::kCoupled : Acceptance::kRejection;
    in.key = {request.seed, static_cast<uint32_t>(index)};
    in.position = static_cast<int64_t>(text.size());
    in.n_generated = static_cast<int32_t>(run.tokens.size());
    in.counts = &counts;
    in.want_logprobs = true;
    in.max_tokens = 1;
    AcceptResult r;
    accept(in, &r);
    run.tokens.push_back(r.tokens[0]);
    run.logprobs.push_back(r.logprobs[0].logprob);
    text.push_back(r.tokens[0]);
    counts.add_output(r.tokens[0]);
    if (r.ended) break;
  }
  return run;
}

}  // namespace pf
