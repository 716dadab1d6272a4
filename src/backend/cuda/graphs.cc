#include "backend/cuda/graphs.h"

#include <algorithm>

#include "base/cuda.h"

namespace pf {
namespace {

int64_t free_bytes() {
  size_t free = 0, total = 0;
  cuda_check(cudaMemGetInfo(&free, &total));
  return static_cast<int64_t>(free);
}

}  // namespace

Graphs::~Graphs() {
  for (Entry& e : entries_)
    if (e.graph != nullptr) cuda_check(cudaGraphExecDestroy(e.graph));
}

Graphs::Entry* Graphs::find(const GraphKey& key) {
  for (Entry& e : entries_)
    if (e.key == key) {
      e.used = ++clock_;
      return &e;
    }
  return nullptr;
}

void Graphs::add(const GraphKey& key, cudaStream_t stream) {
  if (static_cast<int64_t>(entries_.size()) == kMaxShapes) {
    auto oldest = std::min_element(entries_.begin(), entries_.end(),
                                   [](const Entry& a, const Entry& b) { return a.used < b.used; });
    give_up(&*oldest, stream);
    entries_.erase(oldest);
  }
  entries_.push_back({key, nullptr, 0, ++clock_});
}

void Graphs::begin_capture(cudaStream_t stream) {
  cuda_check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
}

// Others make room for it, the longest unused first.
void Graphs::end_capture(cudaStream_t stream, Entry* entry) {
  cudaGraph_t captured = nullptr;
  cuda_check(cudaStreamEndCapture(stream, &captured));
  size_t n = 0;
  cuda_check(cudaGraphGetNodes(captured, nullptr, &n));
  entry->n_nodes = static_cast<int64_t>(n);
  if (entry->n_nodes <= max_nodes_) {
    while (n_nodes_ + entry->n_nodes > max_nodes_) {
      Entry* oldest = nullptr;
      for (Entry& e : entries_)
        if (e.graph != nullptr && (oldest == nullptr || e.used < oldest->used)) oldest = &e;
      give_up(oldest, stream);
    }
    make_executable(entry, captured, stream);
  }
  cuda_check(cudaGraphDestroy(captured));
}

void Graphs::make_executable(Entry* entry, cudaGraph_t captured, cudaStream_t stream) {
  const int64_t before = free_bytes();
  cuda_check(cudaGraphInstantiate(&entry->graph, captured, 0));
  cuda_check(cudaGraphUpload(entry->graph, stream));  // else its first launch takes the memory
  n_nodes_ += entry->n_nodes;
  taken_bytes_ += before - free_bytes();
}

void Graphs::launch(const Entry& entry, cudaStream_t stream) {
  cuda_check(cudaGraphLaunch(entry.graph, stream));
}

void Graphs::give_up(Entry* entry, cudaStream_t stream) {
  if (entry->graph == nullptr) return;
  cuda_check(cudaStreamSynchronize(stream));  // it may be running
  const int64_t before = free_bytes();
  cuda_check(cudaGraphExecDestroy(entry->graph));
  taken_bytes_ -= free_bytes() - before;
  entry->graph = nullptr;
  n_nodes_ -= entry->n_nodes;
}

void Graphs::rest_on(GraphKey::Kind kind, std::array<const void*, 2> memory, cudaStream_t stream) {
  std::array<const void*, 2>& before = memory_[static_cast<size_t>(kind)];
  if (before == memory) return;
  before = memory;
  for (Entry& e : entries_)
    if (e.key.kind == kind) give_up(&e, stream);
}

}  // namespace pf
