#pragma once

// A batch of sequences judged on the device and on the host. Their rules go there as the backend
// sends them (backend/cuda/rules.h).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <random>
#include <vector>

#include "backend/cuda/rules.h"
#include "kernels/accept.h"
#include "kernels/device_array.h"
#include "kernels/sample.h"
#include "sampling/accept.h"

namespace pf::kernels {

// One sequence of a batch.
struct SamplingCase {
  DraftTree tree;
  std::vector<float> logits;  // [1 + nodes, V]
  SamplingParams params;
  StopParams stop;
  AcceptPolicy policy;
  NoiseKey key;
  int64_t position = 0;
  int32_t n_generated = 0;
  std::optional<TokenCounts> counts;
  double loss_spent = 0;
  int32_t n_top = -1;  // < 0: no log-probabilities
  int32_t max_tokens = 100;

  AcceptResult on_host(int64_t V) {
    AcceptInput in{};
    in.tree = &tree;
    in.logits = {logits.data(), {1 + tree.size(), V}};
    in.params = &params;
    in.stop = &stop;
    in.policy = policy;
    in.key = key;
    in.position = position;
    in.n_generated = n_generated;
    in.counts = counts ? &*counts : nullptr;
    in.loss_spent = loss_spent;
    in.want_logprobs = n_top >= 0;
    in.n_top_logprobs = n_top;
    in.max_tokens = max_tokens;
    AcceptResult out;
    pf::accept(in, &out);
    return out;
  }
};

struct DeviceLists {
  explicit DeviceLists(const DeviceRules& h)
      : counts(h.counts), biases(h.biases), end_ids(h.end_ids) {}
  RuleLists lists() const { return {counts.data(), biases.data(), end_ids.data()}; }

  DeviceArray<TokenCount> counts;
  DeviceArray<TokenValue> biases;
  DeviceArray<int32_t> end_ids;
};

// B trees on the device. Entries that no tree uses stay uninitialised: reading one is a finding.
struct DeviceTrees {
  DeviceTrees(size_t B, int q_capacity)
      : n_nodes(std::vector<int32_t>(B, 0)),
        n_entries(std::vector<int32_t>(B, 0)),
        tokens(B * kMaxNodes),
        parents(B * kMaxNodes),
        depths(B * kMaxNodes),
        q_begin(B * kMaxNodes),
        q_end(B * kMaxNodes),
        scores(B * kMaxNodes),
        q(B * static_cast<size_t>(q_capacity)),
        q_capacity(q_capacity) {}

  DraftTrees trees() const {
    return {n_nodes.data(), n_entries.data(), tokens.data(), parents.data(), depths.data(),
            q_begin.data(), q_end.data(),     scores.data(), q.data(),       q_capacity};
  }
  void set(size_t b, const DraftTree& t) {
    auto put = [](auto* to, const auto& from) {
      if (!from.empty())
        cuda_check(
            cudaMemcpy(to, from.data(), from.size() * sizeof(from[0]), cudaMemcpyHostToDevice));
    };
    put(n_nodes.data() + b, std::vector<int32_t>{t.size()});
    put(n_entries.data() + b, std::vector<int32_t>{static_cast<int32_t>(t.q_entries.size())});
    put(tokens.data() + b * kMaxNodes, t.tokens);
    put(parents.data() + b * kMaxNodes, t.parents);
    put(depths.data() + b * kMaxNodes, t.depths);
    put(q_begin.data() + b * kMaxNodes, t.q_begin);
    put(q_end.data() + b * kMaxNodes, t.q_end);
    put(scores.data() + b * kMaxNodes, t.scores);
    put(q.data() + b * static_cast<size_t>(q_capacity), t.q_entries);
  }
  DraftTree get(size_t b) const {
    DraftTree t;
    auto some = [&](const auto& from, size_t first, int32_t n) {
      std::vector<std::remove_pointer_t<decltype(from.data())>> v(static_cast<size_t>(n));
      if (n > 0)
        cuda_check(cudaMemcpy(v.data(), from.data() + first, v.size() * sizeof(v[0]),
                              cudaMemcpyDeviceToHost));
      return v;
    };
    int32_t n = some(n_nodes, b, 1)[0], n_q = some(n_entries, b, 1)[0];
    t.tokens = some(tokens, b * kMaxNodes, n);
    t.parents = some(parents, b * kMaxNodes, n);
    t.depths = some(depths, b * kMaxNodes, n);
    t.q_begin = some(q_begin, b * kMaxNodes, n);
    t.q_end = some(q_end, b * kMaxNodes, n);
    t.scores = some(scores, b * kMaxNodes, n);
    for (TokenValue e : some(q, b * static_cast<size_t>(q_capacity), n_q))
      t.q_entries.push_back({e.token, e.value});
    return t;
  }

