#include "backend/cuda/rules.h"

#include <algorithm>
#include <cmath>

namespace pf {

static_assert(kernels::kMaxNodes == kMaxTreeNodes && kernels::kRootNode == DraftTree::kRoot);
static_assert(kernels::kBannedBias == kBannedBias);
static_assert(sizeof(kernels::TokenValue) == sizeof(TokenProbability));
static_assert(static_cast<int>(kernels::AcceptRule::kTypical) ==
              static_cast<int>(Acceptance::kTypical));
static_assert(static_cast<int>(kernels::TokenOrigin::kBonus) == static_cast<int>(Origin::kBonus));

void DeviceRules::clear() {
  sampling.clear();
  accept.clear();
  counts.clear();
  biases.clear();
  end_ids.clear();
}

void DeviceRules::add(const SamplingParams& p, const StopParams& stop, const TokenCounts* seen,
                      NoiseKey key, int64_t position, int32_t n_generated) {
  kernels::SamplingRules r{};
  r.key = key;
  r.position = position;
  r.n_generated = n_generated;
  r.min_new_tokens = stop.min_new_tokens;
  r.temperature = p.temperature;
  r.top_k = p.top_k;
  r.top_p = p.top_p;
  r.min_x = p.min_p > 0 ? std::log(p.min_p) : kernels::kSmallestExp;
  r.presence = p.presence_penalty;
  r.frequency = p.frequency_penalty;
  r.repetition = p.repetition_penalty;
  r.penalised = seen != nullptr;
  r.first_count = static_cast<int32_t>(counts.size());
  if (seen != nullptr)
    for (const auto& [token, count] : seen->counts())
      counts.push_back({token, count.output, count.prompt});
  std::sort(
      counts.begin() + r.first_count, counts.end(),
      [](const kernels::TokenCount& a, const kernels::TokenCount& b) { return a.token < b.token; });
  r.n_counts = static_cast<int32_t>(counts.size()) - r.first_count;
  r.first_bias = static_cast<int32_t>(biases.size());
  for (auto [token, bias] : p.logit_bias) biases.push_back({token, bias});
  r.n_biases = static_cast<int32_t>(biases.size()) - r.first_bias;
  r.first_end = static_cast<int32_t>(end_ids.size());
  end_ids.insert(end_ids.end(), stop.end_ids.begin(), stop.end_ids.end());
  r.n_ends = static_cast<int32_t>(stop.end_ids.size());
  sampling.push_back(r);
}

void DeviceRules::add(const AcceptInput& in, int32_t first_row) {
  add(*in.params, *in.stop, in.counts, in.key, in.position, in.n_generated);
  accept.push_back({static_cast<kernels::AcceptRule>(in.policy.rule), first_row, in.policy.alpha,
                    in.policy.loss_budget, in.policy.typical_epsilon, in.policy.typical_delta,
                    in.loss_spent, in.max_tokens, in.want_logprobs ? in.n_top_logprobs : -1});
}

void DeviceTreesOnHost::assign(std::span<const DraftTree* const> trees) {
  const size_t B = trees.size(), places = B * static_cast<size_t>(kMaxTreeNodes);
  size_t capacity = 1;
  for (const DraftTree* t : trees) capacity = std::max(capacity, t->q_entries.size());
  q_capacity = static_cast<int32_t>(capacity);
  n_nodes.resize(B);
  n_entries.resize(B);
  for (std::vector<int32_t>* v : {&tokens, &parents, &depths, &q_begin, &q_end})
    v->assign(places, 0);
  scores.assign(places, 0);
  q.assign(B * capacity, {0, 0});
  for (size_t b = 0; b < B; ++b) {
    const DraftTree& t = *trees[b];
    n_nodes[b] = t.size();
    n_entries[b] = static_cast<int32_t>(t.q_entries.size());
    auto at = static_cast<std::ptrdiff_t>(b * static_cast<size_t>(kMaxTreeNodes));
    std::copy(t.tokens.begin(), t.tokens.end(), tokens.begin() + at);
    std::copy(t.parents.begin(), t.parents.end(), parents.begin() + at);
    std::copy(t.depths.begin(), t.depths.end(), depths.begin() + at);
    std::copy(t.q_begin.begin(), t.q_begin.end(), q_begin.begin() + at);
    std::copy(t.q_end.begin(), t.q_end.end(), q_end.begin() + at);
    std::copy(t.scores.begin(), t.scores.end(), scores.begin() + at);
    for (size_t i = 0; i < t.q_entries.size(); ++i)
      q[b * capacity + i] = {t.q_entries[i].token, t.q_entries[i].probability};
  }
}

void watched_of(const AcceptInput& in, const kernels::RowLaw* laws, std::vector<int32_t>* out) {
  out->clear();
  if (in.watched == 0) return;
  for (int32_t n = 0; n < in.tree->size(); ++n) {
    const kernels::RowLaw& law = laws[n + 1];
    bool told = in.watched >> n & 1 && law.state == kernels::RowState::kGood;
    out->push_back(told ? law.argmax : -1);
  }
}

void to_result(const kernels::Accepted& from, const AcceptInput& in, int32_t first_row,
               std::span<const kernels::TokenValue> top, int32_t n_top, int64_t vocabulary,
               AcceptResult* out) {
  out->tokens.assign(from.tokens, from.tokens + from.n_tokens);
  out->origins.clear();
  for (int32_t i = 0; i < from.n_tokens; ++i)
    out->origins.push_back(static_cast<Origin>(from.origins[i]));
  out->path.assign(from.path, from.path + from.n_accepted);
  out->n_accepted = from.n_accepted;
  out->losses.assign(from.losses, from.losses + from.n_tokens);
  if (out->loss() == 0) out->losses.clear();
  out->ended = from.ended != 0;
  out->finite = from.finite != 0;
  out->logprobs.clear();
  if (!in.want_logprobs) return;
  const auto listed = static_cast<size_t>(std::min<int64_t>(in.n_top_logprobs, vocabulary));
  for (int32_t i = 0; i < from.n_tokens; ++i) {
    TokenLogprob l;
    l.logprob = from.logprobs[i];
    const int32_t row = first_row + (i == 0 ? 0 : 1 + from.path[i - 1]);
    auto likeliest = top.subspan(static_cast<size_t>(row * n_top), listed);
    for (const kernels::TokenValue& t : likeliest) l.top.push_back({t.token, t.value});
    out->logprobs.push_back(std::move(l));
  }
}

}  // namespace pf
