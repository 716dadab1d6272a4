// One block owns one row of logits: R is small, a row is a few hundred KB that stays in the L2, and
// what follows (maximum, truncation, sums) needs the whole row again and again. The tokens of a row
// are dealt to the threads one by one, so neighbours read neighbours. Nothing of p is written:
// RowLaw says what p of any token is, and accept asks for a handful.
#include <algorithm>

#include "base/cuda.h"
#include "kernels/common/half.cuh"
#include "kernels/common/row_law.cuh"
#include "kernels/common/row_select.cuh"
#include "kernels/common/token_rules.cuh"
#include "kernels/sample.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 1024;        // of a row
constexpr int kThreadsOfSmall = 128;  // of a row of up to kSmallV tokens
constexpr int kSmallV = 4096;
constexpr int kMaxV = 1 << 18;

// Raw logits to float; true in every thread when all are finite.
template <class T>
__device__ bool widen_row(float* ruled, const T* logits, int V) {
  int bad = 0;
  for (int t = threadIdx.x; t < V; t += blockDim.x) {
    const float v = widen(logits[t]);
    bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
    ruled[t] = v;
  }
  return block_reduce(bad, Max{}) == 0;
}

// The largest value and the lowest token that has it.
struct Best {
  float value;
  int32_t token;
};
__device__ Best best_of_block(float value, int32_t token) {
  // Larger is better, then the lower token: one integer says both.
  const uint32_t rising = ~falling_key(value);
  const auto all =
      block_max(static_cast<unsigned long long>(rising) << 32 | ~static_cast<uint32_t>(token));
  return {value_of_falling_key(~static_cast<uint32_t>(all >> 32)),
          static_cast<int32_t>(~static_cast<uint32_t>(all))};
}

__device__ Best find_max(const float* ruled, int V) {
  Best own{-INFINITY, V};
  for (int t = threadIdx.x; t < V; t += blockDim.x)
    if (ruled[t] > own.value) own = {ruled[t], t};
  return best_of_block(own.value, own.token);
}

// min-p has set the cut; top-k and then top-p move it up.
__device__ void truncate(const SamplingRules& rules, const float* ruled, int V, RowLaw* law,
                         Weight* bins) {
  auto x_of = [&](int t) { return law_x(*law, ruled[t]); };
  auto kept = [&](float x, int t) { return law_keeps(*law, x, t); };
  auto sum_of = [&](auto weigh) {
    Weight own = 0;
    for (int t = threadIdx.x; t < V; t += blockDim.x)
      if (const float x = x_of(t); kept(x, t)) own += weigh(x);
    return block_reduce(own, Sum{});
  };
  auto cut_to = [&](auto weigh, Weight goal) {
    const Cut cut =
        select_prefix(Row<decltype(x_of), decltype(kept), decltype(weigh)>{V, x_of, kept, weigh},
                      0.0f, goal, bins);
    // The cut before may lie among the same equal values.
    law->cut_token = cut.value == law->cut_x ? min(law->cut_token, cut.index) : cut.index;
    law->cut_x = cut.value;
  };
  if (rules.top_k > 0 && rules.top_k < V) {
    auto one = [](float) { return Weight{1}; };
    const auto k = static_cast<Weight>(rules.top_k);
    if (sum_of(one) > k) cut_to(one, k);
  }
  if (rules.top_p < 1) {
    auto mass = [](float x) { return mass_of(exp_nonpositive(x)); };
    const double goal = rules.top_p * static_cast<double>(sum_of(mass));
    cut_to(mass, max(Weight{1}, static_cast<Weight>(ceil(goal))));
  }
}

// norm, and the entropy where it is wanted: -sum p log p with log p = x + log norm.
__device__ void normalise(const float* ruled, int V, bool wants_entropy, RowLaw* law) {
  double total = 0, weighted = 0;
  for (int t = threadIdx.x; t < V; t += blockDim.x) {
    const float x = law_x(*law, ruled[t]);
    if (!law_keeps(*law, x, t)) continue;
    const float e = exp_nonpositive(x);
    total += e;
    if (wants_entropy) weighted += static_cast<double>(e) * x;
  }
  total = block_sum(total);
  law->norm = static_cast<float>(1 / total);
  if (wants_entropy) law->entropy = log(total) - block_sum(weighted) / total;
}

