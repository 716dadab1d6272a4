#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <tuple>

#include "kernels/attention_uploaded.h"
#include "kernels/attention_values.h"
#include "kernels/bits.h"
#include "kernels/device_array.h"

namespace pf::kernels {

struct Shape {
  int32_t H = 4, G = 2, D = 64, P = 16, window = 0, first = 0;
};

// One sequence of a step: `fed` tokens are in the cache already, `plain` are fed now, then a tree.
struct Member {
  std::vector<Token> fed, plain, nodes;
  std::vector<int32_t> parents;  // of the nodes; -1: the last plain token
  int32_t shares = -1;           // a member before it whose blocks hold its first `shared` blocks
  int32_t shared = 0;
};

inline std::vector<Token> tokens(uint32_t name, size_t from, size_t to) {
  std::vector<Token> out;
  for (size_t i = from; i < to; ++i) out.push_back(name * 100000 + static_cast<Token>(i));
  return out;
}

// A row's outputs, and what its parts hold, in float, whose bits no rounding hides.
template <class T>
struct Row {
  std::vector<T> out;                              // [H, D]
  std::vector<std::vector<float>> splits, groups;  // each [H, 2 + D]: max, sum, values
};
template <class T>
using Rows = std::map<Token, Row<T>>;

enum Kind { kQuery, kKey, kValue };

// The rows of a step with their keys in a scrambled plane in which all else is NaN.
template <class T>
class Scene {
 public:
  // `constants`: tokens whose query or key has one value everywhere.
  using Constants = std::map<std::pair<Token, int32_t>, float>;
  // What keys and values are held in: T, int8, or T with the numbers that int8 comes to.
  enum class Held { kPlain, kInt8, kAsInt8 };
  Scene(Shape shape, std::vector<Member> members, Constants constants = {},
        Held held = Held::kPlain)
      : shape_(shape), members_(std::move(members)), constants_(std::move(constants)), held_(held) {
    int32_t n_blocks = 0;
    for (const Member& m : members_) n_blocks += blocks_of(m);
    plane_ = {nullptr, 1, n_blocks + 1, shape.G, shape.P, shape.D};
    kv_.assign(static_cast<size_t>(plane_.size()), round_to<T>(NAN));
    if (held_ == Held::kInt8) {
      int8_.assign(static_cast<size_t>(plane_.size()), 127);
      scales_.assign(static_cast<size_t>(plane_.n_scales()), NAN);
    }
    std::vector<int32_t> free;
    for (int32_t b = 0; b < n_blocks; ++b) free.push_back(b);
    std::shuffle(free.begin(), free.end(), std::mt19937(5));
    for (const Member& m : members_) add(m, free);
  }

  int32_t n_rows() const { return static_cast<int32_t>(positions_.size()); }
  const std::vector<Token>& row_tokens() const { return row_tokens_; }
  // `known`: the plan sees the tree; else only that rows are nodes, as where the device grows it.
  AttentionRows rows(bool known = true) {
    segments_.clear();
    planned_masks_ = masks_;
    for (size_t s = 0; s < members_.size() && !known; ++s)
      for (size_t i = 0; i < members_[s].nodes.size(); ++i)
        planned_masks_[size_t(first_row_[s]) + members_[s].plain.size() + i] = uint64_t{1} << i;
    for (size_t s = 0; s < members_.size(); ++s)
      segments_.push_back({first_row_[s], n_rows_[s], tables_[s]});
    return {positions_, visible_, planned_masks_, segments_};
  }
  AttentionLimits limits(int32_t max_parts, int32_t min_blocks) const {
    return {shape_.H, shape_.G, shape_.P, shape_.window, max_parts, min_blocks, shape_.first};
  }

  // The output of every row, by its token: what the kernels make of it.
  Rows<T> run(int32_t max_parts, int32_t min_blocks, int32_t n_blocks = 3, bool known = true);

  std::vector<T> replay(int32_t max_parts, int32_t min_blocks, int32_t then_min_blocks);

  // The definition, of one row and head: output and, for the tolerance, the weighted sum of |v|.
  std::pair<std::vector<double>, std::vector<double>> expected(int32_t row, int32_t head) const {
    const auto& keys = seen_[static_cast<size_t>(row)];
    int32_t g = head / (shape_.H / shape_.G);
    const auto& q = value_of(keys.back(), kQuery, head);
    size_t D = q.size(), begin = shape_.window > 0 && keys.size() > size_t(shape_.window)
                                     ? keys.size() - size_t(shape_.window)
                                     : 0;
    begin = std::max(begin, size_t(shape_.first));
    std::vector<double> out(D), mass(D);
    double sum = 0;
    for (size_t s = begin; s < keys.size(); ++s) {
      const auto &k = value_of(keys[s], kKey, g), &v = value_of(keys[s], kValue, g);
      double score = 0;
      for (size_t d = 0; d < D; ++d) score += double(to_float(q[d])) * double(to_float(k[d]));
      double p = std::exp(score * double(scale()));
      sum += p;
      for (size_t d = 0; d < D; ++d)
        out[d] += p * double(to_float(v[d])), mass[d] += p * std::abs(double(to_float(v[d])));
    }
    for (size_t d = 0; d < D; ++d) out[d] /= sum, mass[d] /= sum;
    return {out, mass};
  }
  float scale() const { return 1 / std::sqrt(static_cast<float>(shape_.D)); }

