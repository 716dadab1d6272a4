#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "kernels/attention_blocks.h"

namespace pf {

// A GPU as its vendor's data sheet describes it, so that one can plan for it without having it.
struct DeviceModel {
  const char* name;   // of --device-model
  const char* title;  // as the vendor calls it
  const char* source;
  double memory_gib;          // what the driver shows of it
  double memory_bytes_per_s;  // peak of the HBM (GDDR)
  double tensor_flops_per_s;  // dense, FP16 in, FP32 sums
  double scalar_flops_per_s;  // FP32 outside of the tensor cores
  int32_t n_multiprocessors;
  int64_t shared_kib;       // of each of them
  double link_bytes_per_s;  // from the other devices of a host, one way: NVLink, or PCIe
  // Not in any data sheet. Between two kernels of one graph; from the host's launch of a kernel to
  // its start where the host does not run ahead; a copy to the host and the wait for it; the least
  // that a gather between devices takes.
  double graph_gap_us, launch_us, round_trip_us, exchange_us;

  kernels::Multiprocessors multiprocessors() const { return {n_multiprocessors, shared_kib << 10}; }
  // What a process finds free: the context of the driver and the kernels' code take their share.
  int64_t free_bytes() const;
};

const std::vector<DeviceModel>& device_models();
// The error lists the names.
Result<const DeviceModel*> find_device_model(const std::string& name);

}  // namespace pf
