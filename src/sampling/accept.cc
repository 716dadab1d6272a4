#include "sampling/accept.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sampling/fast_math.h"

namespace pf {
namespace {

constexpr int32_t kNone = -2;  // no child is kept

// What one node decided.
struct Choice {
  int32_t token = -1;
  int32_t kept = kNone;  // the child that was kept
  double loss = 0;
};

// The judgement at one node: p of its row, its children in order.
struct Node {
  const AcceptInput* in;
  int64_t position;               // of the token that is decided here
  Distribution* p;                // becomes the residual
  std::span<const float> logits;  // after the rules
  std::span<const int32_t> children;
  double spent;  // loss so far, this round included
};

// q of one set of siblings, shrinking as they are rejected (sampling without replacement).
class Proposal {
 public:
  void load(std::span<const TokenProbability> q, int32_t token) {
    if (q.empty()) {
      entries_.assign(1, {token, 1.0f});
    } else if (q.data() != source_) {
      entries_.assign(q.begin(), q.end());
    }
    source_ = q.empty() ? nullptr : q.data();
  }
  float at(int32_t token) const {
    for (const TokenProbability& e : entries_)
      if (e.token == token) return e.probability;
    return 0;
  }
  std::span<const TokenProbability> entries() const { return entries_; }
  void remove(int32_t token) {
    std::erase_if(entries_, [&](const TokenProbability& e) { return e.token == token; });
    double total = 0;
    for (const TokenProbability& e : entries_) total += e.probability;
    for (TokenProbability& e : entries_) e.probability = static_cast<float>(e.probability / total);
  }