 private:
  std::vector<T> queries() const;  // [rows, H, D]
  const std::vector<T>& value_of(Token token, int32_t kind, int32_t head) const {
    std::vector<T>& value = values_[{token, kind, head}];  // made once: the oracle asks often
    if (!value.empty()) return value;
    auto it = constants_.find({token, kind});
    value = it == constants_.end() ? vector_of<T>(token, kind, head, shape_.D)
                                   : std::vector<T>(size_t(shape_.D), round_to<T>(it->second));
    if (kind != kQuery && held_ != Held::kPlain) {
      auto [q, row_scale] = int8_of(token, kind, head);
      for (size_t d = 0; d < value.size(); ++d) value[d] = round_to<T>(float(q[d]) * row_scale);
    }
    return value;
  }
  Int8Row int8_of(Token token, int32_t kind, int32_t head) const {
    return kernels::int8_of(vector_of<T>(token, kind, head, shape_.D));
  }
  int32_t blocks_of(const Member& m) const {
    size_t slots = m.fed.size() + m.plain.size() + m.nodes.size();
    return static_cast<int32_t>(slots + size_t(shape_.P) - 1) / shape_.P - m.shared;
  }
  void add(const Member& m, std::vector<int32_t>& free);
  void store(Token token, int32_t slot, const std::vector<int32_t>& table) {
    for (int32_t which = 0; which < 2; ++which)
      for (int32_t g = 0; g < shape_.G; ++g) {
        const auto& v = value_of(token, kKey + which, g);
        int64_t tile = (int64_t(table[size_t(slot / shape_.P)]) * 2 + which) * shape_.G + g;
        const int64_t row = tile * shape_.P + slot % shape_.P;
        std::copy(v.begin(), v.end(), kv_.begin() + row * shape_.D);
        if (held_ != Held::kInt8) continue;
        auto [q, row_scale] = int8_of(token, kKey + which, g);
        std::copy(q.begin(), q.end(), int8_.begin() + row * shape_.D);
        scales_[size_t(row)] = row_scale;
      }
  }

