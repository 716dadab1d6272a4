// One block owns one sequence and walks its tree down from the root. All threads take the same
// decisions; the block's width serves what is as long as the vocabulary (p where it must be
// written: a rejection's residual, the sequence's own draw) or as q. Until then p of a token is
// worked out from its row's law, so a kept token costs a few loads.
#include "base/cuda.h"
#include "kernels/accept.h"
#include "kernels/common/block.cuh"
#include "kernels/common/residual.cuh"
#include "kernels/common/row_law.cuh"

namespace pf::kernels {
namespace {

constexpr int kThreads = 512;         // of a sequence
constexpr int kThreadsOfSmall = 128;  // of one with up to kSmallV tokens
constexpr int kSmallV = 4096;

struct AcceptParams {
  float* p;                    // [B, V]
  TokenValue* q;               // [B, q_capacity]
  const float* ruled;          // [R, V]
  const RowLaw* laws;          // [R]
  const SamplingRules* rules;  // [B]
  const AcceptRules* accept;   // [B]
  RuleLists lists;
  DraftTrees trees;
  int V;
};

// What one node decided.
struct Choice {
  int32_t token;
  int32_t kept;  // the child, or kNoNode
  double loss;
};

// One tree, in shared memory.
struct Tree {
  int n;
  int32_t tokens[kMaxNodes], parents[kMaxNodes], q_begin[kMaxNodes], q_end[kMaxNodes];
  float scores[kMaxNodes];
};

// The judgement at one node. The same in every thread.
struct Judge {
  const AcceptParams* params;
  const SamplingRules* rules;
  const AcceptRules* accept;
  const Tree* tree;
  const RowLaw* law;
  const float* logits;  // [V] of the row, ruled
  double* of_warp;      // [32] shared
  int b;
  int32_t node;
  int64_t position;
  double spent;  // loss so far, this round included
  bool written;  // p is in memory; else the law says it
  Residual p;

  __device__ bool greedy() const { return rules->temperature == 0; }
  __device__ bool is_child(int i) const { return tree->parents[i] == node; }

  __device__ float p_of(int32_t token) const {
    if (written) return p.at(token);
    if (greedy()) return token == law->argmax ? 1.0f : 0.0f;
    return law_p(*law, logits[token], token);
  }
  __device__ float logprob_of(int32_t token) const {
    return static_cast<float>(logits[token] - law->log_total);
  }
  // Softmax score: p, or at temperature 0, where p is one-hot, that of the logits.
  __device__ float score_of(int32_t token) const {
    return greedy() ? exp_nonpositive(fminf(0.0f, logprob_of(token))) : p_of(token);
  }
  __device__ void write_p() {
    if (written) return;
    p.p = params->p + int64_t(b) * params->V;
    p.begin = greedy() ? law->argmax : 0;
    p.end = greedy() ? law->argmax + 1 : params->V;
    __syncthreads();  // whoever read p of the node before is done
    fill(&p, of_warp, [&](int t) { return p_of(t); });
    written = true;
  }
  __device__ int32_t own_draw(Purpose purpose, uint32_t ordinal) {
    if (greedy()) return law->argmax;  // all that p or a residual of it can hold
    write_p();
    return draw(p, of_warp, noise_uniform(rules->key, position, purpose, ordinal));
  }
};

// q of one set of siblings, shrinking as they are rejected. One-hot is one entry without memory.
struct Proposal {
  TokenValue* entries;  // [n] the sequence's scratch
  int n, source;        // source: q_begin of what was loaded; -1: one-hot or nothing
  TokenValue one_hot;   // token -1: none