 private:
  std::vector<TokenProbability> entries_;
  const TokenProbability* source_ = nullptr;
};

// p <- norm(max(0, p - q)). False when nothing is left (rounding): p is then unchanged.
bool take_residual(std::span<const TokenProbability> q, Distribution* p) {
  auto slot = [&](int32_t token) -> float* {
    if (p->ids.empty())
      return static_cast<size_t>(token) < p->p.size() ? &p->p[static_cast<size_t>(token)] : nullptr;
    auto it = std::lower_bound(p->ids.begin(), p->ids.end(), token);
    return it != p->ids.end() && *it == token ? &p->p[static_cast<size_t>(it - p->ids.begin())]
                                              : nullptr;
  };
  double total = 0;
  for (float v : p->p) total += v;
  double left = total;
  for (const TokenProbability& e : q)
    if (float* v = slot(e.token)) left -= std::min(*v, e.probability);
  if (left <= 1e-7 * total) return false;  // below the rounding of the sums
  for (const TokenProbability& e : q)
    if (float* v = slot(e.token)) *v = std::max(0.0f, *v - e.probability);
  double sum = 0;
  for (float v : p->p) sum += v;
  float scale = static_cast<float>(1 / sum);
  for (float& v : p->p) v *= scale;
  return true;
}

// Softmax score of a token: p itself, or at temperature 0, where p is one-hot, that of the logits.
float score_of(const Node& n, int32_t token) {
  if (!n.in->params->greedy()) return n.p->at(token);
  return exp_nonpositive(std::min(0.0f, logprobs_of(n.logits, token, 0).logprob));
}

int32_t own_draw(const Node& n, Purpose purpose, uint32_t ordinal) {
  return draw(*n.p, noise_uniform(n.in->key, n.position, purpose, ordinal));
}

Choice choose_coupled(const Node& n) {
  Choice c;
  c.token = draw_coupled(*n.p, n.in->key, n.position);
  for (int32_t child : n.children)
    if (n.in->tree->tokens[static_cast<size_t>(child)] == c.token) {
      c.kept = child;
      break;
    }
  return c;
}

// Exact rejection; with a threshold, tokens above it are kept as well and their excess is paid for.
Choice choose_rejection(const Node& n) {
  const AcceptInput& in = *n.in;
  const DraftTree& tree = *in.tree;
  bool threshold = in.policy.rule == Acceptance::kThreshold && in.policy.alpha < 1;
  Proposal q;
  uint32_t tried = 0;
  for (int32_t child : n.children) {
    int32_t x = tree.tokens[static_cast<size_t>(child)];
    q.load(tree.q(child), x);
    float px = n.p->at(x), qx = q.at(x);
    if (qx <= 0) break;  // q is used up
    bool keep = noise_uniform(in.key, n.position, Purpose::kAccept, tried) * qx < px;
    double loss = 0;
    if (threshold) {
      double excess = std::max(0.0, 1.0 - static_cast<double>(px) / qx);
      bool affordable = in.policy.loss_budget < 0 || n.spent + excess <= in.policy.loss_budget;
      if (affordable &&
          score_of(n, x) >= in.policy.alpha * tree.scores[static_cast<size_t>(child)]) {
        keep = true;
        loss = excess;
      }
    }
    if (keep) return {x, child, loss};
    take_residual(q.entries(), n.p);
    q.remove(x);
    ++tried;
  }
  return {own_draw(n, tried ? Purpose::kResidual : Purpose::kToken, tried), kNone, 0};
}

double entropy(const Distribution& p) {
  double h = 0;
  for (float v : p.p)
    if (v > 0) h -= v * std::log(static_cast<double>(v));
  return h;
}

// The rules that keep by an inequality alone and else let the target draw: the article's literal
// threshold and Medusa's typical acceptance. Both move mass; the expectation of `loss` is the total
// variation that they cause at this position: half of sum |kept(x) + (1 - kept) p(x) - p(x)| with
// kept(x) = q(x) where x passes. Siblings are drawn without replacement: each that is judged adds
// the same with what is left of q, and the sum's expectation is P(one of them passes) TV(q |
// passes, p), which is the variation of the set.
Choice choose_by_inequality(const Node& n) {
  const AcceptInput& in = *n.in;
  const DraftTree& tree = *in.tree;
  bool typical = in.policy.rule == Acceptance::kTypical;
  double bar = typical ? std::min<double>(in.policy.typical_epsilon,
                                          in.policy.typical_delta * std::exp(-entropy(*n.p)))
                       : 0;
  auto passes = [&](int32_t x, float draft_score) {
    return typical ? score_of(n, x) >= bar : score_of(n, x) >= in.policy.alpha * draft_score;
  };
  Choice c;
  const TokenProbability* source = nullptr;
  double left = 1;  // of q, without the siblings before
  for (int32_t child : n.children) {
    int32_t x = tree.tokens[static_cast<size_t>(child)];
    auto q = tree.q(child);
    if (q.data() != source) left = 1;
    source = q.data();
    bool kept = passes(x, tree.scores[static_cast<size_t>(child)]);
    if (q.empty()) {
      c.loss += kept ? 1.0 - n.p->at(x) : 0;
    } else {
      double mass = 0, change = 0, own = 0;
      for (const TokenProbability& e : q) {
        mass += passes(e.token, e.probability) ? e.probability : 0;
        if (e.token == x) own = e.probability;
      }
      for (const TokenProbability& e : q) {
        double k = passes(e.token, e.probability) ? e.probability : 0;
        change += std::max(0.0, k - mass * n.p->at(e.token));
      }
      // The positive part of a difference that sums to 0 is half of its |.|.
      c.loss += change / std::max(left, own);
      left -= own;
    }
    if (kept) {
      c.token = x;
      c.kept = child;
      return c;
    }
  }
  c.token = own_draw(n, Purpose::kToken, 0);
  return c;
}

Choice choose(const Node& n) {
  switch (n.in->policy.rule) {
    case Acceptance::kCoupled:
      return choose_coupled(n);
    case Acceptance::kRejection:
    case Acceptance::kThreshold:
      return choose_rejection(n);
    case Acceptance::kThresholdLiteral:
    case Acceptance::kTypical:
      return choose_by_inequality(n);
  }
  die("no such accept rule");
}

Origin origin_of(const Choice& c, bool had_children, bool at_root) {
  if (c.kept != kNone) return Origin::kDraft;
  if (had_children) return Origin::kCorrected;
  return at_root ? Origin::kTarget : Origin::kBonus;
}

void clear(AcceptResult* out) {
  out->tokens.clear();
  out->origins.clear();
  out->logprobs.clear();
  out->path.clear();
  out->argmax.clear();
  out->n_accepted = 0;
  out->losses.clear();
  out->ended = false;
  out->finite = true;
}

// p of the row behind `node`, after the rules. False when there is none.
bool read_row(const AcceptInput& in, int32_t node, int32_t n_generated, std::vector<float>* ruled,
              Distribution* p, std::span<const float>* logits) {
  std::span<const float> raw = in.logits[node + 1].span();
  if (!all_finite(raw)) return false;
  RowRules rules{in.params, in.counts, {}};
  if (n_generated < in.stop->min_new_tokens) rules.banned = in.stop->end_ids;
  *logits = raw;
  if (in.counts != nullptr || !in.params->logit_bias.empty() || !rules.banned.empty()) {
    ruled->assign(raw.begin(), raw.end());
    apply_rules(rules, *ruled);
    *logits = *ruled;
  }
  make_distribution(*in.params, *logits, p);
  return !p->p.empty();
}

void find_watched(const AcceptInput& in, std::vector<int32_t>* out) {
  if (in.watched == 0) return;
  for (int32_t n = 0; n < in.tree->size(); ++n) {
    std::span<const float> row = in.logits[n + 1].span();
    out->push_back(in.watched >> n & 1 && all_finite(row) ? argmax(row) : -1);
  }
}

}  // namespace

void accept(const AcceptInput& in, AcceptResult* out) {
  check(in.max_tokens >= 1, "a sequence without room for a token was asked for one");
  clear(out);
  find_watched(in, &out->argmax);
  const DraftTree& tree = *in.tree;
  std::vector<float> ruled;
  std::vector<int32_t> children;
  Distribution p;
  int32_t node = DraftTree::kRoot;
  double loss = 0;
  while (true) {
    int32_t n_new = static_cast<int32_t>(out->tokens.size());
    std::span<const float> logits;
    if (!read_row(in, node, in.n_generated + n_new, &ruled, &p, &logits)) {
      out->finite = false;
      break;
    }
    children.clear();
    for (int32_t i = node + 1; i < tree.size(); ++i)
      if (tree.parents[static_cast<size_t>(i)] == node) children.push_back(i);
    Choice c = choose({&in, in.position + n_new, &p, logits, children, in.loss_spent + loss});
    out->losses.push_back(static_cast<float>(c.loss));
    loss += out->losses.back();
    out->tokens.push_back(c.token);
    out->origins.push_back(origin_of(c, !children.empty(), node == DraftTree::kRoot));
    if (in.want_logprobs) out->logprobs.push_back(logprobs_of(logits, c.token, in.n_top_logprobs));
    if (in.counts != nullptr) in.counts->add_output(c.token);
    if (c.kept != kNone) {
      out->path.push_back(c.kept);
      ++out->n_accepted;
    }
    const std::vector<int32_t>& ends = in.stop->end_ids;
    out->ended = std::binary_search(ends.begin(), ends.end(), c.token);
    if (out->ended || c.kept == kNone || n_new + 1 == in.max_tokens) break;
    node = c.kept;
  }
  if (loss == 0) out->losses.clear();
  if (in.counts != nullptr)
    for (int32_t t : out->tokens) in.counts->remove_output(t);
}

}  // namespace pf
