#include "engine/estimate.h"

#include <algorithm>
#include <cmath>

#include "engine/head_rooms.h"

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

// Heads for n positions to come, each with one block.
Model medusa_shapes(const Model& target, int32_t n) {
  const int64_t E = target.config.width, V = target.config.vocabulary_size;
  Model m;
  m.config = target.config;
  m.head_kind = HeadKind::kMedusa;
  const Tensor block{"", TensorType::kBF16, {E, E}, {}}, out{"", TensorType::kBF16, {V, E}, {}};
  m.medusa.assign(static_cast<size_t>(n), MedusaHead{{{block, {}}}, out});
  return m;
}

// The options of such heads, as drafts of this target.
CudaOptions heads_options(const EngineOptions& options, const ResidentModel& target) {
  ResidentModel heads = target;
  heads.weights = options.draft_quantization != "none" ? options.draft_quantization : heads.numbers;
  heads.head_rows = draft_head_rows(options, medusa_shapes(*target.model, 1));
  heads.judges = heads.keep_hidden = false;
  heads.tap_layers.clear();
  heads.n_devices = 1;
  return cuda_options(options, heads);
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
      target_(*residents[0].model),
      heads_options_(heads_options(options, residents[0])) {
  for (const ResidentModel& r : residents) {
    if (r.device != Device::kCuda || r.model->takes_hidden()) {
      not_estimated_.push_back(r.name + (r.device == Device::kCuda ? "" : " on the CPU"));
      continue;
    }
    if (!lists_.empty()) drafts_.push_back(r.name);
    lists_.emplace_back(*r.model, r.embedding_of, cuda_options(options, r),
                        device.multiprocessors());
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

StepEstimate StepEstimator::estimate_heads(const Load& load, int32_t n_heads) {
  StepEstimate e = verified(load, n_heads);
  const Model heads = medusa_shapes(target_, n_heads);
  LaunchList list(target_, nullptr, heads_options_, device_.multiprocessors());
  list.propose_heads(heads, load.n_sequences, n_heads);
  e.draft = estimate_work(list, device_, shares_);
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