  __device__ void load(const Judge& judge, int child) {
    const DraftTrees& trees = judge.params->trees;
    const int begin = judge.tree->q_begin[child], end = judge.tree->q_end[child];
    if (begin == end) {
      source = -1;
      n = 0;
      one_hot = {judge.tree->tokens[child], 1.0f};
      return;
    }
    one_hot = {-1, 0};
    if (source == begin) return;
    source = begin;
    n = end - begin;
    const int64_t first = int64_t(judge.b) * trees.q_capacity + begin;
    entries = judge.params->q + first;
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x) entries[i] = trees.q[first + i];
    __syncthreads();
  }
  // A rejected token is not found.
  __device__ float at(int32_t token) const {
    if (one_hot.token == token) return one_hot.value;
    float own = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if (entries[i].token == token) own = entries[i].value;
    return block_reduce(own, Max{});
  }
  // f(token, q) for every entry, each by one thread.
  template <class F>
  __device__ void for_each(F f) const {
    if (one_hot.token >= 0 && threadIdx.x == 0) f(one_hot.token, one_hot.value);
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      if (entries[i].token >= 0) f(entries[i].token, entries[i].value);
  }
  __device__ void remove(int32_t token) {
    one_hot.token = -1;
    double own = 0;
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
      if (entries[i].token == token) entries[i].token = -1;
      if (entries[i].token >= 0) own += entries[i].value;
    }
    const double total = block_sum(own);
#pragma unroll 1
    for (int i = threadIdx.x; i < n; i += blockDim.x)
      entries[i].value = static_cast<float>(entries[i].value / total);
    __syncthreads();
  }
};

// p <- norm(max(0, p - q)), unless nothing is left but rounding.
__device__ void take_residual(const Proposal& q, Judge* judge) {
  judge->write_p();
  Residual& p = judge->p;
  double taken = 0;
  q.for_each([&](int32_t t, float v) { taken += fminf(p.at(t), v); });
  if (p.total - block_sum(taken) <= 1e-7 * p.total) return;
  q.for_each([&](int32_t t, float v) {
    if (t >= p.begin && t < p.end) p.p[t] = fmaxf(0.0f, sub_rn(p.p[t], v));
  });
  __syncthreads();
  fill(&p, judge->of_warp, [&](int t) { return p.p[t]; });
  const float scale = static_cast<float>(1 / p.total);
  fill(&p, judge->of_warp, [&](int t) { return mul_rn(p.p[t], scale); });
}

__device__ Choice choose_coupled(const Judge& judge) {
  const int32_t token = judge.law->winner;
#pragma unroll 1
  for (int i = judge.node + 1; i < judge.tree->n; ++i)
    if (judge.is_child(i) && judge.tree->tokens[i] == token) return {token, i, 0};
  return {token, kNoNode, 0};
}

// Exact rejection; with a threshold, tokens above it are kept as well and their excess is paid for.
__device__ Choice choose_rejection(Judge* judge) {
  const AcceptRules& rule = *judge->accept;
  const Tree& tree = *judge->tree;
  const bool threshold = rule.rule == AcceptRule::kThreshold && rule.alpha < 1;
  Proposal q{nullptr, 0, -1, {-1, 0}};
  uint32_t tried = 0;
#pragma unroll 1
  for (int i = judge->node + 1; i < tree.n; ++i) {
    if (!judge->is_child(i)) continue;
    const int32_t x = tree.tokens[i];
    q.load(*judge, i);
    const float px = judge->p_of(x), qx = q.at(x);
    if (qx <= 0) break;  // q is used up
    bool keep =
        noise_uniform(judge->rules->key, judge->position, Purpose::kAccept, tried) * qx < px;
    double loss = 0;
    if (threshold) {
      const double excess = fmax(0.0, 1.0 - static_cast<double>(px) / qx);
      const bool affordable = rule.loss_budget < 0 || judge->spent + excess <= rule.loss_budget;
      if (affordable && judge->score_of(x) >= mul_rn(rule.alpha, tree.scores[i])) {
        keep = true;
        loss = excess;
      }
    }
    if (keep) return {x, i, loss};
    take_residual(q, judge);
    q.remove(x);
    ++tried;
  }
  const int32_t own = judge->own_draw(tried ? Purpose::kResidual : Purpose::kToken, tried);
  return {own, kNoNode, 0};
}

