#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

enum class Device { kCpu, kCuda };

// --device as asked: `auto` is CUDA where a device is usable, else the CPU. Refuses `cuda` without
// one, saying why, and number formats that the device does not compute in.
Result<Device> choose_device(const EngineOptions& options);

// --draft-device, where the target is on `target`.
Result<Device> choose_draft_device(const EngineOptions& options, Device target);

// What that device has to give, in bytes.
int64_t available_bytes(Device device);

// How the weights of a model are held: "fp32", "bf16", "fp16", "int8" or "int4".
std::string target_weights(const EngineOptions& options, Device device);
std::string draft_weights(const EngineOptions& options, Device device);

// One resident model on its device.
struct ResidentModel {
  const Model* model = nullptr;
  const Model* embedding_of = nullptr;  // the target, where a draft uses its embedding
  std::string weights;
  int32_t n_blocks = 0, block_tokens = 16, max_rows = 512;
  int64_t max_context = 0;
  bool keep_hidden = false;              // for a head over its hidden states
  std::vector<int32_t> tap_layers = {};  // which (CpuOptions::tap_layers)
  HiddenStates hidden_of = {};           // a head's: of its target
};
Result<std::unique_ptr<Backend>> make_backend(Device device, const EngineOptions& options,
                                              const ResidentModel& resident, ThreadPool& pool);

}  // namespace pf