// argmax of log p + gumbel. The likeliest token sets a bar that most tokens cannot reach even with
// the largest noise; only the others draw theirs.
__device__ int32_t find_winner(const SamplingRules& rules, int64_t position, const float* ruled,
                               int V, const RowLaw& law) {
  auto score = [&](float p, int t) {
    return add_rn(log_positive(p), gumbel(rules.key, position, t));
  };
  const float first = score(law_p(law, law.max, law.argmax), law.argmax);
  const float bar = fmaxf(exp_nonpositive(fminf(first - kMaxGumbel, 0.0f)), 1e-37f);
  Best own{-INFINITY, V};
  for (int t = threadIdx.x; t < V; t += blockDim.x) {
    const float p = law_p(law, ruled[t], t);
    if (p < bar) continue;
    if (const float s = score(p, t); s > own.value) own = {s, t};
  }
  return best_of_block(own.value, own.token).token;
}

__device__ double log_total(const float* ruled, int V, float top) {
  double own = 0;
  for (int t = threadIdx.x; t < V; t += blockDim.x) own += exp_nonpositive(sub_rn(ruled[t], top));
  return top + log(block_sum(own));
}

__device__ void list_top(const float* ruled, int V, const Best& max, double log_total, int n,
                         TokenValue* top, Weight* bins, Listed* list) {
  list_first(
      V, max.value, [&](int t) { return ruled[t]; }, min(n, V), bins, list,
      [&](int rank, float v, int t) {
        top[rank] = {t, static_cast<float>(v - log_total)};
      });
}

struct LawParams {
  const int32_t* row_sequence;  // [R]
  const SamplingRules* rules;   // [B]
  const AcceptRules* accept;    // [B]
  RuleLists lists;
  DraftTrees trees;
  int V, n_top;
};

// grid (R), block (kThreads or kThreadsOfSmall)
template <class T>
__global__ void __launch_bounds__(kThreads, 1)
    laws_kernel(RowLaw* laws,     // [R]
                TokenValue* top,  // [R, n_top]
                float* ruled,     // [R, V]
                const T* logits,  // [R, V]
                const __grid_constant__ LawParams params) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.x, V = params.V, b = params.row_sequence[row];
  const SamplingRules& rules = params.rules[b];
  const AcceptRules& accept = params.accept[b];
  float* const l = ruled + int64_t(row) * V;
  RowLaw law{};

  // 1. what the head said
  if (!widen_row(l, logits + int64_t(row) * V, V)) {
    law.state = RowState::kNotFinite;
    if (threadIdx.x == 0) laws[row] = law;
    return;
  }

  // 2. the rules of this place in the tree
  const int node = row - accept.first_row - 1;
  const int depth = apply_rules(rules, params.lists, params.trees, b, node, l, V);

  // 3. the likeliest token
  const Best max = find_max(l, V);
  law.max = max.value;
  law.argmax = max.token;
  if (max.value == -INFINITY) {
    law.state = RowState::kEmpty;
    if (threadIdx.x == 0) laws[row] = law;
    return;
  }

  // 4. the law
  if (rules.temperature > 0) {
    law.scale = div_rn(1.0f, rules.temperature);
    law.cut_x = rules.min_x;
    law.cut_token = V;
    truncate(rules, l, V, &law, bins);
    normalise(l, V, accept.rule == AcceptRule::kTypical, &law);
  }
  law.winner = max.token;
  if (accept.rule == AcceptRule::kCoupled && rules.temperature > 0)
    law.winner = find_winner(rules, rules.position + depth, l, V, law);

  // 5. scores
  const bool greedy_scores = rules.temperature == 0 && accept.rule >= AcceptRule::kThreshold;
  if (accept.n_top >= 0 || greedy_scores) law.log_total = log_total(l, V, max.value);
  if (const int n = min(accept.n_top, params.n_top); n > 0)
    list_top(l, V, max, law.log_total, n, top + int64_t(row) * params.n_top, bins, list);
  if (threadIdx.x == 0) laws[row] = law;
}

