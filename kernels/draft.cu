// list_candidates: a draft has few rows, so a row is cut into slices and each slice's block lists
// its own n likeliest (row_select.cuh), from the L1 after the first pass; a second kernel lists the
// likeliest of those. grow_trees: one block owns one sequence; a thread holds one candidate, and
// ranks by counting who goes before it, which beats a sort at 256 entries. A level's open nodes
// follow each other, since the nodes of the first ones count against what the later ones may add.
#include "base/cuda.h"
#include "kernels/common/row_max.cuh"
#include "kernels/common/row_select.cuh"
#include "kernels/common/token_rules.cuh"
#include "kernels/draft.h"

namespace pf::kernels {
namespace {

constexpr int kThreads = 256;  // of a slice, and of a row whose slices are merged
constexpr int kMaxV = 1 << 18;
constexpr float kPad = -3.402823466e38f;  // the lowest finite value, behind a short slice's entries
constexpr int kMaxGrowThreads = kMaxTop;  // one per candidate

// grid (n_slices, R), block (kThreads). A slice that is not finite says so by a NaN.
__global__ void __launch_bounds__(kThreads)
    slice_kernel(TokenValue* slices,   // [R, n_slices, n] (place in the row, logit)
                 const float* logits,  // [R, V]
                 const int32_t* open,  // [R]
                 int V, int n) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.y, first = blockIdx.x * kSlice, width = min(kSlice, V - first);
  if (open[row] == kNoNode) return;
  const float* const l = logits + int64_t(row) * V + first;
  TokenValue* const out = slices + (int64_t(row) * gridDim.x + blockIdx.x) * n;
  auto logit = [&](int t) { return l[t]; };

