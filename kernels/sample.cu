// One block owns one row of logits: R is small, a row is a few hundred KB that stays in the L2, and
// what follows (maximum, truncation, sums) needs the whole row again and again. The tokens of a row
// are dealt to the threads one by one, so neighbours read neighbours. Nothing of p is written:
// RowLaw says what p of any token is, and accept asks for a handful.
#include "base/cuda.h"
#include "kernels/common/row_law.cuh"
#include "kernels/common/row_max.cuh"
#include "kernels/common/row_select.cuh"
#include "kernels/common/token_rules.cuh"
#include "kernels/sample.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 1024;        // of a row
constexpr int kThreadsOfSmall = 128;  // of a row of up to kSmallV tokens
constexpr int kSmallV = 4096;
constexpr int kMaxV = 1 << 18;

// min-p has set the cut; top-k and then top-p move it up.
__device__ void truncate(const SamplingRules& rules, const float* ruled, int V, RowLaw* law,
                         Weight* bins) {
  auto x_of = [&](int t) { return law_x(*law, ruled[t]); };
  auto kept = [&](float x, int t) { return law_keeps(*law, x, t); };
  auto cut_to = [&](auto weigh, auto goal_of) {
    const Cut cut =
        select_prefix(Row<decltype(x_of), decltype(kept), decltype(weigh)>{V, x_of, kept, weigh},
                      0.0f, goal_of, bins);
    // Only ever up: a cut that keeps all that is left says nothing of the one before.
    if (cut.value < law->cut_x || (cut.value == law->cut_x && cut.index > law->cut_token)) return;
    law->cut_x = cut.value;
    law->cut_token = cut.index;
  };
  if (rules.top_k > 0 && rules.top_k < V) {
    const auto k = static_cast<Weight>(rules.top_k);
    cut_to([](float) { return Weight{1}; }, [=](Weight n) { return min(n, k); });
  }
  if (rules.top_p < 1)
    cut_to([](float x) { return mass_of(exp_nonpositive(x)); },
           [&](Weight mass) {
             const double goal = rules.top_p * static_cast<double>(mass);
             return max(Weight{1}, static_cast<Weight>(ceil(goal)));
           });
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
  float best = -INFINITY;
  int32_t token = V;
  for (int t = threadIdx.x; t < V; t += blockDim.x) {
    const float p = law_p(law, ruled[t], t);
    if (p < bar) continue;
    if (const float s = score(p, t); s > best) {
      best = s;
      token = t;
    }
  }
  return best_of_block(best, token).token;
}

// log of the sum of exp(l).
__device__ double log_total(const float* logits, int V, float max) {
  double own = 0;
  for (int t = threadIdx.x; t < V; t += blockDim.x) own += exp_nonpositive(sub_rn(logits[t], max));
  return max + log(block_sum(own));
}

// The n likeliest tokens' log-probabilities.
__device__ void list_top(const float* logits, int V, float max, double log_total, int n,
                         TokenValue* top, Weight* bins, Listed* list) {
  list_first(
      V, max, [&](int t) { return logits[t]; }, min(n, V), bins, list,
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
__global__ void __launch_bounds__(kThreads, 1)
    laws_kernel(RowLaw* laws,     // [R]
                TokenValue* top,  // [R, n_top]
                float* logits,    // [R, V]
                const __grid_constant__ LawParams params) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.x, V = params.V, b = params.row_sequence[row];
  const SamplingRules& rules = params.rules[b];
  const AcceptRules& accept = params.accept[b];
  float* const l = logits + int64_t(row) * V;
  RowLaw law{};

  // 1. what the head said, and the rules of this place in the tree
  auto logit = [&](int t) { return l[t]; };
  Best max = find_max(V, logit);
  int depth = 0;
  if (max.finite) {
    const int node = row - accept.first_row - 1;
    const AppliedRules applied = apply_rules(rules, params.lists, params.trees, b, node, l, V);
    if (applied.changed) max = find_max(V, logit);  // bans are infinite, so `finite` is over now
    depth = applied.depth;
    law.state = max.value == -INFINITY ? RowState::kEmpty : RowState::kGood;
  } else {
    law.state = RowState::kNotFinite;
  }
  if (law.state != RowState::kGood) {
    if (threadIdx.x == 0) laws[row] = law;
    return;
  }
  law.max = max.value;
  law.argmax = law.winner = max.token;

  // 2. the law
  if (rules.temperature > 0) {
    law.scale = div_rn(1.0f, rules.temperature);
    law.cut_x = rules.min_x;
    law.cut_token = V;
    truncate(rules, l, V, &law, bins);
    normalise(l, V, accept.rule == AcceptRule::kTypical, &law);
    if (accept.rule == AcceptRule::kCoupled)
      law.winner = find_winner(rules, rules.position + depth, l, V, law);
  }

  // 3. scores
  const bool greedy_scores = rules.temperature == 0 && accept.rule >= AcceptRule::kThreshold;
  if (accept.n_top >= 0 || greedy_scores) law.log_total = log_total(l, V, law.max);
  if (const int n = min(accept.n_top, params.n_top); n > 0)
    list_top(l, V, law.max, law.log_total, n, top + int64_t(row) * params.n_top, bins, list);
  if (threadIdx.x == 0) laws[row] = law;
}

// grid (R), block (kThreads or kThreadsOfSmall)
__global__ void __launch_bounds__(kThreads, 1) score_kernel(float* logprobs,        // [R]
                                                            TokenValue* top,        // [R, n_top]
                                                            const float* logits,    // [R, V]
                                                            const int32_t* tokens,  // [R]
                                                            int V, int n_top) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.x;
  const float* const l = logits + int64_t(row) * V;
  const Best max = find_max(V, [&](int t) { return l[t]; });
  if (!max.finite) {
    if (threadIdx.x == 0) logprobs[row] = NAN;
    return;
  }
  const double total = log_total(l, V, max.value);
  if (threadIdx.x == 0) logprobs[row] = static_cast<float>(l[tokens[row]] - total);
  if (n_top > 0) list_top(l, V, max.value, total, n_top, top + int64_t(row) * n_top, bins, list);
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

void make_laws(View<RowLaw, 1> laws, View<TokenValue, 2> top, View<float, 2> logits,
               View<const int32_t, 1> row_sequence, View<const SamplingRules, 1> rules,
               View<const AcceptRules, 1> accept, RuleLists lists, DraftTrees trees,
               cudaStream_t stream) {
  const auto [R, V] = logits.shape;
  check(laws.shape[0] == R && row_sequence.shape[0] == R && top.shape[0] == R,
        "make_laws: the numbers of rows differ");
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
  laws_kernel<<<static_cast<unsigned>(R), threads_of(V), 0, stream>>>(laws.data, top.data,
                                                                      logits.data, params);
  cuda_check(cudaGetLastError());
}

void score_tokens(View<float, 1> logprobs, View<TokenValue, 2> top, View<const float, 2> logits,
                  View<const int32_t, 1> tokens, cudaStream_t stream) {
  const auto [R, V] = logits.shape;
  check(logprobs.shape[0] == R && tokens.shape[0] == R && top.shape[0] == R,
        "score_tokens: the numbers of rows differ");
  check_shape(R, V, top.shape[1]);
  if (R == 0) return;

  score_kernel<<<static_cast<unsigned>(R), threads_of(V), 0, stream>>>(
      logprobs.data, top.data, logits.data, tokens.data, static_cast<int>(V),
      static_cast<int>(top.shape[1]));
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