// grid (R), block (kThreads or kThreadsOfSmall)
template <class T>
__global__ void __launch_bounds__(kThreads, 1) score_kernel(float* logprobs,        // [R]
                                                            TokenValue* top,        // [R, n_top]
                                                            const T* logits,        // [R, V]
                                                            const int32_t* tokens,  // [R]
                                                            int V, int n_top) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.x;
  const T* const l = logits + int64_t(row) * V;
  auto value = [&](int t) { return widen(l[t]); };

  // 1. finite, and the largest
  int bad = 0;
  Best own{-INFINITY, V};
  for (int t = threadIdx.x; t < V; t += blockDim.x) {
    const float v = value(t);
    bad |= (__float_as_uint(v) & 0x7f800000u) == 0x7f800000u;
    if (v > own.value) own = {v, t};
  }
  if (block_reduce(bad, Max{}) != 0) {
    if (threadIdx.x == 0) logprobs[row] = NAN;
    return;
  }
  const Best max = best_of_block(own.value, own.token);

  // 2. the sum
  double total = 0;
  for (int t = threadIdx.x; t < V; t += blockDim.x)
    total += exp_nonpositive(sub_rn(value(t), max.value));
  const double log_total = max.value + log(block_sum(total));
  if (threadIdx.x == 0) logprobs[row] = static_cast<float>(value(tokens[row]) - log_total);

  // 3. the likeliest
  if (n_top > 0)
    list_first(V, max.value, value, min(n_top, V), bins, list, [&](int rank, float v, int t) {
      top[int64_t(row) * n_top + rank] = {t, static_cast<float>(v - log_total)};
    });
}

void check_shape(int64_t R, int64_t V, int64_t n_top) {
  check(R >= 0 && R < 1ll << 31, "sample: too many rows");
  check(V >= 1 && V <= kMaxV, "sample: a vocabulary holds 1 to 2^18 tokens");
  check(n_top >= 0 && n_top <= kMaxListed, "sample: at most 256 likeliest tokens are listed");
}

unsigned threads_of(int64_t V) {
  return static_cast<unsigned>(V <= kSmallV ? kThreadsOfSmall : kThreads);
}

}  // namespace

template <class T>
void make_laws(View<RowLaw, 1> laws, View<TokenValue, 2> top, View<float, 2> ruled,
               View<const T, 2> logits, View<const int32_t, 1> row_sequence,
               View<const SamplingRules, 1> rules, View<const AcceptRules, 1> accept,
               RuleLists lists, DraftTrees trees, cudaStream_t stream) {
  const auto [R, V] = logits.shape;
  check(laws.shape[0] == R && row_sequence.shape[0] == R && top.shape[0] == R,
        "make_laws: the numbers of rows differ");
  check(ruled.shape[0] == R && ruled.shape[1] == V, "make_laws: ruled must have logits' shape");
  check(rules.shape[0] == accept.shape[0], "make_laws: the numbers of sequences differ");
  check_shape(R, V, top.shape[1]);
  if (R == 0) return;

  LawParams params{row_sequence.data,
                   rules.data,
                   accept.data,
                   lists,
                   trees,
                   static_cast<int>(V),
                   static_cast<int>(top.shape[1])};
  laws_kernel<T><<<static_cast<unsigned>(R), threads_of(V), 0, stream>>>(
      laws.data, top.data, ruled.data, logits.data, params);
  cuda_check(cudaGetLastError());
}

template <class T>
void score_tokens(View<float, 1> logprobs, View<TokenValue, 2> top, View<const T, 2> logits,
                  View<const int32_t, 1> tokens, cudaStream_t stream) {
  const auto [R, V] = logits.shape;
  check(logprobs.shape[0] == R && tokens.shape[0] == R && top.shape[0] == R,
        "score_tokens: the numbers of rows differ");
  check_shape(R, V, top.shape[1]);
  if (R == 0) return;

  score_kernel<T><<<static_cast<unsigned>(R), threads_of(V), 0, stream>>>(
      logprobs.data, top.data, logits.data, tokens.data, static_cast<int>(V),
      static_cast<int>(top.shape[1]));
  cuda_check(cudaGetLastError());
}

#define PF_INSTANTIATE(T)                                                                         \
  template void make_laws<T>(View<RowLaw, 1>, View<TokenValue, 2>, View<float, 2>,                \
                             View<const T, 2>, View<const int32_t, 1>,                            \
                             View<const SamplingRules, 1>, View<const AcceptRules, 1>, RuleLists, \
                             DraftTrees, cudaStream_t);                                           \
  template void score_tokens<T>(View<float, 1>, View<TokenValue, 2>, View<const T, 2>,            \
                                View<const int32_t, 1>, cudaStream_t)
PF_INSTANTIATE(float);
PF_INSTANTIATE(f16);
PF_INSTANTIATE(bf16);
#undef PF_INSTANTIATE

}  // namespace pf::kernels
