#include "backend/cuda/draft.h"

#include <algorithm>

#include "backend/cuda/fetch_lists.h"
#include "backend/cuda/limits.h"

namespace pf {

using kernels::TokenValue;

namespace {

constexpr int64_t kPlaces = kMaxTreeNodes;

}  // namespace

template <class A>
size_t CudaDraft<A>::Layout::bytes() const {
  return static_cast<size_t>(n) * (sizeof(int32_t) * (2 + 6 * static_cast<size_t>(kPlaces)) +
                                   static_cast<size_t>(q_capacity) * sizeof(TokenValue));
}

template <class A>
kernels::DraftTrees CudaDraft<A>::Layout::at(std::byte* base) const {
  kernels::DraftTrees t{};
  t.q = reinterpret_cast<TokenValue*>(base);
  t.q_capacity = q_capacity;
  t.n_nodes = reinterpret_cast<int32_t*>(t.q + n * q_capacity);
  t.n_entries = t.n_nodes + n;
  t.tokens = t.n_entries + n;
  t.parents = t.tokens + n * kPlaces;
  t.depths = t.parents + n * kPlaces;
  t.q_begin = t.depths + n * kPlaces;
  t.q_end = t.q_begin + n * kPlaces;
  t.scores = reinterpret_cast<float*>(t.q_end + n * kPlaces);
  return t;
}

template <class A>
void CudaDraft<A>::Layout::read(const std::byte* base, int64_t b, DraftTree* tree) const {
  const kernels::DraftTrees t = at(const_cast<std::byte*>(base));
  const int32_t n_nodes = t.n_nodes[b], n_entries = t.n_entries[b];
  auto some = [&](const auto* from, auto* to) {
    to->assign(from + b * kPlaces, from + b * kPlaces + n_nodes);
  };
  some(t.tokens, &tree->tokens);
  some(t.parents, &tree->parents);
  some(t.depths, &tree->depths);
  some(t.q_begin, &tree->q_begin);
  some(t.q_end, &tree->q_end);
  some(t.scores, &tree->scores);
  tree->q_entries.clear();
  const TokenValue* q = t.q + b * q_capacity;
  for (int32_t i = 0; i < n_entries; ++i) tree->q_entries.push_back({q[i].token, q[i].value});
}

template <class A>
CudaDraft<A>::CudaDraft(const CudaModel<A>& model, const CudaOptions& options,
                        CudaForward<A>* forward, Graphs* graphs, cudaStream_t stream)
    : model_(model),
      chunk_rows_(options.head_chunk_rows),
      top_n_(static_cast<int32_t>(std::min<int64_t>(options.draft_top_n, model.head_rows))),
      max_rows_(forward->max_rows()),
      block_tokens_(options.block_tokens),
      forward_(forward),
      graphs_(graphs),
      stream_(stream),
      levels_(level_device()),
      staging_(kDraftStaging),
      candidates_(int64_t{max_rows_} * top_n_),
      slices_(chunk_rows_ * kernels::n_slices_of(model.head_rows) * top_n_),
      n_listed_(max_rows_),
      all_open_(chunk_rows_),
      tokens_(max_rows_) {
  for (DeviceBuffer<int32_t>& open : open_) open = DeviceBuffer<int32_t>(max_rows_);
  cuda_check(cudaMemsetAsync(all_open_.data(), 0, all_open_.bytes(), stream_));
}

template <class A>
DraftLevels::Device CudaDraft<A>::level_device() {
  return {[this](const Batch& batch, std::span<const HiddenRef> hidden) {
            forward_->run(batch, n_layers_, 0, hidden);
          },
          [this](std::span<const int32_t> rows, std::span<std::vector<TokenProbability>> out) {
            list_on_host(rows, out);
          },
          max_rows_, nullptr};
}

template <class A>
int64_t CudaDraft<A>::scratch_bytes() const {
  return static_cast<int64_t>(staging_.bytes() + candidates_.bytes() + slices_.bytes() +
                              n_listed_.bytes() + all_open_.bytes() + 2 * open_[0].bytes() +
                              tokens_.bytes() + trees_.bytes());
}

// As many jobs at once as their longest pass has room for; alone or together gives the same bits.
template <class A>
void CudaDraft<A>::propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees,
                           int64_t n_layers) {
  n_layers_ = n_layers == 0 ? model_.L : n_layers;
  for (size_t first = 0; first < jobs.size();) {
    size_t n = DraftLevels::n_together(jobs, first, max_rows_);
    auto some = jobs.subspan(first, n);
    auto grown = trees.subspan(first, n);
    if (std::all_of(some.begin(), some.end(), [](const auto& j) { return j.is_chain(); }))
      grow_chains(some, grown);
    else if (model_.takes_hidden() || !grow_trees(some, grown))
      levels_.grow(some, grown);
    first += n;
  }
}