  const Best max = find_max(width, logit);
  const int n_listed = max.finite ? min(n, width) : 0;
  for (int i = n_listed + static_cast<int>(threadIdx.x); i < n; i += blockDim.x)
    out[i] = {-1, max.finite ? kPad : NAN};
  if (max.finite)
    list_first(width, max.value, logit, n_listed, bins, list, [&](int rank, float v, int t) {
      out[rank] = {first + t, v};
    });
}

// grid (R), block (kThreads)
__global__ void __launch_bounds__(kThreads)
    merge_kernel(TokenValue* candidates,      // [R, n]
                 int32_t* n_listed,           // [R]
                 const TokenValue* slices,    // [R, n_slices, n]
                 const int32_t* open,         // [R]
                 const int32_t* head_tokens,  // [V] or null
                 int n_slices, int V, int n) {
  __shared__ Weight bins[kBins];
  __shared__ Listed list[kMaxListed];
  const int row = blockIdx.x, n_entries = n_slices * n;
  if (open[row] == kNoNode) {
    if (threadIdx.x == 0) n_listed[row] = 0;
    return;
  }
  // Equal values stand in the order of their places: slices rise, and so does each within.
  const TokenValue* const entries = slices + int64_t(row) * n_entries;
  auto value = [&](int i) { return entries[i].value; };
  const Best max = find_max(n_entries, value);
  if (threadIdx.x == 0) n_listed[row] = max.finite ? min(n, V) : 0;
  if (!max.finite) return;
  list_first(n_entries, max.value, value, min(n, V), bins, list, [&](int rank, float v, int i) {
    const int32_t place = entries[i].token;
    candidates[int64_t(row) * n + rank] = {head_tokens ? head_tokens[place] : place, v};
  });
}

struct GrowParams {
  DraftTrees trees;
  int32_t *next_open, *next_tokens;  // [B, next_width]
  const int32_t* open;               // [B, W]
  const TokenValue* candidates;      // [B * W, n]
  const int32_t* n_listed;           // [B * W]
  const SamplingRules* rules;        // [B]
  const GrowRules* grow;             // [B]
  RuleLists lists;
  int W, n, width, depth, max_nodes, next_width;
};

// One entry per thread; what is no entry has token -1.
struct Entry {
  int32_t token;
  float value;
};

// Moves each thread's entry to the place that its rank by falling value, lower token first, gives
// it, and returns how many there are. `list` [kMaxTop] shared.
__device__ int sort_entries(Entry* own, Entry* list) {
  const int thread = threadIdx.x, width = blockDim.x;
  __syncthreads();
  list[thread] = *own;
  __syncthreads();
  int rank = 0, n = 0;
#pragma unroll 1
  for (int i = 0; i < width; ++i) {
    const Entry other = list[i];
    if (other.token < 0) continue;
    ++n;
    rank += other.value > own->value || (other.value == own->value && other.token < own->token);
  }
  __syncthreads();
  if (own->token >= 0) list[rank] = *own;
  __syncthreads();
  *own = thread < n ? list[thread] : Entry{-1, 0};
  return n;
}

// The same by log q + gumbel, among equal ones in the order that they have; n entries.
__device__ void sort_by_gumbel(NoiseKey key, int64_t position, int n, Entry* own, Entry* list) {
  const int thread = threadIdx.x;
  const float score = own->token < 0 ? 0.0f
                                     : add_rn(log_positive(fmaxf(own->value, 1e-37f)),
                                              gumbel(key, position, own->token));
  __syncthreads();
  list[thread].value = score;
  __syncthreads();
  int rank = 0;
#pragma unroll 1
  for (int i = 0; i < n; ++i)
    rank += list[i].value > score || (list[i].value == score && i < thread);
  __syncthreads();
  if (thread < n) list[rank] = *own;
  __syncthreads();
  if (thread < n) *own = list[thread];
}

// The candidate's logit after the rules; token -1 where it is banned or no candidate.
__device__ Entry ruled_candidate(const GrowParams& params, int b, int place, const Path& path) {
  const SamplingRules& rules = params.rules[b];
  const RuleLists& lists = params.lists;
  const int row = b * params.W + place, thread = threadIdx.x;
  if (thread >= params.n_listed[row]) return {-1, 0};
  const TokenValue c = params.candidates[int64_t(row) * params.n + thread];
  float logit = c.value;
  if (rules.penalised) {
    const int at = find_count(lists.counts + rules.first_count, rules.n_counts, c.token);
    const int in_path = path.count(c.token);
    if (at >= 0 || in_path > 0) {
      const int before = at >= 0 ? lists.counts[rules.first_count + at].output : 0;
      logit = penalised(rules, before + in_path, logit);
    }
  }
#pragma unroll 1
  for (int i = 0; i < rules.n_biases; ++i) {
    const TokenValue bias = lists.biases[rules.first_bias + i];
    if (bias.token == c.token) logit = biased(bias.value, logit);
  }
  if (rules.n_generated + params.depth - 1 < rules.min_new_tokens)
#pragma unroll 1
    for (int i = 0; i < rules.n_ends; ++i)
      if (lists.end_ids[rules.first_end + i] == c.token) return {-1, 0};
  return logit > -INFINITY ? Entry{c.token, logit} : Entry{-1, 0};
}

// From ruled logits to q: thread i < the result holds the i-th likeliest token and its probability.
__device__ int make_q(const SamplingRules& rules, Entry* own, Entry* list) {
  const float max = block_reduce(own->token >= 0 ? own->value : -INFINITY, Max{});
  const float temperature = rules.temperature > 0 ? rules.temperature : 1;  // greedy ranks by q
  if (own->token >= 0) {
    own->value = div_rn(sub_rn(own->value, max), temperature);
    if (own->value < fmaxf(rules.min_x, kSmallestExp)) own->token = -1;
  }
  int n = sort_entries(own, list);
  if (rules.top_k > 0) n = min(n, rules.top_k);
  const int thread = threadIdx.x;
  const float e = thread < n ? exp_nonpositive(own->value) : 0.0f;
  double total = block_sum(e);
  if (rules.top_p < 1) {
    // Kept while the mass before it has not reached top_p.
    const double upto = block_scan(static_cast<double>(e));
    const bool kept = thread < n && upto - e < rules.top_p * total;
    n = block_reduce(kept ? thread + 1 : 1, Max{});
    total = block_sum(thread < n ? e : 0.0);
  }
  *own = thread < n ? Entry{own->token, static_cast<float>(e / total)} : Entry{-1, 0};
  return n;
}

// Draws among the entries that are left; the thread that holds the chosen one gets true.
__device__ bool pick(const Entry& own, bool left, double u) {
  const double mass = left ? own.value : 0.0;
  const double upto = block_scan(mass), total = block_sum(mass);
  const int thread = threadIdx.x, none = blockDim.x;
  const bool beyond = left && u * total - upto < 0;
  const int first = -block_reduce(beyond ? -thread : -none, Max{});
  const int last = block_reduce(left ? thread : -1, Max{});
  return thread == (first < none ? first : last);
}

// How far one sequence has grown. The same in every thread.
struct Growing {
  int n_nodes, n_entries;  // of the tree
  int n_new;               // of this level
};

// Adds the children of one node, in order; thread i < n holds the i-th entry of q.
__device__ void add_children(const GrowParams& params, int b, int32_t node, const Entry& own, int n,
                             int n_children, bool drawn, Growing* state) {
  const DraftTrees& trees = params.trees;
  const SamplingRules& rules = params.rules[b];
  const int thread = threadIdx.x, q_begin = state->n_entries;
  if (drawn) {
    if (thread < n)
      trees.q[int64_t(b) * trees.q_capacity + q_begin + thread] = {own.token, own.value};
    state->n_entries += n;
  }
  bool left = thread < n;
#pragma unroll 1
  for (int i = 0; i < n_children; ++i) {
    bool mine = thread == i;
    if (drawn) {
      // Cousins stand at one position too: the node keeps their draws apart.
      const auto ordinal = static_cast<uint32_t>((node + 1) * kMaxNodes + i);
      mine = pick(
          own, left,
          noise_uniform(rules.key, rules.position + params.depth - 1, Purpose::kDraft, ordinal));
    }
    if (!mine) continue;
    left = false;
    const int at = b * kMaxNodes + state->n_nodes + i;
    trees.tokens[at] = own.token;
    trees.parents[at] = node;
    trees.depths[at] = params.depth;
    trees.q_begin[at] = q_begin;
    trees.q_end[at] = state->n_entries;
    trees.scores[at] = own.value;
    const int next = b * params.next_width + state->n_new + i;
    params.next_open[next] = state->n_nodes + i;
    params.next_tokens[next] = own.token;
  }
  state->n_nodes += n_children;
  state->n_new += n_children;
}

__device__ void grow_node(const GrowParams& params, int b, int place, int32_t node, Entry* list,
                          Growing* state) {
  __shared__ Path path;
  const SamplingRules& rules = params.rules[b];
  const int limit = min(params.grow[b].n_draft, params.max_nodes);
  const int wanted = min(params.width, limit - state->n_nodes);
  if (wanted <= 0) return;
  __syncthreads();
  if (threadIdx.x == 0) read_path(params.trees, b, node, &path);
  __syncthreads();
  Entry own = ruled_candidate(params, b, place, path);
  if (block_reduce(own.token, Max{}) < 0) return;  // all are banned
  const int n = make_q(rules, &own, list);
  const bool greedy = rules.temperature == 0, coupled = params.grow[b].coupled != 0;
  if (coupled && !greedy)
    sort_by_gumbel(rules.key, rules.position + params.depth - 1, n, &own, list);
  add_children(params, b, node, own, n, min(wanted, n), !coupled && !greedy, state);
}

// grid (B), block: the power of two that holds n, of whole warps
__global__ void __launch_bounds__(kMaxGrowThreads, 1)
    grow_kernel(const __grid_constant__ GrowParams params) {
  __shared__ Entry list[kMaxTop];
  const int b = blockIdx.x;
  Growing state{params.trees.n_nodes[b], params.trees.n_entries[b], 0};
  __syncthreads();  // read by all before the first of them writes

  for (int place = 0; place < params.W; ++place) {
    const int32_t node = params.open[b * params.W + place];
    if (node != kNoNode && params.n_listed[b * params.W + place] > 0)
      grow_node(params, b, place, node, list, &state);
  }

  for (int i = state.n_new + static_cast<int>(threadIdx.x); i < params.next_width;
       i += blockDim.x) {
    params.next_open[b * params.next_width + i] = kNoNode;
    params.next_tokens[b * params.next_width + i] = -1;
  }
  if (threadIdx.x == 0) {
    params.trees.n_nodes[b] = state.n_nodes;
    params.trees.n_entries[b] = state.n_entries;
  }
}

}  // namespace

