#include "engine/estimate.h"

#include <algorithm>
#include <cmath>

namespace pf {
namespace {

// One multiprocessor can ask for about twice its share of the memory's bandwidth.
constexpr double kBlocksForBandwidth = 0.5;  // of the multiprocessors

double seconds_of(const kernels::LaunchCost& c, bool in_graph, int32_t n_devices,
                  const DeviceModel& d, const RooflineShares& s) {
  const double blocks = static_cast<double>(c.grid[0] * c.grid[1] * c.grid[2]);
  const double busy = std::min(1.0, blocks / (kBlocksForBandwidth * d.n_multiprocessors));
  const double memory = static_cast<double>(c.bytes()) / (d.memory_bytes_per_s * s.memory * busy);
  const double peak =
      c.tensor_cores ? d.tensor_flops_per_s * s.tensor : d.scalar_flops_per_s * s.scalar;
  // One by one, the host has to issue each, for every device; it runs ahead where the kernels are
  // longer.
  const double least = in_graph ? s.smallest_kernel_us : n_devices * d.launch_us;
  return std::max({memory, c.flops / peak, 1e-6 * least}) + 1e-6 * d.graph_gap_us;
}

// The block tables of a load: block i < shared / P is the same for all.
std::vector<std::vector<BlockId>> tables_of(const Load& load, int64_t n_tokens, int32_t P) {
  const auto n_blocks = static_cast<size_t>((n_tokens + P - 1) / P);
  const auto shared = static_cast<size_t>(load.shared_prefix / P);
  std::vector<std::vector<BlockId>> tables;
  BlockId next = static_cast<BlockId>(shared);
  for (int32_t s = 0; s < load.n_sequences; ++s) {
    tables.emplace_back(n_blocks);
    for (size_t i = 0; i < n_blocks; ++i)
      tables.back()[i] = i < shared ? static_cast<BlockId>(i) : next++;
  }
  return tables;
}

DraftTree chain_of(int32_t K) {
  DraftTree tree;
  for (int32_t i = 0; i < K; ++i) tree.add_one_hot(0, i - 1, 1.0f);
  return tree;
}

}  // namespace

Work estimate_work(const LaunchList& list, const DeviceModel& device,
                   const RooflineShares& shares) {
  Work w;
  for (size_t i = 0; i < list.launches().size(); ++i) {
    const kernels::LaunchCost& c = list.launches()[i];
    w.seconds += seconds_of(c, list.in_graph()[i], list.n_devices(), device, shares);
    w.bytes += c.bytes();
    w.flops += c.flops;
  }
  w.n_launches = static_cast<int64_t>(list.launches().size());
  w.seconds += 1e-6 * (static_cast<double>(list.n_copies()) * device.launch_us +
                       static_cast<double>(list.n_waits()) * device.round_trip_us);
  w.n_exchanges = list.n_exchanges();
  w.exchanged_bytes = list.exchanged_bytes();
  w.seconds += 1e-6 * static_cast<double>(w.n_exchanges) * device.exchange_us +
               static_cast<double>(w.exchanged_bytes) / (device.link_bytes_per_s * shares.link);
  return w;
}

double expected_tokens(double acceptance, int32_t K) {
  if (acceptance >= 1) return K + 1;
  return (1 - std::pow(acceptance, K + 1)) / (1 - acceptance);
}

double StepEstimate::tokens_per_second(const Load& load, double acceptance) const {
  return load.n_sequences * expected_tokens(acceptance, K) / seconds();
}

StepEstimator::StepEstimator(const EngineOptions& options,
                             const std::vector<ResidentModel>& residents, const DeviceModel& device,
                             const RooflineShares& shares)
    : device_(device),
      shares_(shares),
      block_tokens_(options.block_size),
      max_rows_(options.max_num_batched_tokens),
      int4_drafts_(options.draft_quantization == "int4"),
      width_(residents[0].model->config.width),
      vocabulary_(residents[0].model->config.vocabulary_size) {
  for (const ResidentModel& r : residents) {
    if (r.device != Device::kCuda || r.model->takes_hidden()) {
      not_estimated_.push_back(r.name + (r.device == Device::kCuda ? "" : " on the CPU"));
      continue;
    }
    if (!lists_.empty()) drafts_.push_back(r.name);
    lists_.emplace_back(*r.model, r.embedding_of, cuda_options(options, r),
                        device.n_multiprocessors);
  }
}

StepEstimate StepEstimator::verified(const Load& load, int32_t K) {
  StepEstimate e;
  e.K = K;
  const auto tables = tables_of(load, load.context + K + 1, block_tokens_);
  static constexpr int32_t kToken[1] = {0};
  const DraftTree chain = chain_of(K);
  Batch batch;
  for (const std::vector<BlockId>& table : tables)
    batch.add(kToken, load.context - 1, &chain, table, Batch::Logits::kLast);
  LaunchList& target = lists_[0];
  target.clear();
  target.forward(batch);
  target.accept(batch);
  e.target = estimate_work(target, device_, shares_);
  e.host_seconds = 1e-6 * (shares_.host_step_us + shares_.host_sequence_us * load.n_sequences);
  return e;
}

StepEstimate StepEstimator::estimate(const Load& load, int32_t K, size_t draft) {
  StepEstimate e = verified(load, K);
  if (K == 0) return e;
  check(draft < drafts_.size(), "an estimate with drafts needs a draft model");
  const auto tables = tables_of(load, load.context + K + 1, block_tokens_);
  static constexpr int32_t kToken[1] = {0};
  std::vector<ProposeJob> jobs;
  for (const std::vector<BlockId>& table : tables) {
    // Mostly one token is new to the draft, two where all of it was kept.
    ProposeJob job;
    job.committed = kToken;
    job.base = load.context - 1;
    job.blocks = table;
    job.n_draft = K;
    jobs.push_back(job);
  }
  LaunchList& list = lists_[1 + draft];
  list.clear();
  list.propose(jobs);
  e.draft = estimate_work(list, device_, shares_);
  return e;
}

// As CudaHeads launches them (backend/cuda/cuda_heads.cc): none of it in a graph.
StepEstimate StepEstimator::estimate_heads(const Load& load, int32_t n_heads) {
  using namespace kernels;
  StepEstimate e = verified(load, n_heads);
  const int64_t B = load.n_sequences, E = width_, V = vocabulary_;
  auto product = [&](int64_t N) {
    const OutputBytes out{.written = 4 * B * N};
    return int4_drafts_ ? gemm_int4_cost(B, {N, E, 32, true}, out) : gemm_fp16_cost(B, N, E, out);
  };
  const int64_t n_listed = CudaOptions().draft_top_n;
  std::vector<LaunchCost> launches = {gather_rows_cost(B, E, 2, 2)};
  for (int32_t h = 0; h < n_heads; ++h)
    for (const LaunchCost& c : {product(E), gather_rows_cost(B, E, 4, 2), product(V),
                                slice_cost(B, V, n_listed), merge_cost(B, V, n_listed)})
      launches.push_back(c);
  for (const LaunchCost& c : launches) {
    e.draft.seconds += seconds_of(c, false, 1, device_, shares_);
    e.draft.bytes += c.bytes();
    e.draft.flops += c.flops;
  }
  e.draft.n_launches = static_cast<int64_t>(launches.size());
  e.draft.seconds += 1e-6 * (device_.launch_us + device_.round_trip_us);  // states, and the lists
  return e;
}

void StepEstimator::run_prompt(int64_t n_tokens, LaunchList* list, Batch* last) const {
  const auto tables = tables_of({1, n_tokens, 0}, n_tokens, block_tokens_);
  const std::vector<int32_t> tokens(static_cast<size_t>(max_rows_), 0);
  list->clear();
  for (int64_t at = 0; at < n_tokens; at += max_rows_) {
    const auto n = static_cast<size_t>(std::min<int64_t>(max_rows_, n_tokens - at));
    const bool ends = at + max_rows_ >= n_tokens;
    last->clear();
    last->add(std::span(tokens).first(n), at, nullptr, tables[0],
              ends ? Batch::Logits::kLast : Batch::Logits::kNone);
    list->forward(*last);
  }
}

Work StepEstimator::prompt(int64_t n_tokens) {
  Batch last;
  run_prompt(n_tokens, &lists_[0], &last);
  lists_[0].accept(last);
  return estimate_work(lists_[0], device_, shares_);
}

Work StepEstimator::draft_prompt(int64_t n_tokens, size_t draft) {
  check(draft < drafts_.size(), "an estimate with drafts needs a draft model");
  Batch last;
  run_prompt(n_tokens, &lists_[1 + draft], &last);
  return estimate_work(lists_[1 + draft], device_, shares_);
}

}  // namespace pf
