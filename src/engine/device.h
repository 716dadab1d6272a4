#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/footprint.h"
#include "base/progress.h"
#include "base/status.h"
#include "base/thread_pool.h"
#include "engine/options.h"
#include "model/model.h"

namespace pf {

enum class Device { kCpu, kCuda };

// --device as asked: `auto` is CUDA where the first device can run the kernels, else the CPU.
// Refuses `cuda` without one, saying why, and number formats that the device does not compute in.
Result<Device> choose_device(const EngineOptions& options);

// Why `auto` leaves a CUDA device that is there alone; empty where it does not.
std::string device_warning(const EngineOptions& options);

// --draft-device, where the target is on `target`.
Result<Device> choose_draft_device(const EngineOptions& options, Device target);

// Whether the device computes in the formats that the options ask for.
Status check_formats(const EngineOptions& options, Device device);

// What that device has to give, in bytes; of several CUDA devices, the one that has least.
int64_t available_bytes(Device device, int32_t n_devices);

// What --dtype comes to for a model on a device: "fp32", "bf16" or "fp16". `auto` on CUDA is the
// type of the file's matrices where that is fp16 or bf16, so that no weight changes; of fp32 and of
// quantised ones, which both would round, it is bf16, whose range holds every float. On the CPU it
// is bf16.
std::string numbers_of(const EngineOptions& options, Device device, const Model& model);

// Threads that compute: as asked for, else the CPUs of this process.
int32_t n_threads_of(const EngineOptions& options);

// One resident model on its device.
struct ResidentModel {
  std::string name;  // of tables: "target", "draft model"
  const Model* model = nullptr;
  const Model* embedding_of = nullptr;  // the target, where a draft uses its embedding
  std::string numbers = "bf16";  // of activations and KV (numbers_of); a head's: its target's
  std::string weights;           // "int8", "int4", or as the numbers
  int32_t n_blocks = 0, block_tokens = 16, max_rows = 512;
  int32_t head_rows = 65;  // logit rows at once on a CUDA device (head_rooms.h)
  bool judges = true;      // CudaOptions::judges
  int64_t max_context = 0;
  bool keep_hidden = false;              // for a head over its hidden states
  std::vector<int32_t> tap_layers = {};  // which (CpuOptions::tap_layers)
  HiddenStates hidden_of = {};           // a head's: of its target, once that is there
  Device device = Device::kCpu;
  int32_t n_devices = 1;         // that share it
  bool in_tables = true;         // it has a plane over the target's block tables
  int32_t n_window_blocks = 0;   // that it has besides
  Progress* progress = nullptr;  // counts its Footprint::read_bytes, of all its devices
};
Result<std::unique_ptr<Backend>> make_backend(Device device, const EngineOptions& options,
                                              const ResidentModel& resident, ThreadPool& pool);

// The options of a backend on a CUDA device.
CudaOptions cuda_options(const EngineOptions& options, const ResidentModel& resident);

// What it will take, of the first of its devices or another one; of a Model of shapes too.
Footprint footprint(Device device, const EngineOptions& options, const ResidentModel& resident,
                    int32_t n_threads, int32_t rank = 0);

}  // namespace pf
