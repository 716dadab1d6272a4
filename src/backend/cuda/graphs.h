#pragma once

#include <cuda_runtime_api.h>

#include <array>
#include <cstdint>
#include <vector>

#include "backend/cuda/limits.h"

namespace pf {

// What fixes the launches of a step: their grids and the places of what they read.
struct GraphKey {
  enum class Kind : int32_t { kPass, kChains, kTrees };
  Kind kind = Kind::kPass;
  int32_t n_rows = 0;  // of a pass, or sequences of a draft; padding included
  int32_t n_layers = 0;
  int32_t n_levels = 0;                 // of a draft; of a pass: CudaHeadInput::variant
  std::array<uint8_t, 64> widths = {};  // of a tree's levels
  bool operator==(const GraphKey&) const = default;
};

// Captured launch sequences by shape; the longest unused go when there are too many.
//
// A captured launch keeps its arguments. What changes from step to step is therefore in device
// memory, at places that the key fixes. Kernels are loaded at their first launch, for which a
// capture may not wait: the first step of a shape goes launch by launch, the second is captured.
class Graphs {
 public:
  static constexpr int64_t kMaxNodes = kGraphNodes, kNodeBytes = kGraphNodeBytes, kMaxShapes = 128;

  explicit Graphs(int64_t max_nodes = kMaxNodes) : max_nodes_(max_nodes) {}
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;
  ~Graphs();

  // Does what `issue` does on the stream: by calling it, or by launching what it launched before.
  template <class F>
  void run(const GraphKey& key, cudaStream_t stream, F&& issue) {
    Entry* entry = find(key);
    if (entry == nullptr) {
      add(key, stream);
    } else if (entry->graph == nullptr && entry->n_nodes <= max_nodes_) {
      begin_capture(stream);
      issue();
      end_capture(stream, entry);
    }
    if (entry != nullptr && entry->graph != nullptr)
      launch(*entry, stream);
    else
      issue();
  }

  // Memory that the graphs of a kind rest on: they are forgotten when it has moved.
  void rest_on(GraphKey::Kind kind, std::array<const void*, 2> memory, cudaStream_t stream);

  int64_t n_nodes() const { return n_nodes_; }
  int64_t bytes() const { return max_nodes_ * kNodeBytes; }  // set aside
  // What the driver has taken for them, by what was free before and behind each of its calls. Only
  // as true as nobody else takes memory at that moment.
  int64_t taken_bytes() const { return taken_bytes_; }

 private:
  struct Entry {
    GraphKey key;
    cudaGraphExec_t graph = nullptr;  // null: met once, given up for others, or too large
    int64_t n_nodes = 0;              // 0: not known yet
    uint64_t used = 0;                // in terms of clock_
  };

  Entry* find(const GraphKey& key);
  void add(const GraphKey& key, cudaStream_t stream);
  void begin_capture(cudaStream_t stream);
  void end_capture(cudaStream_t stream, Entry* entry);
  void launch(const Entry& entry, cudaStream_t stream);
  void make_executable(Entry* entry, cudaGraph_t captured, cudaStream_t stream);
  void give_up(Entry* entry, cudaStream_t stream);

  const int64_t max_nodes_;
  int64_t n_nodes_ = 0, taken_bytes_ = 0;
  uint64_t clock_ = 0;
  std::vector<Entry> entries_;
  std::array<std::array<const void*, 2>, 3> memory_ = {};  // by kind
};

}  // namespace pf
