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
    : device_(device), shares_(shares), block_tokens_(options.block_size) {
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

StepEstimate StepEstimator::estimate(const Load& load, int32_t K, size_t draft) {
  StepEstimate e;
  e.K = K;
  const auto tables = tables_of(load, load.context + K + 1, block_tokens_);
  static constexpr int32_t kToken[2] = {0, 0};
  const DraftTree chain = chain_of(K);
  Batch batch;
  std::vector<ProposeJob> jobs;
  for (const std::vector<BlockId>& table : tables) {
    batch.add({kToken, 1}, load.context - 1, &chain, table, Batch::Logits::kLast);
    // Mostly one token is new to the draft, two where all of it was kept.
    ProposeJob job;
    job.committed = {kToken, 1};
    job.base = load.context - 1;
    job.blocks = table;
    job.n_draft = K;
    jobs.push_back(job);
  }
  LaunchList& target = lists_[0];
  target.clear();
  target.forward(batch);
  target.accept(batch);
  e.target = estimate_work(target, device_, shares_);
  if (K > 0) {
    check(draft < drafts_.size(), "an estimate with drafts needs a draft model");
    LaunchList& list = lists_[1 + draft];
    list.clear();
    list.propose(jobs);
    e.draft = estimate_work(list, device_, shares_);
  }
  e.host_seconds = 1e-6 * (shares_.host_step_us + shares_.host_sequence_us * load.n_sequences);
  return e;
}

}  // namespace pf