void list_candidates(View<TokenValue, 2> candidates, View<int32_t, 1> n_listed,
                     View<TokenValue, 3> slices, View<const float, 2> logits,
                     View<const int32_t, 1> open, View<const int32_t, 1> head_tokens,
                     cudaStream_t stream) {
  const auto [R, V] = logits.shape;
  const int64_t n = candidates.shape[1];
  check(candidates.shape[0] == R && n_listed.shape[0] == R && open.shape[0] == R,
        "list_candidates: the numbers of rows differ");
  check(R >= 0 && R <= 65535, "list_candidates: too many rows");
  check(V >= 1 && V <= kMaxV, "list_candidates: a vocabulary holds 1 to 2^18 tokens");
  check(n >= 1 && n <= kMaxListed, "list_candidates: 1 to 256 tokens can be listed");
  check(slices.shape[0] == R && slices.shape[1] == n_slices_of(V) && slices.shape[2] == n,
        "list_candidates: the scratch must hold n entries of every slice");
  check(head_tokens.data == nullptr || head_tokens.shape[0] == V,
        "list_candidates: every logit needs its token");
  if (R == 0) return;

  const auto n_slices = static_cast<unsigned>(n_slices_of(V)), rows = static_cast<unsigned>(R);
  const int v = static_cast<int>(V), wanted = static_cast<int>(n);
  slice_kernel<<<dim3(n_slices, rows), kThreads, 0, stream>>>(slices.data, logits.data, open.data,
                                                              v, wanted);
  cuda_check(cudaGetLastError());
  merge_kernel<<<rows, kThreads, 0, stream>>>(candidates.data, n_listed.data, slices.data,
                                              open.data, head_tokens.data,
                                              static_cast<int>(n_slices), v, wanted);
  cuda_check(cudaGetLastError());
}