// The operations of draft_jobs.h.
template <class A>
struct CudaDraft<A>::ChainOps {
  CudaDraft& d;
  std::span<DraftTree> trees;
  Layout layout{};

  void run_committed(int64_t padded) { d.run_committed(padded); }
  void stage_levels(int64_t padded) {
    d.stage_chains(padded);
    layout = {padded > 0 ? padded : d.jobs_.n(), d.top_n_ * d.jobs_.n_levels()};
    make_room(layout.bytes(), &d.trees_);
  }
  void run_levels(int64_t padded) {
    auto issue = [&] { issue_levels(*this, d.jobs_, padded, d.chunk_rows_); };
    if (padded == 0 ||
        !std::all_of(d.passes_.begin(), d.passes_.end(), [](auto& p) { return p.fixed(); }))
      return issue();
    d.graphs_->rest_on(GraphKey::Kind::kChains, {d.staging_.base(), d.trees_.as()}, d.stream_);
    d.graphs_->run({GraphKey::Kind::kChains, static_cast<int32_t>(padded),
                    static_cast<int32_t>(d.n_layers_), d.jobs_.n_levels()},
                   d.stream_, issue);
  }
  void fetch() { d.fetch(layout, trees); }

  void clear_trees() { d.clear_trees(layout); }
  void feed(int32_t depth, int64_t) {
    d.forward_->launch(d.passes_[static_cast<size_t>(depth - 2)], d.staging_, d.tokens_.data(),
                       d.n_layers_);
  }
  void list(int32_t depth, int64_t first, int64_t n) { d.list_open(depth, first, n); }
  void grow(int32_t depth, int64_t n) { d.grow(layout, depth, d.jobs_.n_levels(), n, {}); }
};

template <class A>
void CudaDraft<A>::grow_chains(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  for (DraftTree& tree : trees) tree.clear();
  jobs_.set(jobs);
  ChainOps ops{*this, trees};
  draft_chains(ops, jobs_, max_rows_, graphs_ != nullptr);
}

template <class A>
void CudaDraft<A>::run_committed(int64_t n_logit_rows) {
  jobs_.committed(&batch_, &hidden_);
  forward_->run(batch_, n_layers_, n_logit_rows, hidden_);
}

template <class A>
void CudaDraft<A>::stage_chains(int64_t B) {
  const int32_t K = jobs_.n_levels();
  auto rows = [&](int32_t depth) { return B > 0 ? B : jobs_.n_rows(depth); };
  passes_.resize(static_cast<size_t>(K - 1));
  staging_.begin();
  place_rules(rows(1));
  for (int32_t depth = 2; depth <= K; ++depth) {
    Pass* pass = &passes_[static_cast<size_t>(depth - 2)];
    PassWriter::place(rows(depth), rows(depth), &staging_, pass);
    forward_->head_input().place(&staging_, pass);
  }
  write_rules();
  for (int32_t depth = 2; depth <= K; ++depth) {
    jobs_.level(depth, &batch_, &hidden_);
    const auto i = static_cast<size_t>(depth - 2);
    forward_->head_input().fill(hidden_, &staging_, &passes_[i]);
    forward_->writer().fill(batch_, &staging_, &passes_[i], i > 0 ? &passes_[i - 1] : nullptr);
  }
  staging_.send(stream_);
}

template <class A>
void CudaDraft<A>::place_rules(int64_t B) {
  placed_.sampling = staging_.make<kernels::SamplingRules>(B);
  placed_.grow = staging_.make<kernels::GrowRules>(B);
  placed_.roots = staging_.make<int32_t>(B);
}

