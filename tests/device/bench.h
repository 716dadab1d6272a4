#pragma once

#include <cuda_runtime_api.h>

#include <functional>
#include <string>
#include <vector>

#include "engine/device_model.h"
#include "kernels/costs.h"
#include "model/model.h"

namespace pf {

// What a bench works on: real shapes, or ones so small that the PTX machine runs them in seconds.
struct BenchSizes {
  ModelConfig target, draft;
  std::vector<int64_t> rows;  // T of the products
  int64_t long_context = 0, tree_prefix = 0;
  std::vector<int32_t> batches;  // of the steps
  int64_t step_context = 0;
  std::vector<int32_t> draft_lengths;
  int32_t n_steps = 0, n_chosen_steps = 0, n_repeats = 0;
  size_t copied_bytes = 0;   // most of the copy that is timed
  int32_t most_copies = 64;  // of what a launch reads (copies_past_cache)
  int32_t n_block_tokens = 16;
};
BenchSizes real_sizes(), tiny_sizes();

struct Goal {
  std::string id, name;
  double value = 0, goal = 0;
  bool pass() const { return value >= goal; }
};

// Figures and goals as they come, printed at once.
class BenchReport {
 public:
  // One line of the roofline table: the time of a launch against its bytes and FLOPs.
  void kernel(const std::string& name, const std::string& shape, double seconds,
              const kernels::LaunchCost& cost);
  void line(const std::string& text);
  void goal(Goal g);
  std::string json() const;
  const std::vector<Goal>& goals() const { return goals_; }

  std::string device;
  double memory_bytes_per_s = 0;  // peak: of the data sheet, else what a copy reached
  double copied_bytes_per_s = 0;  // reached by a copy, read and write
  double tensor_flops_per_s = 0;  // of the data sheet; 0: not known

 private:
  std::vector<std::string> rows_;  // JSON objects
  std::vector<Goal> goals_;
};

// Median times of one launch of each, in turns: n_repeats groups of launches of the first, the
// second, ..., so that a clock that changes changes all of them. A launch is told which one it is
// of its own, counted from the warm-up on.
using BenchLaunch = std::function<void(int32_t i)>;
std::vector<double> times_of(const std::vector<BenchLaunch>& launches, cudaStream_t stream,
                             int32_t n_repeats);

// How many copies of `bytes` a launch must read by turns so that none is still in the L2 when its
// turn comes again: a step of a model does not find a layer's weights there either.
int32_t copies_past_cache(int64_t bytes, const BenchSizes& sizes);

void bench_peak(const BenchSizes& sizes, BenchReport* report);
void bench_products(const BenchSizes& sizes, BenchReport* report);
void bench_attention(const BenchSizes& sizes, BenchReport* report);
void bench_steps(const BenchSizes& sizes, BenchReport* report);

}  // namespace pf
