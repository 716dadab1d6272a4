#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/status.h"

namespace pf {

// What is used of NVIDIA's management library; 0 is success.
struct NvmlApi {
  struct Rates {                   // nvmlUtilization_t
    unsigned gpu = 0, memory = 0;  // percent of the last sample period
  };
  int (*init)() = nullptr;
  int (*device)(unsigned index, void** device) = nullptr;
  int (*rates)(void* device, Rates* rates) = nullptr;
};

// Opens the library at run time. UNAVAILABLE says why there is none.
Result<NvmlApi> open_nvml(const char* library = "libnvidia-ml.so.1");

// Share of time in which the first device was computing, in percent. Asked at most ten times a
// second: the driver samples no faster. One thread.
class NvmlUtilisation {
 public:
  static Result<NvmlUtilisation> create(const NvmlApi& api);

  // Nothing when the driver does not say.
  std::optional<double> read(int64_t now_us);

 private:
  NvmlUtilisation(const NvmlApi& api, void* device) : api_(api), device_(device) {}

  NvmlApi api_;
  void* device_;
  std::optional<double> last_;
  int64_t next_us_ = INT64_MIN;
};

// Percent at a time of the step's clock; nothing when nobody knows.
using UtilisationReader = std::function<std::optional<double>(int64_t now_us)>;
Result<UtilisationReader> read_nvml();

}  // namespace pf
