#include "engine/device_model.h"

namespace pf {
namespace {

constexpr double kContextGib = 0.5;  // of driver and code; an estimate, doctor shows the real one

constexpr double kGap = 1.2, kLaunch = 3.0, kRoundTrip = 10.0,
                 kExchange = 10.0;  // us; estimates for all of them

}  // namespace

int64_t DeviceModel::free_bytes() const {
  return static_cast<int64_t>((memory_gib - kContextGib) * (int64_t{1} << 30));
}

const std::vector<DeviceModel>& device_models() {
  static const std::vector<DeviceModel> models = {
      {"a100-40", "NVIDIA A100 40GB", "NVIDIA A100 Tensor Core GPU data sheet, 40GB SXM/PCIe", 39.6,
       1555e9, 312e12, 19.5e12, 108, 40, 300e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"a100-80", "NVIDIA A100 80GB SXM", "NVIDIA A100 Tensor Core GPU data sheet, 80GB SXM", 79.3,
       2039e9, 312e12, 19.5e12, 108, 40, 300e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"a10g", "NVIDIA A10G", "NVIDIA A10G data sheet (AWS G5)", 22.0, 600e9, 70e12, 35e12, 80, 6,
       32e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"h100", "NVIDIA H100 80GB SXM", "NVIDIA H100 Tensor Core GPU data sheet, SXM", 79.1, 3350e9,
       989e12, 67e12, 132, 50, 450e9, kGap, kLaunch, kRoundTrip, kExchange},
      {"h200", "NVIDIA H200 141GB SXM", "NVIDIA H200 Tensor Core GPU data sheet, SXM", 139.8,
       4800e9, 989e12, 67e12, 132, 50, 450e9, kGap, kLaunch, kRoundTrip, kExchange},
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
