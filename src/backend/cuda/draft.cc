#include "backend/cuda/draft.h"

#include <algorithm>

namespace pf {

using kernels::TokenValue;

namespace {

constexpr int64_t kPlaces = kMaxTreeNodes;

// Room for `bytes`, kept for the next time.
template <class Memory>
void make_room(size_t bytes, Memory* memory) {
  if (memory->bytes() < bytes) *memory = Memory(bytes);
}

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
                        CudaForward<A>* forward, cudaStream_t stream)
    : model_(model),
      chunk_rows_(options.head_chunk_rows),
      top_n_(static_cast<int32_t>(std::min<int64_t>(options.draft_top_n, model.head_rows))),
      max_rows_(forward->max_rows()),
      forward_(forward),
      stream_(stream),
      staging_(size_t{1} << 14),
      candidates_(int64_t{max_rows_} * top_n_),
      slices_(chunk_rows_ * kernels::n_slices_of(model.head_rows) * top_n_),
      n_listed_(max_rows_),
      all_open_(max_rows_),
      tokens_(max_rows_) {
  for (DeviceBuffer<int32_t>& open : open_) open = DeviceBuffer<int32_t>(max_rows_);
  cuda_check(cudaMemsetAsync(all_open_.data(), 0, all_open_.bytes(), stream_));
  device_.forward = [this](const Batch& batch) { forward_->run(batch, nullptr, n_layers_); };
  device_.list = [this](int32_t first, int32_t n, std::span<std::vector<TokenProbability>> out) {
    list_on_host(first, n, out);
  };
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
  n_layers_ = n_layers;
  for (size_t first = 0; first < jobs.size();) {
    size_t end = first;
    int64_t n = 0;
    bool branches = false;
    do {
      branches |= !jobs[end].widths.empty();
      n += DraftLevels::rows_of(jobs[end++]);
    } while (end < jobs.size() && n + DraftLevels::rows_of(jobs[end]) <= max_rows_);
    auto some = jobs.subspan(first, end - first);
    auto grown = trees.subspan(first, end - first);
    if (branches)
      levels_.grow(device_, some, grown);
    else
      grow_chains(some, grown);
    first = end;
  }
}

template <class A>
void CudaDraft<A>::grow_chains(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) {
  order_.clear();
  for (size_t j = 0; j < jobs.size(); ++j) {
    trees[j].clear();
    if (jobs[j].n_draft > 0) order_.push_back(j);
  }
  // The longest first: at each depth those that go on are the first rows.
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return jobs[a].n_draft > jobs[b].n_draft; });
  run_committed(jobs);
  if (order_.empty()) return;
  const int32_t K = jobs[order_[0]].n_draft;
  Layout layout{static_cast<int64_t>(order_.size()), top_n_ * K};
  make_room(layout.bytes(), &trees_);
  // No nodes and entries yet; places that stay unused are fetched too.
  cuda_check(cudaMemsetAsync(trees_.as(), 0, layout.bytes(), stream_));
  for (int32_t depth = 1; depth <= K; ++depth) {
    int64_t n = 0;
    while (n < layout.n && jobs[order_[static_cast<size_t>(n)]].n_draft >= depth) ++n;
    if (depth > 1) feed_level(jobs, depth, n);
    grow_level(jobs, layout, depth, n);
  }
  fetch(layout, trees);
}

// The committed tokens of all jobs; logit rows in the order of order_.
template <class A>
void CudaDraft<A>::run_committed(std::span<const ProposeJob> jobs) {
  batch_.clear();
  for (size_t j : order_)
    batch_.add(jobs[j].committed, jobs[j].base, nullptr, jobs[j].blocks, Batch::Logits::kLast);
  for (const ProposeJob& job : jobs)
    if (job.n_draft == 0)
      batch_.add(job.committed, job.base, nullptr, job.blocks, Batch::Logits::kNone);
  forward_->run(batch_, nullptr, n_layers_);
  rules_.clear();
  grow_.clear();
  for (size_t j : order_) {
    const ProposeJob& job = jobs[j];
    rules_.add(*job.params, *job.stop, job.counts, job.key,
               job.base + static_cast<int64_t>(job.committed.size()), job.n_generated);
    grow_.push_back({job.n_draft, job.policy.rule == Acceptance::kCoupled});
  }
  staging_.begin();
  sampling_ = staging_.put<kernels::SamplingRules>(rules_.sampling);
  grow_rules_ = staging_.put<kernels::GrowRules>(grow_);
  counts_ = staging_.put<kernels::TokenCount>(rules_.counts);
  biases_ = staging_.put<TokenValue>(rules_.biases);
  end_ids_ = staging_.put<int32_t>(rules_.end_ids);
  roots_.assign(order_.size(), kernels::kRootNode);
  auto roots = staging_.put<int32_t>(roots_);
  staging_.send(stream_);
  if (!order_.empty())
    cuda_check(cudaMemcpyAsync(open_[1].data(), staging_.at(roots), order_.size() * sizeof(int32_t),
                               cudaMemcpyDeviceToDevice, stream_));
}