// The lists of the rules differ in length from step to step: the rules point to them from the
// beginning of the staging.
template <class A>
void CudaDraft<A>::write_rules() {
  rules_.clear();
  std::span<kernels::GrowRules> grow = staging_.host(placed_.grow);
  std::span<int32_t> roots = staging_.host(placed_.roots);
  std::fill(roots.begin(), roots.end(), kernels::kNoNode);
  for (size_t i = 0; i < jobs_.order().size(); ++i) {
    const ProposeJob& job = jobs_[i];
    rules_.add(*job.params, *job.stop, job.counts, job.key,
               job.offset + job.base + static_cast<int64_t>(job.committed.size()), job.n_generated);
    grow[i] = {job.n_draft, job.policy.rule == Acceptance::kCoupled};
    roots[i] = kernels::kRootNode;
  }
  const int32_t counts = Staging::index(staging_.put<kernels::TokenCount>(rules_.counts)),
                biases = Staging::index(staging_.put<TokenValue>(rules_.biases)),
                ends = Staging::index(staging_.put<int32_t>(rules_.end_ids));
  for (kernels::SamplingRules& r : rules_.sampling) {
    r.first_count += counts;
    r.first_bias += biases;
    r.first_end += ends;
  }
  std::copy(rules_.sampling.begin(), rules_.sampling.end(),
            staging_.host(placed_.sampling).begin());
}

template <class A>
void CudaDraft<A>::clear_trees(const Layout& layout) {
  cuda_check(cudaMemsetAsync(trees_.as(), 0, layout.bytes(), stream_));
}

template <class A>
void CudaDraft<A>::list_open(int32_t depth, int64_t first, int64_t n) {
  list(first, forward_->logits(static_cast<int32_t>(first), static_cast<int32_t>(n)),
       open_at(depth) + first);
}

template <class A>
void CudaDraft<A>::grow(const Layout& layout, int32_t depth, int32_t max_nodes, int64_t B,
                        const Level& level) {
  const int64_t n = B * level.places;
  kernels::RuleLists lists{staging_.base<kernels::TokenCount>(), staging_.base<TokenValue>(),
                           staging_.base<int32_t>()};
  kernels::grow_trees(layout.at(trees_.as()),
                      {open_[(depth + 1) % 2].data(), {B, level.next_places}},
                      {tokens_.data(), {B, level.next_places}}, {open_at(depth), {B, level.places}},
                      {candidates_.data(), {n, top_n_}}, {n_listed_.data(), {n}},
                      {staging_.at(placed_.sampling), {B}}, {staging_.at(placed_.grow), {B}}, lists,
                      level.width, depth, max_nodes, stream_);
}

template <class A>
void CudaDraft<A>::fetch(const Layout& layout, std::span<DraftTree> trees) {
  make_room(layout.bytes(), &host_);
  cuda_check(
      cudaMemcpyAsync(host_.data(), trees_.as(), layout.bytes(), cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));
  for (size_t i = 0; i < jobs_.order().size(); ++i)
    layout.read(host_.data(), static_cast<int64_t>(i), &trees[jobs_.order()[i]]);
}

template <class A>
void CudaDraft<A>::list(int64_t first, View<float, 2> logits, const int32_t* open) {
  const int64_t n = logits.shape[0];
  kernels::list_candidates(
      {candidates_.data() + first * top_n_, {n, top_n_}}, {n_listed_.data() + first, {n}},
      {slices_.data(), {n, kernels::n_slices_of(model_.head_rows), top_n_}}, logits, {open, {n}},
      {model_.device_tokens.data(), {model_.device_tokens.size()}}, stream_);
}

// All rows of a level come back together.
template <class A>
void CudaDraft<A>::list_on_host(std::span<const int32_t> rows,
                                std::span<std::vector<TokenProbability>> out) {
  const auto n = static_cast<int64_t>(rows.size());
  staging_.begin();
  auto sent = staging_.put<int32_t>(rows);
  staging_.send(stream_);
  for (int64_t first = 0; first < n; first += chunk_rows_) {
    auto some = staging_.view(sent).rows(first, std::min<int64_t>(chunk_rows_, n - first));
    list(first, forward_->logits(some), all_open_.data());
  }
  fetch_lists(candidates_, n_listed_, top_n_, stream_, &host_, out);
}

template class CudaDraft<f16>;
template class CudaDraft<bf16>;

}  // namespace pf