void grow_trees(DraftTrees trees, View<int32_t, 2> next_open, View<int32_t, 2> next_tokens,
                View<const int32_t, 2> open, View<const TokenValue, 2> candidates,
                View<const int32_t, 1> n_listed, View<const SamplingRules, 1> rules,
                View<const GrowRules, 1> grow, RuleLists lists, int width, int depth, int max_nodes,
                cudaStream_t stream) {
  const auto [B, W] = open.shape;
  const int64_t n = candidates.shape[1];
  const int64_t next_width = next_open.shape[1];
  check(rules.shape[0] == B && grow.shape[0] == B && next_open.shape[0] == B &&
            next_tokens.shape[0] == B && next_tokens.shape[1] == next_width,
        "grow_trees: the numbers of sequences differ");
  check(candidates.shape[0] == B * W && n_listed.shape[0] == B * W,
        "grow_trees: one row of candidates for each place");
  check(n >= 1 && n <= kMaxTop, "grow_trees: 1 to 256 candidates");
  check(W >= 1 && width >= 1 && depth >= 1, "grow_trees: a level needs places and a depth");
  check(max_nodes >= 1 && max_nodes <= kMaxNodes, "grow_trees: a tree holds up to 64 nodes");
  check(trees.q_capacity >= n * max_nodes, "grow_trees: q needs room for every node's candidates");
  check(next_width >= (W * width < max_nodes ? W * width : max_nodes),
        "grow_trees: the next level needs a place for each of its nodes");
  if (B == 0) return;

  GrowParams params{trees,
                    next_open.data,
                    next_tokens.data,
                    open.data,
                    candidates.data,
                    n_listed.data,
                    rules.data,
                    grow.data,
                    lists,
                    static_cast<int>(W),
                    static_cast<int>(n),
                    width,
                    depth,
                    max_nodes,
                    static_cast<int>(next_width)};
  unsigned threads = 32;
  while (threads < n) threads *= 2;
  grow_kernel<<<static_cast<unsigned>(B), threads, 0, stream>>>(params);
  cuda_check(cudaGetLastError());
}

}  // namespace pf::kernels
