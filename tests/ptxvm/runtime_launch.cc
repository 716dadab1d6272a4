// Registration of programs and launches: what nvcc's generated host code calls.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "ptxvm/programs.h"
#include "ptxvm/runtime.h"

namespace pf::ptxvm {
namespace {

struct Program {
  std::string text;
  std::shared_ptr<Module> module;  // parsed at first use: registration runs before main
  bool tried = false;
  Module* get() {
    if (!tried) module = load_ptx(text), tried = true;
    return module.get();
  }
};
struct Entry {
  Program* program = nullptr;
  std::string name;
  std::map<int, size_t> dynamic_limits = {};  // by device; of those that are not set 48 KiB
};
struct Registry {
  std::vector<std::unique_ptr<Program>> programs;
  std::map<const void*, Entry> functions, variables;
};
Registry& registry() {
  static auto* r = new Registry;
  return *r;
}
struct Configuration {
  dim3 grid, block;
  size_t shared = 0;
  cudaStream_t stream = nullptr;
};
thread_local std::vector<Configuration> g_configurations;

// The PTX of a fat binary: a header, then entries of {kind, header size, payload size}; kind 1 is
// PTX.
std::string ptx_of(const void* wrapper) {
  const char* data = *reinterpret_cast<const char* const*>(static_cast<const char*>(wrapper) + 8);
  auto read = [](const char* p, auto* v) { std::memcpy(v, p, sizeof *v); };
  uint16_t header = 0;
  uint64_t total = 0;
  read(data + 6, &header);
  read(data + 8, &total);
  for (const char *p = data + header, *end = p + total; p < end;) {
    uint16_t kind = 0;
    uint32_t head = 0;
    uint64_t bytes = 0;
    read(p, &kind);
    read(p + 4, &head);
    read(p + 8, &bytes);
    if (kind == 1) return std::string(p + head, strnlen(p + head, bytes));
    p += head + bytes;
  }
  return "";
}

Program& program_with(std::string_view kernel_part) {
  Program* found = nullptr;
  for (auto& p : registry().programs) {
    if (p->text.find(kernel_part) == std::string::npos) continue;
    check(found == nullptr, "ptxvm: several .cu files have a kernel of this name");
    found = p.get();
  }
  check(found != nullptr, "ptxvm: no .cu file has a kernel of this name");
  return *found;
}

}  // namespace

std::string registered_ptx() {
  check(registry().programs.size() == 1, "ptxvm: registered_ptx() is for programs of one .cu file");
  return registry().programs[0]->text;
}
void replace_ptx(std::string text) {
  for (auto& p : registry().programs) p->text = text, p->module = nullptr, p->tried = false;
}
std::string ptx_with(std::string_view kernel_part) { return program_with(kernel_part).text; }
void replace_ptx_with(std::string_view kernel_part, std::shared_ptr<Module> module) {
  Program& p = program_with(kernel_part);
  p.module = std::move(module), p.tried = true;
}

Registered find_function(const void* f) {
  auto it = registry().functions.find(f);
  if (it == registry().functions.end()) return {};
  return {it->second.program->get(), it->second.name, ""};
}
Module* module_of_variable(const void* v, std::string* name) {
  auto it = registry().variables.find(v);
  if (it == registry().variables.end()) return nullptr;
  *name = it->second.name;
  return it->second.program->get();
}
size_t dynamic_limit(const void* f) {
  const auto& limits = registry().functions.at(f).dynamic_limits;
  auto it = limits.find(Runtime::device());
  return it == limits.end() ? size_t{48 << 10} : it->second;
}

cudaError_t launch_now(const KernelCall& call) {
  Registered r = find_function(call.function);
  if (r.module == nullptr) return cudaErrorInvalidKernelImage;
  std::vector<void*> args;
  for (const auto& a : call.args) args.push_back(const_cast<uint8_t*>(a.data()));
  DeviceMemory::get().running_on = call.device;
  return launch_ptx(*r.module, r.name, call.grid, call.block, call.dynamic_shared_bytes,
                    args.data())
             ? cudaSuccess
             : cudaErrorLaunchFailure;
}

cudaError_t make_call(const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                      KernelCall* call) {
  Registered r = find_function(function);
  if (r.module == nullptr) return cudaErrorInvalidDeviceFunction;
  try {
    const Kernel& k = r.module->kernel(r.name);
    if (shared > dynamic_limit(function)) {
      Finding f;
      f.kind = Kind::kSharedMemoryLimit;
      f.kernel = r.name;
      f.message = std::to_string(shared) +
                  " bytes of dynamic shared memory; cudaFuncSetAttribute allows " +
                  std::to_string(dynamic_limit(function));
      record(f);
      return cudaErrorInvalidValue;
    }
    *call = {function, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z},
             shared,   Runtime::device(),        {}};
    for (size_t i = 0; i < k.params.size(); ++i) {
      auto* p = static_cast<const uint8_t*>(args[i]);
      call->args.emplace_back(p, p + k.params[i].bytes);
    }
  } catch (const PtxError& e) {
    record_ptx_error(e, &r.module->unit(), r.name);
    return cudaErrorInvalidKernelImage;
  }
  return cudaSuccess;
}

namespace {

cudaError_t launch(const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                   cudaStream_t stream) {
  PF_LOCK;
  if (rt.of(stream).device != Runtime::device()) {
    misuse("a kernel of device " + std::to_string(Runtime::device()) +
           " is launched into a stream of device " + std::to_string(rt.of(stream).device));
    return rt.set(cudaErrorInvalidResourceHandle);
  }
  Node node;
  node.type = cudaGraphNodeTypeKernel;
  cudaError_t e = make_call(function, grid, block, args, shared, &node.call);
  return e != cudaSuccess ? rt.set(e) : rt.submit(stream, std::move(node));
}

}  // namespace
}  // namespace pf::ptxvm

