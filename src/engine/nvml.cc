#include "engine/nvml.h"

#include <string>

#include "base/shared_library.h"

namespace pf {
namespace {

constexpr int64_t kPeriod_us = 100'000;

Status unavailable(const std::string& why) { return Status(Code::kUnavailable, why); }

}  // namespace

Result<NvmlApi> open_nvml(const char* library) {
  Result<SharedLibrary> opened = SharedLibrary::open({&library, 1});
  if (!opened.ok())
    return unavailable(std::string(library) +
                       " cannot be opened: there is no NVIDIA driver on this machine, or the "
                       "container does not see it");
  NvmlApi api;
  if (!opened->find("nvmlInit_v2", &api.init) ||
      !opened->find("nvmlDeviceGetHandleByIndex_v2", &api.device) ||
      !opened->find("nvmlDeviceGetUtilizationRates", &api.rates))
    return unavailable(std::string(library) + " lacks functions of NVML; update the driver");
  opened->keep_open();
  return api;
}

Result<NvmlUtilisation> NvmlUtilisation::create(const NvmlApi& api) {
  void* device = nullptr;
  if (int code = api.init(); code != 0)
    return unavailable("NVML does not start (error " + std::to_string(code) + ")");
  if (int code = api.device(0, &device); code != 0)
    return unavailable("NVML finds no device (error " + std::to_string(code) + ")");
  return NvmlUtilisation(api, device);
}

Result<UtilisationReader> read_nvml() {
  Result<NvmlApi> api = open_nvml();
  if (!api.ok()) return api.status();
  Result<NvmlUtilisation> nvml = NvmlUtilisation::create(*api);
  if (!nvml.ok()) return nvml.status();
  return UtilisationReader(
      [nvml = nvml.take()](int64_t now_us) mutable { return nvml.read(now_us); });
}

std::optional<double> NvmlUtilisation::read(int64_t now_us) {
  if (now_us < next_us_) return last_;
  next_us_ = now_us + kPeriod_us;
  NvmlApi::Rates rates;
  last_.reset();
  if (api_.rates(device_, &rates) == 0) last_ = rates.gpu;
  return last_;
}

}  // namespace pf
