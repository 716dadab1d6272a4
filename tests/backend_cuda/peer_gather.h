#pragma once

#include <memory>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/cuda.h"
#include "ptxvm/ptxvm.h"

namespace pf {

// The gather of backend/cuda/collective.h between devices of the PTX machine: copies from device to
// device, in streams that wait for each other as NCCL's do.
class PeerGather {
 public:
  explicit PeerGather(int n) : written_(static_cast<size_t>(n)), read_(static_cast<size_t>(n)) {
    for (int d = 0; d < n; ++d)
      for (auto* events : {&written_, &read_})
        on(d, [&] {
          cuda_check(
              cudaEventCreateWithFlags(&(*events)[static_cast<size_t>(d)], cudaEventDisableTiming));
        });
  }
  PeerGather(const PeerGather&) = delete;
  ~PeerGather() {
    for (auto* events : {&written_, &read_})
      for (cudaEvent_t e : *events) cuda_check(cudaEventDestroy(e));
  }

  void run(std::span<const GatherSide> by_rank, size_t bytes) {
    const auto n = static_cast<int>(by_rank.size());
    ++n_calls;
    n_bytes += static_cast<int64_t>(bytes);
    record_all(by_rank, written_);
    for (int d = 0; d < n; ++d)
      on(d, [&] {
        const GatherSide& side = by_rank[static_cast<size_t>(d)];
        for (int r = 0; r < n; ++r) {
          const auto source = static_cast<size_t>(r);
          cuda_check(cudaStreamWaitEvent(side.stream, written_[source], 0));
          cuda_check(cudaMemcpyPeerAsync(static_cast<std::byte*>(side.to) + source * bytes, d,
                                         by_rank[source].from, r, bytes, side.stream));
        }
      });
    record_all(by_rank, read_);
    for (int d = 0; d < n; ++d)
      on(d, [&] {
        for (cudaEvent_t e : read_)
          cuda_check(cudaStreamWaitEvent(by_rank[static_cast<size_t>(d)].stream, e, 0));
      });
  }

  int64_t n_calls = 0, n_bytes = 0;  // bytes of one rank's side

 private:
  template <class F>
  static void on(int device, F&& f) {
    int present = 0;
    cuda_check(cudaGetDevice(&present));
    cuda_check(cudaSetDevice(device));
    f();
    cuda_check(cudaSetDevice(present));
  }
  static void record_all(std::span<const GatherSide> by_rank, std::span<const cudaEvent_t> events) {
    for (size_t r = 0; r < by_rank.size(); ++r)
      on(static_cast<int>(r), [&] { cuda_check(cudaEventRecord(events[r], by_rank[r].stream)); });
  }

  std::vector<cudaEvent_t> written_, read_;
};

// The options for a machine of n devices that share the model.
inline CudaOptions on_devices(int32_t n, CudaOptions o = {},
                              std::shared_ptr<PeerGather> gather = nullptr) {
  ptxvm::settings().n_devices = std::max(n, ptxvm::settings().n_devices);
  if (n == 1) return o;
  if (!gather) gather = std::make_shared<PeerGather>(n);
  o.n_devices = n;
  o.gather = [gather](std::span<const GatherSide> by_rank, size_t bytes) {
    gather->run(by_rank, bytes);
  };
  return o;
}

}  // namespace pf