// Keeping by an inequality alone, else the target's own draw. The expectation of `loss` is the
// total variation that this causes at the position; siblings add it with what is left of their q.
__device__ Choice choose_by_inequality(Judge* judge) {
  const AcceptRules& rule = *judge->accept;
  const Tree& tree = *judge->tree;
  const bool typical = rule.rule == AcceptRule::kTypical;
  const double entropy = judge->greedy() ? 0 : judge->law->entropy;
  const double bar =
      typical ? fmin(double{rule.typical_epsilon}, rule.typical_delta * exp(-entropy)) : 0;
  auto passes = [&](int32_t x, float draft_score) {
    const float score = judge->score_of(x);
    return typical ? score >= bar : score >= mul_rn(rule.alpha, draft_score);
  };
  double loss = 0, left = 1;  // of q, without the siblings before
  int32_t source = -1;
#pragma unroll 1
  for (int i = judge->node + 1; i < tree.n; ++i) {
    if (!judge->is_child(i)) continue;
    const int32_t x = tree.tokens[i];
    if (tree.q_begin[i] != source) left = 1;
    source = tree.q_begin[i];
    const bool kept = passes(x, tree.scores[i]);
    if (tree.q_begin[i] == tree.q_end[i]) {
      loss += kept ? 1.0 - judge->p_of(x) : 0;
    } else {
      const int n = tree.q_end[i] - tree.q_begin[i];
      const TokenValue* const q = judge->params->trees.q +
                                  int64_t(judge->b) * judge->params->trees.q_capacity +
                                  tree.q_begin[i];
      double mass = 0, change = 0, own = 0;
#pragma unroll 1
      for (int j = threadIdx.x; j < n; j += blockDim.x) {
        mass += passes(q[j].token, q[j].value) ? q[j].value : 0;
        if (q[j].token == x) own = q[j].value;
      }
      mass = block_sum(mass);
      own = block_sum(own);
#pragma unroll 1
      for (int j = threadIdx.x; j < n; j += blockDim.x) {
        const double k = passes(q[j].token, q[j].value) ? q[j].value : 0;
        change += fmax(0.0, k - mass * judge->p_of(q[j].token));
      }
      loss += block_sum(change) / fmax(left, own);
      left -= own;
    }
    if (kept) return {x, i, loss};
  }
  return {judge->own_draw(Purpose::kToken, 0), kNoNode, loss};
}

__device__ Choice choose(Judge* judge) {
  switch (judge->accept->rule) {
    case AcceptRule::kCoupled:
      return choose_coupled(*judge);
    case AcceptRule::kRejection:
    case AcceptRule::kThreshold:
      return choose_rejection(judge);
    default:
      return choose_by_inequality(judge);
  }
}

// By every thread; a barrier follows.
__device__ void read_tree(const DraftTrees& trees, int b, Tree* tree) {
  const int n = trees.n_nodes[b];
  if (threadIdx.x == 0) tree->n = n;
#pragma unroll 1
  for (int i = threadIdx.x; i < n; i += blockDim.x) {
    const int at = b * kMaxNodes + i;
    tree->tokens[i] = trees.tokens[at];
    tree->parents[i] = trees.parents[at];
    tree->q_begin[i] = trees.q_begin[at];
    tree->q_end[i] = trees.q_end[at];
    tree->scores[i] = trees.scores[at];
  }
}

__device__ bool has_children(const Tree& tree, int32_t node) {
#pragma unroll 1
  for (int i = node + 1; i < tree.n; ++i)
    if (tree.parents[i] == node) return true;
  return false;
}

__device__ TokenOrigin origin_of(const Choice& c, bool had_children, bool at_root) {
  if (c.kept != kNoNode) return TokenOrigin::kDraft;
  if (had_children) return TokenOrigin::kCorrected;
  return at_root ? TokenOrigin::kTarget : TokenOrigin::kBonus;
}

