#include "engine/device.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "base/cpus.h"
#include "engine/memory_plan.h"

namespace pf {
namespace {

CpuOptions::Weights cpu_weights(const std::string& type) {
  if (type == "fp32") return CpuOptions::Weights::kF32;
  if (type == "int8") return CpuOptions::Weights::kInt8;
  if (type == "int4") return CpuOptions::Weights::kInt4;
  return CpuOptions::Weights::kBf16;
}

CpuOptions cpu_options(const EngineOptions& options, const ResidentModel& r) {
  CpuOptions o;
  o.int8_kv = options.kv_cache_dtype == "int8";
  o.weights = cpu_weights(r.weights);
  o.n_blocks = r.n_blocks;
  o.block_tokens = r.block_tokens;
  o.max_rows = r.max_rows;
  o.max_context = r.max_context;
  o.keep_hidden = r.keep_hidden;
  o.tap_layers = r.tap_layers;
  o.hidden_of = r.hidden_of;
  o.progress = r.progress;
  return o;
}

Result<std::unique_ptr<Backend>> on_cuda(const EngineOptions& options, const ResidentModel& r,
                                         ThreadPool& pool) {
  return make_cuda_backend(*r.model, r.embedding_of, cuda_options(options, r), pool);
}

}  // namespace

CudaOptions cuda_options(const EngineOptions& options, const ResidentModel& r) {
  CudaOptions o;
  o.numbers = r.numbers == "fp16" ? CudaOptions::Numbers::kF16 : CudaOptions::Numbers::kBf16;
  o.int4 = r.weights == "int4";
  o.int8_kv = options.kv_cache_dtype == "int8";
  o.n_blocks = r.n_blocks;
  o.block_tokens = r.block_tokens;
  o.max_rows = r.max_rows;
  o.max_context = r.max_context;
  // One tree and its root at least, and no more than a pass has rows.
  o.head_chunk_rows = std::max(kMaxTreeNodes + 1, std::min(r.head_rows, r.max_rows));
  o.judges = r.judges;
  o.max_sequences = options.max_num_seqs;
  o.graphs = options.cuda_graphs;
  o.keep_hidden = r.keep_hidden;
  o.tap_layers = r.tap_layers;
  o.hidden_of = r.hidden_of;
  o.n_devices = r.n_devices;
  o.progress = r.progress;
  if (options.prefill_gemm == "cublas") o.prefill_gemm = CudaOptions::PrefillGemm::kCublas;
  return o;
}

Status check_formats(const EngineOptions& o, Device device) {
  if (device == Device::kCpu && o.dtype == "fp16")
    return invalid(
        "--dtype fp16: the CPU computes in bf16 (FP16 files are converted once at load) or fp32");
  if (device == Device::kCpu && o.prefill_gemm == "cublas")
    return invalid("--prefill-gemm cublas: cuBLAS computes on CUDA devices only; use own");
  if (device == Device::kCpu && o.tensor_parallel_size > 1)
    return invalid("--tensor-parallel-size " + std::to_string(o.tensor_parallel_size) +
                   ": a model is shared by CUDA devices; on the CPU set --threads");
  if (device == Device::kCpu) return {};
  if (o.tensor_parallel_size > 1 && o.prefill_gemm == "cublas")
    return invalid("--prefill-gemm cublas serves one device; use own with --tensor-parallel-size");
  if (o.dtype == "fp32")
    return invalid("--dtype fp32: the CUDA kernels compute in fp16 or bf16; use --device cpu");
  for (const std::string& type : {o.quantization, o.draft_quantization})
    if (type == "int8")
      return invalid("int8 weights have no CUDA kernels; use int4, none or --device cpu");
  return {};
}

std::string device_warning(const EngineOptions& o) {
  if (o.device != "auto" || n_cuda_devices() == 0) return "";
  const Status usable = check_cuda_devices(1);
  return usable.ok() ? "" : "--device auto: " + usable.message() + "; computing on the CPU";
}

Result<Device> choose_device(const EngineOptions& o) {
  Device device = Device::kCpu;
  if (o.device != "cpu") {
    std::string why;
    if (n_cuda_devices(&why) > 0) why = check_cuda_devices(1).message();
    if (why.empty())
      device = Device::kCuda;
    else if (o.device == "cuda")
      return Status(Code::kUnavailable, "--device cuda: " + why + "; use --device cpu");
  }
  if (Status s = check_formats(o, device); !s.ok()) return s;
  if (device == Device::kCuda)
    if (Status s = check_cuda_devices(o.tensor_parallel_size); !s.ok()) return s;
  return device;
}

Result<Device> choose_draft_device(const EngineOptions& o, Device target) {
  if (o.draft_device == "auto" || o.draft_device == (target == Device::kCuda ? "cuda" : "cpu"))
    return target;
  EngineOptions draft = o;
  draft.device = o.draft_device;
  draft.quantization = "none";  // of the target
  draft.tensor_parallel_size = 1;
  if (o.draft_device == "cpu" && o.dtype == "fp16") draft.dtype = "bf16";
  Result<Device> device = choose_device(draft);
  return device.ok() ? device : device.status().within("--draft-device " + o.draft_device);
}

int64_t available_bytes(Device device, int32_t n_devices) {
  return device == Device::kCuda ? cuda_free_bytes(n_devices) : available_memory_bytes();
}

std::string numbers_of(const EngineOptions& o, Device device, const Model& model) {
  if (device == Device::kCpu) return o.dtype == "fp32" ? "fp32" : "bf16";
  if (o.dtype != "auto") return o.dtype;
  return !model.layers.empty() && model.layers[0].q.type == TensorType::kF16 ? "fp16" : "bf16";
}

Result<std::unique_ptr<Backend>> make_backend(Device device, const EngineOptions& options,
                                              const ResidentModel& resident, ThreadPool& pool) {
  if (device == Device::kCuda) return on_cuda(options, resident, pool);
  return make_cpu_backend(*resident.model, resident.embedding_of, cpu_options(options, resident),
                          pool);
}

Footprint footprint(Device device, const EngineOptions& options, const ResidentModel& resident,
                    int32_t n_threads, int32_t rank) {
  return device == Device::kCuda ? cuda_footprint(*resident.model, resident.embedding_of,
                                                  cuda_options(options, resident), rank)
                                 : cpu_footprint(*resident.model, resident.embedding_of,
                                                 cpu_options(options, resident), n_threads);
}

int32_t n_threads_of(const EngineOptions& o) { return o.threads > 0 ? o.threads : n_usable_cpus(); }

}  // namespace pf
