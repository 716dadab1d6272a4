#pragma once

// The rules that change logits, before temperature: penalties, bias, bans.

#include <cmath>

#include "kernels/common/block.cuh"
#include "kernels/sample_types.h"

namespace pf::kernels {

// Tokens from the root to a node, in shared memory.
struct Path {
  int32_t tokens[kMaxNodes];
  int32_t n;

  __device__ int32_t count(int32_t token) const {
    int32_t c = 0;
#pragma unroll 1
    for (int i = 0; i < n; ++i) c += tokens[i] == token;
    return c;
  }
  // No earlier place holds the same token.
  __device__ bool is_first(int at) const {
#pragma unroll 1
    for (int i = 0; i < at; ++i)
      if (tokens[i] == tokens[at]) return false;
    return true;
  }
};

// Written by one thread; a barrier follows.
__device__ inline void read_path(const DraftTrees& trees, int b, int32_t node, Path* path) {
  path->n = 0;
  for (; node >= 0; node = trees.parents[b * kMaxNodes + node])
    path->tokens[path->n++] = trees.tokens[b * kMaxNodes + node];
}

__device__ inline float penalised(const SamplingRules& r, int32_t output, float logit) {
  if (r.repetition != 1)
    logit = logit > 0 ? div_rn(logit, r.repetition) : mul_rn(logit, r.repetition);
  if (output > 0)
    logit = sub_rn(logit, add_rn(mul_rn(r.frequency, static_cast<float>(output)), r.presence));
  return logit;
}

__device__ inline float biased(float bias, float logit) {
  return bias <= kBannedBias ? -INFINITY : add_rn(logit, bias);
}

// The entry of a token, or -1. `counts` rises by token.
__device__ inline int find_count(const TokenCount* counts, int n, int32_t token) {
  int first = 0, last = n;
  while (first < last) {
    const int middle = (first + last) / 2;
    if (counts[middle].token < token)
      first = middle + 1;
    else
      last = middle;
  }
  return first < n && counts[first].token == token ? first : -1;
}

struct AppliedRules {
  int depth;     // of the node; 0 for the root
  bool changed;  // some logit may have
};

// In place on the logits [V] behind `node` of tree b; tokens from V upward are left out. Every
// thread of the block calls and gets the result.
__device__ inline AppliedRules apply_rules(const SamplingRules& rules, const RuleLists& lists,
                                           const DraftTrees& trees, int b, int32_t node,
                                           float* logits, int V) {
  __shared__ Path path;
  if (threadIdx.x == 0) read_path(trees, b, node, &path);
  __syncthreads();
  const int thread = threadIdx.x, width = blockDim.x;

  // 1. penalties: what the lists count, then what only the path holds
  if (rules.penalised) {
    const TokenCount* const counts = lists.counts + rules.first_count;
#pragma unroll 1
    for (int i = thread; i < rules.n_counts; i += width) {
      const TokenCount c = counts[i];
      if (c.token < V)
        logits[c.token] = penalised(rules, c.output + path.count(c.token), logits[c.token]);
    }
#pragma unroll 1
    for (int i = thread; i < path.n; i += width) {
      const int32_t token = path.tokens[i];
      if (find_count(counts, rules.n_counts, token) < 0 && path.is_first(i))
        logits[token] = penalised(rules, path.count(token), logits[token]);
    }
    __syncthreads();
  }

  // 2. bias
  const TokenValue* const biases = lists.biases + rules.first_bias;
#pragma unroll 1
  for (int i = thread; i < rules.n_biases; i += width)
    if (const TokenValue e = biases[i]; e.token < V)
      logits[e.token] = biased(e.value, logits[e.token]);
  __syncthreads();

  // 3. bans
  const bool bans = rules.n_generated + path.n < rules.min_new_tokens;
  if (bans) {
#pragma unroll 1
    for (int i = thread; i < rules.n_ends; i += width)
      if (const int32_t end = lists.end_ids[rules.first_end + i]; end < V) logits[end] = -INFINITY;
    __syncthreads();
  }
  return {path.n, rules.penalised || rules.n_biases > 0 || bans};
}

}  // namespace pf::kernels