__device__ bool is_end(const SamplingRules& rules, const RuleLists& lists, int32_t token) {
#pragma unroll 1
  for (int i = 0; i < rules.n_ends; ++i)
    if (lists.end_ids[rules.first_end + i] == token) return true;
  return false;
}

// grid (B), block (kThreads or kThreadsOfSmall)
__global__ void __launch_bounds__(kThreads, 1)
    accept_kernel(Accepted* accepted,  // [B]
                  const __grid_constant__ AcceptParams params) {
  __shared__ Tree tree;
  __shared__ double of_warp[32];
  const int b = blockIdx.x;
  const SamplingRules& rules = params.rules[b];
  const AcceptRules& rule = params.accept[b];
  Accepted& out = accepted[b];

  // 1. the tree, once
  read_tree(params.trees, b, &tree);
  __syncthreads();

  // 2. down from the root
  int32_t node = kRootNode;
  int n = 0, n_accepted = 0;
  double loss = 0;
  bool ended = false, finite = true;
  while (true) {
    const int64_t row = rule.first_row + 1 + node;
    const RowLaw& law = params.laws[row];
    if (law.state != RowState::kGood) {
      finite = false;
      break;
    }
    Judge judge{&params,
                &rules,
                &rule,
                &tree,
                &law,
                params.ruled + row * params.V,
                of_warp,
                b,
                node,
                rules.position + n,
                rule.loss_spent + loss,
                false,
                Residual{}};
    const Choice c = choose(&judge);
    const float own_loss = static_cast<float>(c.loss);
    loss += own_loss;
    ended = is_end(rules, params.lists, c.token);
    if (threadIdx.x == 0) {
      out.tokens[n] = c.token;
      out.losses[n] = own_loss;
      out.origins[n] = origin_of(c, has_children(tree, node), node == kRootNode);
      out.logprobs[n] = rule.n_top >= 0 ? judge.logprob_of(c.token) : 0.0f;
      if (c.kept != kNoNode) out.path[n_accepted] = c.kept;
    }
    n_accepted += c.kept != kNoNode;
    ++n;
    if (ended || c.kept == kNoNode || n == rule.max_tokens) break;
    node = c.kept;
  }

  // 3. the rest of the answer
  if (threadIdx.x == 0) {
    out.n_tokens = n;
    out.n_accepted = n_accepted;
    out.ended = ended;
    out.finite = finite;
  }
}

}  // namespace

void accept(View<Accepted, 1> accepted, View<float, 2> p, View<TokenValue, 2> q,
            View<const float, 2> ruled, View<const RowLaw, 1> laws,
            View<const SamplingRules, 1> rules, View<const AcceptRules, 1> accept, RuleLists lists,
            DraftTrees trees, cudaStream_t stream) {
  const int64_t B = accepted.shape[0], V = ruled.shape[1];
  check(rules.shape[0] == B && accept.shape[0] == B && p.shape[0] == B && q.shape[0] == B,
        "accept: the numbers of sequences differ");
  check(p.shape[1] == V && V >= 1, "accept: p must be as wide as the vocabulary");
  check(q.shape[1] == trees.q_capacity, "accept: q must be as wide as the trees' q");
  check(laws.shape[0] == ruled.shape[0], "accept: the numbers of rows differ");
  check(B >= 0 && B < 1ll << 31, "accept: too many sequences");
  if (B == 0) return;

  AcceptParams params{p.data,      q.data, ruled.data, laws.data,          rules.data,
                      accept.data, lists,  trees,      static_cast<int>(V)};
  const int threads = V <= kSmallV ? kThreadsOfSmall : kThreads;
  accept_kernel<<<static_cast<unsigned>(B), threads, 0, stream>>>(accepted.data, params);
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
