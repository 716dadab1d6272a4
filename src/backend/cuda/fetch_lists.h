#pragma once

#include <span>
#include <vector>

#include "backend/cuda/device_memory.h"
#include "kernels/sample_types.h"
#include "sampling/draft_tree.h"

namespace pf {

// What list_candidates wrote for out.size() rows, brought to the host in one wait. `host` grows to
// what is needed.
inline void fetch_lists(const DeviceBuffer<kernels::TokenValue>& candidates,
                        const DeviceBuffer<int32_t>& n_listed, int32_t top_n, cudaStream_t stream,
                        PinnedMemory* host, std::span<std::vector<TokenProbability>> out) {
  if (out.empty()) return;
  const size_t list_bytes = out.size() * static_cast<size_t>(top_n) * sizeof(kernels::TokenValue),
               n_bytes = out.size() * sizeof(int32_t);
  make_room(list_bytes + n_bytes, host);
  cuda_check(
      cudaMemcpyAsync(host->data(), candidates.data(), list_bytes, cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaMemcpyAsync(host->data() + list_bytes, n_listed.data(), n_bytes,
                             cudaMemcpyDeviceToHost, stream));
  cuda_check(cudaStreamSynchronize(stream));
  const auto* tokens = reinterpret_cast<const kernels::TokenValue*>(host->data());
  const auto* n = reinterpret_cast<const int32_t*>(host->data() + list_bytes);
  for (size_t r = 0; r < out.size(); ++r, tokens += top_n) {
    out[r].clear();
    for (int32_t i = 0; i < n[r]; ++i) out[r].push_back({tokens[i].token, tokens[i].value});
  }
}

}  // namespace pf
