#pragma once

#include <span>
#include <vector>

#include "backend/backend.h"
#include "kernels/accept.h"
#include "kernels/sample_types.h"

namespace pf {

// The plain data of kernels/sample_types.h made from the structs of sampling/, for the sequences of
// one launch. Filled once per launch; the vectors keep their room.
struct DeviceRules {
  std::vector<kernels::SamplingRules> sampling;
  std::vector<kernels::AcceptRules> accept;
  std::vector<kernels::TokenCount> counts;
  std::vector<kernels::TokenValue> biases;
  std::vector<int32_t> end_ids;

  void clear();
  void add(const SamplingParams& params, const StopParams& stop, const TokenCounts* seen,
           NoiseKey key, int64_t position, int32_t n_generated);
  void add(const AcceptInput& in, int32_t first_row);
};

// The trees of one launch, node i of tree b at [b * kMaxNodes + i], q entries at [b * capacity].
struct DeviceTreesOnHost {
  std::vector<int32_t> n_nodes, n_entries, tokens, parents, depths, q_begin, q_end;
  std::vector<float> scores;
  std::vector<kernels::TokenValue> q;
  int32_t q_capacity = 0;

  void assign(std::span<const DraftTree* const> trees);
};

// What accept() said of one sequence, as the engine wants it. `top` [rows, n_top] are the
// likeliest tokens of every row of the launch, `in` what was asked.
void to_result(const kernels::Accepted& from, const AcceptInput& in, int32_t first_row,
               std::span<const kernels::TokenValue> top, int32_t n_top, int64_t vocabulary,
               AcceptResult* out);

// AcceptResult::argmax, from the laws of a sequence's rows; empty where no node is watched.
void watched_of(const AcceptInput& in, const kernels::RowLaw* laws, std::vector<int32_t>* out);

}  // namespace pf