// Feeds what level depth - 1 has drawn: one row per chain that goes on.
template <class A>
void CudaDraft<A>::feed_level(std::span<const ProposeJob> jobs, int32_t depth, int64_t n) {
  static constexpr int32_t kOnDevice = 0;  // the token itself is in tokens_
  batch_.clear();
  for (int64_t i = 0; i < n; ++i) {
    const ProposeJob& job = jobs[order_[static_cast<size_t>(i)]];
    batch_.add({&kOnDevice, 1}, job.base + static_cast<int64_t>(job.committed.size()) + depth - 2,
               nullptr, job.blocks, Batch::Logits::kLast);
  }
  forward_->run(batch_, tokens_.data(), n_layers_);
}

template <class A>
void CudaDraft<A>::grow_level(std::span<const ProposeJob> jobs, const Layout& layout, int32_t depth,
                              int64_t n) {
  const DeviceBuffer<int32_t>&open = open_[depth % 2], &next = open_[(depth + 1) % 2];
  for (int64_t first = 0; first < n; first += chunk_rows_)
    list(static_cast<int32_t>(first), std::min<int64_t>(chunk_rows_, n - first), open.data());
  kernels::RuleLists lists{staging_.at(counts_), staging_.at(biases_), staging_.at(end_ids_)};
  kernels::grow_trees(layout.at(trees_.as()), {next.data(), {n, 1}}, {tokens_.data(), {n, 1}},
                      {open.data(), {n, 1}}, {candidates_.data(), {n, top_n_}},
                      {n_listed_.data(), {n}}, {staging_.at(sampling_), {n}},
                      {staging_.at(grow_rules_), {n}}, lists, 1, depth, jobs[order_[0]].n_draft,
                      stream_);
}

template <class A>
void CudaDraft<A>::fetch(const Layout& layout, std::span<DraftTree> trees) {
  make_room(layout.bytes(), &host_);
  cuda_check(
      cudaMemcpyAsync(host_.data(), trees_.as(), layout.bytes(), cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));
  for (int64_t b = 0; b < layout.n; ++b)
    layout.read(host_.data(), b, &trees[order_[static_cast<size_t>(b)]]);
}

template <class A>
void CudaDraft<A>::list(int32_t first, int64_t n, const int32_t* open) {
  kernels::list_candidates({candidates_.data() + int64_t{first} * top_n_, {n, top_n_}},
                           {n_listed_.data() + first, {n}},
                           {slices_.data(), {n, kernels::n_slices_of(model_.head_rows), top_n_}},
                           forward_->logits(first, static_cast<int32_t>(n)), {open + first, {n}},
                           {model_.device_tokens.data(), {model_.device_tokens.size()}}, stream_);
}

template <class A>
void CudaDraft<A>::list_on_host(int32_t first, int32_t n,
                                std::span<std::vector<TokenProbability>> out) {
  list(first, n, all_open_.data());
  const size_t list_bytes =
                   static_cast<size_t>(n) * static_cast<size_t>(top_n_) * sizeof(TokenValue),
               n_bytes = static_cast<size_t>(n) * sizeof(int32_t);
  make_room(list_bytes + n_bytes, &host_);
  cuda_check(cudaMemcpyAsync(host_.data(), candidates_.data() + int64_t{first} * top_n_, list_bytes,
                             cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaMemcpyAsync(host_.data() + list_bytes, n_listed_.data() + first, n_bytes,
                             cudaMemcpyDeviceToHost, stream_));
  cuda_check(cudaStreamSynchronize(stream_));
  const auto* tokens = reinterpret_cast<const TokenValue*>(host_.data());
  const auto* n_listed = reinterpret_cast<const int32_t*>(host_.data() + list_bytes);
  for (int32_t r = 0; r < n; ++r) {
    std::vector<TokenProbability>& top = out[static_cast<size_t>(r)];
    top.clear();
    for (int32_t i = 0; i < n_listed[r]; ++i)
      top.push_back({tokens[r * top_n_ + i].token, tokens[r * top_n_ + i].value});
  }
}

template class CudaDraft<f16>;
template class CudaDraft<bf16>;

}  // namespace pf