  Shape shape_;
  std::vector<Member> members_;
  Constants constants_;
  Held held_;
  KvPlane<T> plane_;
  std::vector<T> kv_;
  std::vector<int8_t> int8_;
  std::vector<float> scales_;
  std::vector<std::vector<int32_t>> tables_;
  std::vector<int32_t> positions_, visible_, first_row_, n_rows_;
  std::vector<uint64_t> masks_, planned_masks_;
  std::vector<Token> row_tokens_;
  std::vector<std::vector<Token>> seen_;  // by row, in order of position
  std::vector<AttentionSegment> segments_;
  mutable std::map<std::tuple<Token, int32_t, int32_t>, std::vector<T>> values_;
};

template <class T>
void Scene<T>::add(const Member& m, std::vector<int32_t>& free) {
  std::vector<int32_t> table;
  for (int32_t b = 0; b < m.shared; ++b) table.push_back(tables_[size_t(m.shares)][size_t(b)]);
  for (int32_t n = blocks_of(m); n > 0; --n) table.push_back(free.back()), free.pop_back();
  std::vector<Token> path = m.fed;
  path.insert(path.end(), m.plain.begin(), m.plain.end());
  int32_t base = static_cast<int32_t>(m.fed.size()), n_plain = static_cast<int32_t>(path.size());
  first_row_.push_back(n_rows());
  for (int32_t s = 0; s < n_plain; ++s) store(path[size_t(s)], s, table);
  for (int32_t s = base; s < n_plain; ++s) {
    positions_.push_back(s);
    visible_.push_back(s + 1);
    masks_.push_back(0);
    row_tokens_.push_back(path[size_t(s)]);
    seen_.emplace_back(path.begin(), path.begin() + s + 1);
  }
  size_t first_node = positions_.size();
  for (size_t i = 0; i < m.nodes.size(); ++i) {
    store(m.nodes[i], n_plain + static_cast<int32_t>(i), table);
    int32_t parent = m.parents[i];
    size_t above = parent < 0 ? first_node - 1 : first_node + size_t(parent);
    positions_.push_back(positions_[above] + 1);
    visible_.push_back(n_plain);
    masks_.push_back((parent < 0 ? 0 : masks_[above]) | uint64_t{1} << i);
    row_tokens_.push_back(m.nodes[i]);
    seen_.push_back(seen_[above]);
    seen_.back().push_back(m.nodes[i]);
  }
  n_rows_.push_back(n_rows() - first_row_.back());
  tables_.push_back(std::move(table));
}

template <class T>
std::vector<T> Scene<T>::queries() const {
  std::vector<T> queries;
  for (Token t : row_tokens_)
    for (int32_t h = 0; h < shape_.H; ++h) {
      const auto& q = value_of(t, kQuery, h);
      queries.insert(queries.end(), q.begin(), q.end());
    }
  return queries;
}

template <class T>
Rows<T> Scene<T>::run(int32_t max_parts, int32_t min_blocks, int32_t n_blocks, bool known) {
  Rows<T> rows_by_token;
  const int64_t H = shape_.H, D = shape_.D, n = n_rows();
  DeviceArray<T> q(queries()), kv(kv_), out(size_t(n * H * D));
  DeviceArray<int8_t> int8(int8_);
  DeviceArray<float> scales(scales_);
  DeviceArray<int32_t> positions(positions_);
  DeviceArray<uint64_t> masks(masks_);
  DeviceArray<float> values(std::vector<float>(size_t(max_parts * H * D), NAN)),
      states(std::vector<float>(size_t(max_parts * H * 2), NAN));
  DeviceArray<uint32_t> tickets(std::vector<uint32_t>(size_t(2 * max_parts * shape_.G)));
  if (held_ == Held::kInt8)
    plane_.int8 = int8.data(), plane_.scales = scales.data();
  else
    plane_.data = kv.data();
  AttentionPlan plan(limits(max_parts, min_blocks));
  for (int32_t first = 0; first < n;) {
    int32_t end = plan.build(rows(known), first);
    Uploaded uploaded(plan);
    AttentionWork work = uploaded.work(positions, masks);
    work.first_row = first;
    AttentionParts parts{values.data(), states.data(), tickets.data(), max_parts};
    attention(View<T, 3>{out.data() + first * H * D, {end - first, H, D}}, parts,
              View<const T, 3>{q.data(), {n, H, D}}, plane_, work, shape_.window, scale(), n_blocks,
              nullptr);
    for (uint32_t ticket : tickets.host()) EXPECT_EQ(ticket, 0u);
    std::vector<float> all_values = values.host(), all_states = states.host();
    for (int32_t r = first; r < end; ++r) {
      Row<T>& row = rows_by_token[row_tokens_[size_t(r)]];
      auto& into = plan.unit_tokens() == kSplitTokens ? row.splits : row.groups;
      const AttentionRowParts& at = plan.row_parts()[size_t(r - first)];
      for (int64_t part = at.first; part < at.first + at.n; ++part) {
        std::vector<float>& v = into.emplace_back();
        for (int64_t h = part * H; h < (part + 1) * H; ++h) {
          v.insert(v.end(), &all_states[size_t(2 * h)], &all_states[size_t(2 * h)] + 2);
          v.insert(v.end(), &all_values[size_t(h * D)], &all_values[size_t(h * D)] + D);
        }
      }
    }
    first = end;
  }
  std::vector<T> all = out.host();
  for (int64_t r = 0; r < n; ++r)
    rows_by_token[row_tokens_[size_t(r)]].out =
        std::vector<T>(all.begin() + r * H * D, all.begin() + (r + 1) * H * D);
  return rows_by_token;
}

// The outputs of a graph captured with the first plan and launched with the second.
template <class T>
std::vector<T> Scene<T>::replay(int32_t max_parts, int32_t min_blocks, int32_t then_min_blocks) {
  const int64_t H = shape_.H, D = shape_.D, n = n_rows();
  DeviceArray<T> q(queries()), kv(kv_), out(size_t(n * H * D));
  DeviceArray<int32_t> positions(positions_);
  DeviceArray<uint64_t> masks(masks_);
  DeviceArray<float> values(size_t(max_parts * H * D)), states(size_t(max_parts * H * 2));
  DeviceArray<uint32_t> tickets(std::vector<uint32_t>(size_t(2 * max_parts * shape_.G)));
  plane_.data = kv.data();
  AttentionPlan first(limits(max_parts, min_blocks)), second(limits(max_parts, then_min_blocks));
  check(first.build(rows(), 0) == n && second.build(rows(), 0) == n, "the rows need one plan");
  Uploaded uploaded(first, 200);
  AttentionParts parts{values.data(), states.data(), tickets.data(), max_parts};
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t exec;
  cuda_check(cudaStreamCreate(&stream));
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal));
  AttentionWork work = uploaded.work(positions, masks);
  attention(View<T, 3>{out.data(), {n, H, D}}, parts, View<const T, 3>{q.data(), {n, H, D}}, plane_,
            work, shape_.window, scale(), 5, stream);
  cuda_check(cudaStreamEndCapture(stream, &graph));
  cuda_check(cudaGraphInstantiate(&exec, graph, 0));
  cuda_check(cudaGraphLaunch(exec, stream));  // with the first one: the tickets serve again
  cuda_check(cudaStreamSynchronize(stream));
  uploaded.upload(second);
  cuda_check(cudaMemset(out.data(), 0xff, size_t(n * H * D) * sizeof(T)));
  cuda_check(cudaGraphLaunch(exec, stream));
  cuda_check(cudaStreamSynchronize(stream));
  cuda_check(cudaGraphExecDestroy(exec));
  cuda_check(cudaGraphDestroy(graph));
  cuda_check(cudaStreamDestroy(stream));
  return out.host();
}

}  // namespace pf::kernels