using namespace pf::ptxvm;

extern "C" {

void** __cudaRegisterFatBinary(void* wrapper) {
  auto p = std::make_unique<Program>();
  p->text = ptx_of(wrapper);
  pf::check(p->text.find(".version") != std::string::npos,
            "ptxvm: no plain PTX in the program; build it with ptxvm_executable");
  registry().programs.push_back(std::move(p));
  return reinterpret_cast<void**>(registry().programs.back().get());
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 1; }
void __cudaRegisterFunction(void** program, const char* host, char*, const char* name, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
  registry().functions[host] = {reinterpret_cast<Program*>(program), name};
}
void __cudaRegisterVar(void** program, char* host, char*, const char* name, int, size_t, int, int) {
  registry().variables[host] = {reinterpret_cast<Program*>(program), name};
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, void* stream) {
  g_configurations.push_back({grid, block, shared, static_cast<cudaStream_t>(stream)});
  return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
  Configuration c = g_configurations.back();
  g_configurations.pop_back();
  *grid = c.grid;
  *block = c.block;
  *shared = c.shared;
  *static_cast<cudaStream_t*>(stream) = c.stream;
  return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
  *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
  return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** args,
                               size_t shared, cudaStream_t stream) {
  return launch(reinterpret_cast<const void*>(kernel), grid, block, args, shared, stream);
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** args,
                             size_t shared, cudaStream_t stream) {
  return launch(function, grid, block, args, shared, stream);
}

cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* c, const void* function, void** args) {
  for (unsigned i = 0; i < c->numAttrs; ++i)
    if (c->attrs[i].id == cudaLaunchAttributeClusterDimension ||
        c->attrs[i].id == cudaLaunchAttributeCooperative) {
      misuse("clusters and cooperative launches are not supported by this machine");
      return Runtime::get().set(cudaErrorNotSupported);
    }
  return launch(function, c->gridDim, c->blockDim, args, c->dynamicSmemBytes, c->stream);
}

cudaError_t cudaFuncSetCacheConfig(const void*, cudaFuncCache) { return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void* function, cudaFuncAttribute attribute, int value) {
  PF_LOCK;
  auto it = registry().functions.find(function);
  if (it == registry().functions.end()) return rt.set(cudaErrorInvalidDeviceFunction);
  if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize) return cudaSuccess;
  if (value < 0 || static_cast<size_t>(value) > settings().device.shared_per_block_optin_bytes)
    return rt.set(cudaErrorInvalidValue);
  it->second.dynamic_limits[Runtime::device()] = static_cast<size_t>(value);
  return cudaSuccess;
}
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* a, const void* function) {
  PF_LOCK;
  Registered r = find_function(function);
  if (r.module == nullptr) return rt.set(cudaErrorInvalidDeviceFunction);
  try {
    const Kernel& k = r.module->kernel(r.name);
    *a = {};
    a->sharedSizeBytes = k.shared_bytes;
    a->localSizeBytes = k.local_bytes;
    a->maxThreadsPerBlock = k.max_threads ? static_cast<int>(k.max_threads) : 1024;
    a->numRegs = settings().registers_per_thread;
    a->ptxVersion = a->binaryVersion = settings().device.major * 10 + settings().device.minor;
    a->maxDynamicSharedSizeBytes = static_cast<int>(dynamic_limit(function));
  } catch (const PtxError& e) {
    record_ptx_error(e, &r.module->unit(), r.name);
    return rt.set(cudaErrorInvalidKernelImage);
  }
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* n, const void* function,
                                                                   int threads, size_t dynamic,
                                                                   unsigned) {
  cudaFuncAttributes a;
  if (cudaError_t e = cudaFuncGetAttributes(&a, function)) return e;
  const Device& d = settings().device;
  int warps = (threads + 31) / 32;
  int by_registers = 65536 / std::max(1, warps * ((a.numRegs * 32 + 255) / 256 * 256));
  size_t shared = a.sharedSizeBytes + dynamic + 1024;  // the system's KiB
  int by_shared = static_cast<int>(d.shared_per_sm_bytes / shared);
  *n = threads > a.maxThreadsPerBlock
           ? 0
           : std::min({d.max_blocks_per_sm, d.max_threads_per_sm / (warps * 32), by_registers,
                       by_shared});
  return cudaSuccess;
}
cudaError_t cudaOccupancyAvailableDynamicSMemPerBlock(size_t* bytes, const void* function,
                                                      int n_blocks, int threads) {
  int n = 0;
  cudaFuncAttributes a;
  if (cudaError_t e = cudaFuncGetAttributes(&a, function)) return e;
  if (cudaError_t e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&n, function, threads, 0))
    return e;
  if (n_blocks <= 0 || n_blocks > n) return Runtime::get().set(cudaErrorInvalidValue);
  const Device& d = settings().device;
  size_t each = d.shared_per_sm_bytes / static_cast<size_t>(n_blocks) - 1024 - a.sharedSizeBytes;
  *bytes = std::min(each, d.shared_per_block_optin_bytes - a.sharedSizeBytes);
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessor(int* n, const void* function, int threads,
                                                          size_t dynamic) {
  return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, function, threads, dynamic, 0);
}

}  // extern "C"