  DeviceArray<int32_t> n_nodes, n_entries, tokens, parents, depths, q_begin, q_end;
  DeviceArray<float> scores;
  DeviceArray<TokenValue> q;
  int q_capacity;
};

struct Judged {
  std::vector<Accepted> accepted;  // [B]
  std::vector<RowLaw> laws;        // [R]
  std::vector<float> ruled;        // [R, V]
  std::vector<TokenValue> top;     // [R, n_top]
  std::vector<int32_t> first_row;  // [B]
};

// make_laws and accept over all cases.
inline Judged judge_on_device(const std::vector<SamplingCase>& cases, int64_t V, int n_top = 0) {
  DeviceRules lists;
  std::vector<AcceptRules> accepts;
  std::vector<int32_t> row_sequence;
  std::vector<float> logits;
  size_t q_capacity = 0;
  Judged out;
  for (const SamplingCase& c : cases) {
    lists.add(c.params, c.stop, c.counts ? &*c.counts : nullptr, c.key, c.position, c.n_generated);
    out.first_row.push_back(static_cast<int32_t>(row_sequence.size()));
    accepts.push_back({static_cast<AcceptRule>(c.policy.rule), out.first_row.back(), c.policy.alpha,
                       c.policy.loss_budget, c.policy.typical_epsilon, c.policy.typical_delta,
                       c.loss_spent, c.max_tokens, c.n_top});
    row_sequence.insert(row_sequence.end(), static_cast<size_t>(1 + c.tree.size()),
                        static_cast<int32_t>(accepts.size()) - 1);
    logits.insert(logits.end(), c.logits.begin(), c.logits.end());
    q_capacity = std::max(q_capacity, c.tree.q_entries.size());
  }
  const size_t B = cases.size(), R = row_sequence.size(), v = static_cast<size_t>(V);
  DeviceTrees trees(B, static_cast<int>(q_capacity));
  for (size_t b = 0; b < B; ++b) trees.set(b, cases[b].tree);
  DeviceLists device_lists(lists);
  DeviceArray<SamplingRules> d_rules(lists.sampling);
  DeviceArray<AcceptRules> d_accepts(accepts);
  DeviceArray<int32_t> d_sequence(row_sequence);
  DeviceArray<float> d_logits(logits);
  DeviceArray<RowLaw> laws(R);
  DeviceArray<float> p(B * v);
  DeviceArray<TokenValue> top(R * static_cast<size_t>(n_top)), q(B * q_capacity);
  DeviceArray<Accepted> accepted(B);
  // Places behind an answer's end are not written.
  cuda_check(cudaMemset(accepted.data(), 0x5A, B * sizeof(Accepted)));
  cuda_check(cudaMemset(top.data(), 0x5A, top.size() * sizeof(TokenValue)));
  cuda_check(cudaMemset(laws.data(), 0x5A, R * sizeof(RowLaw)));
  const auto r = static_cast<int64_t>(R), b = static_cast<int64_t>(B);
  View<const SamplingRules, 1> rules_view{d_rules.data(), {b}};
  View<const AcceptRules, 1> accept_view{d_accepts.data(), {b}};
  make_laws({laws.data(), {r}}, {top.data(), {r, n_top}}, {d_logits.data(), {r, V}},
            {d_sequence.data(), {r}}, rules_view, accept_view, device_lists.lists(), trees.trees(),
            nullptr);
  accept({accepted.data(), {b}}, {p.data(), {b, V}},
         {q.data(), {b, static_cast<int64_t>(q_capacity)}}, {d_logits.data(), {r, V}},
         {laws.data(), {r}}, rules_view, accept_view, device_lists.lists(), trees.trees(), nullptr);
  cuda_check(cudaDeviceSynchronize());
  out.accepted = accepted.host();
  out.laws = laws.host();
  out.ruled = d_logits.host();
  out.top = top.host();
  return out;
}

}  // namespace pf::kernels
