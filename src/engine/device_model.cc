#include "engine/device_model.h"

namespace pf {
namespace {

constexpr double kContextGib = 0.5;  // of driver and code; an estimate, doctor shows the real one

// Estimates for all of them, in no data sheet.
constexpr double kGap = 1.2, kLaunch = 3.0, kRoundTrip = 10.0, kExchange = 10.0;  // us

}  // namespace

int64_t DeviceModel::free_bytes() const {
  return static_cast<int64_t>((memory_gib - kContextGib) * (int64_t{1} << 30));
}

// Bandwidth and FLOP/s: the sheets named, dense (the sheets' larger figure of Hopper is for weights
// half of which are zero). Multiprocessors: NVIDIA's architecture white papers of A100 and H100,
// and the A10G's tensor cores over four; their shared memory: the CUDA C++ Programming Guide's
// table of compute capabilities. Memory: what the runtime reports, which is below the name's
// gigabytes.
const std::vector<DeviceModel>& device_models() {
  static const std::vector<DeviceModel> models = {
      // 42,405,855,232 bytes by deviceQuery.
      {"a100-40", "NVIDIA A100 40GB",
       "NVIDIA A100 Tensor Core GPU data sheet (1758950), 40GB PCIe and SXM", 39.5, 1555e9, 312e12,
       19.5e12, 108, 164, 300e9, kGap, kLaunch, kRoundTrip, kExchange},
      // 79.14 to 79.25 GiB by PyTorch; the PCIe card has 1,935 GB/s.
      {"a100-80", "NVIDIA A100 80GB SXM",
       "NVIDIA A100 Tensor Core GPU data sheet (1758950), 80GB SXM", 79.1, 2039e9, 312e12, 19.5e12,
       108, 164, 300e9, kGap, kLaunch, kRoundTrip, kExchange},
      // Not an A10, which has 72 multiprocessors and 125 TFLOP/s of tensor cores. Only the memory
      // was found in a second place.
      {"a10g", "NVIDIA A10G", "NVIDIA A10G data sheet (AWS, G5 instances)", 22.0, 600e9, 70e12,
       35e12, 80, 100, 32e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"h100", "NVIDIA H100 80GB SXM", "NVIDIA H100 Tensor Core GPU data sheet, SXM5", 79.1, 3350e9,
       989.4e12, 66.9e12, 132, 228, 450e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"h200", "NVIDIA H200 141GB SXM", "NVIDIA H200 Tensor Core GPU data sheet, SXM", 139.8,
       4800e9, 989.4e12, 66.9e12, 132, 228, 450e9, kGap, kLaunch, kRoundTrip, kExchange},
  };
  return models;
}

Result<const DeviceModel*> find_device_model(const std::string& name) {
  std::string all;
  for (const DeviceModel& m : device_models()) {
    if (name == m.name) return &m;
    all += (all.empty() ? "" : ", ") + std::string(m.name);
  }
  return invalid("--device-model " + name + ": no such device; known: " + all);
}

}  // namespace pf
