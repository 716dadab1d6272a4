// Memory, device properties and errors.

#include <cstdlib>
#include <cstring>

#include "ptxvm/runtime.h"

using namespace pf::ptxvm;

namespace {

#define PF_LOCK                 \
  Runtime& rt = Runtime::get(); \
  std::lock_guard lock(rt.mutex)

void misuse(std::string text) {
  Finding f;
  f.kind = Kind::kRuntimeUse;
  f.message = std::move(text);
  record(std::move(f));
}

// The machine's own view of [p, p + n), or null with a finding. Sets region for device memory.
uint8_t* view(const void* p, size_t n, const char* what, Region** region) {
  auto address = reinterpret_cast<uint64_t>(p);
  DeviceMemory& memory = DeviceMemory::get();
  *region = nullptr;
  if (!memory.is_device_address(address)) return static_cast<uint8_t*>(const_cast<void*>(p));
  Region* r = memory.find(address);
  if (r == nullptr || !r->holds(address, n)) {
    bool freed = false;
    misuse(std::string(what) + " of " + std::to_string(n) + " bytes: " +
           (r != nullptr
                ? "byte " + std::to_string(address - r->base) + " of " + r->label + ", past its end"
                : memory.describe(address, &freed)));
    return nullptr;
  }
  *region = r;
  return r->data + (address - r->base);
}

cudaError_t copy_now(void* to, const void* from, size_t n) {
  if (n == 0) return cudaSuccess;
  Region *source, *target;
  uint8_t* a = view(from, n, "a copy from device memory", &source);
  uint8_t* b = view(to, n, "a copy to device memory", &target);
  if (a == nullptr || b == nullptr) return cudaErrorInvalidValue;
  uint64_t offset = source ? static_cast<uint64_t>(a - source->data) : 0;
  std::memmove(b, a, n);
  if (target != nullptr) {
    auto at = static_cast<uint64_t>(b - target->data);
    if (source == nullptr)
      target->set_written(at, n);
    else
      for (uint64_t i = 0; i < n; ++i)
        if (source->first_unwritten(offset + i, 1) == 1) target->set_written(at + i, 1);
  } else if (source != nullptr && settings().uninitialised) {
    uint64_t bad = source->first_unwritten(offset, n);
    if (bad < n)
      misuse("a copy to the host reads byte " + std::to_string(offset + bad) + " of " +
             source->label + ", which nobody has written");
  }
  return cudaSuccess;
}
cudaError_t set_now(void* p, int v, size_t n) {
  Region* r;
  uint8_t* a = n ? view(p, n, "a cudaMemset", &r) : nullptr;
  if (n == 0) return cudaSuccess;
  if (a == nullptr) return cudaErrorInvalidValue;
  std::memset(a, v, n);
  if (r != nullptr) r->set_written(static_cast<uint64_t>(a - r->data), n);
  return cudaSuccess;
}
bool pageable(const void* p) {
  DeviceMemory& m = DeviceMemory::get();
  return !m.is_device_address(reinterpret_cast<uint64_t>(p)) && !m.is_pinned_host(p);
}
void keep(cudaError_t e) {
  if (e != cudaSuccess) Runtime::get().last = Runtime::get().sticky = e;
}
void* symbol_address(const void* symbol, size_t n) {
  std::string name;
  Module* m = module_of_variable(symbol, &name);
  const Module::Symbol* s = m ? m->symbol(name) : nullptr;
  return s == nullptr || n > s->bytes ? nullptr : reinterpret_cast<void*>(s->address);
}

}  // namespace

cudaError_t cudaMalloc(void** p, size_t n) {
  PF_LOCK;
  *p = nullptr;
  if (n == 0) return cudaSuccess;
  Region* r = DeviceMemory::get().allocate(n, "");
  if (r == nullptr) return rt.set(cudaErrorMemoryAllocation);
  *p = reinterpret_cast<void*>(r->base);
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  PF_LOCK;
  if (p == nullptr) return cudaSuccess;
  rt.drain_all();
  if (DeviceMemory::get().release(reinterpret_cast<uint64_t>(p))) return cudaSuccess;
  misuse("cudaFree of a pointer that is no live allocation");
  return rt.set(cudaErrorInvalidValue);
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  PF_LOCK;
  *p = std::calloc(n, 1);
  if (*p == nullptr) return rt.set(cudaErrorMemoryAllocation);
  DeviceMemory::get().adopt_host(*p, n, "pinned host memory of " + std::to_string(n) + " bytes");
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaFreeHost(void* p) {
  PF_LOCK;
  if (p == nullptr) return cudaSuccess;
  rt.drain_all();
  if (!DeviceMemory::get().release_host(p)) {
    misuse("cudaFreeHost of a pointer that is no pinned memory");
    return rt.set(cudaErrorInvalidValue);
  }
  std::free(p);
  return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind, cudaStream_t s) {
  PF_LOCK;
  Node node;
  node.type = cudaGraphNodeTypeMemcpy;
  bool capturing = rt.of(s).capture != nullptr;
  if (!capturing && pageable(from)) {  // staged: the source may be reused at once
    auto stage = std::make_shared<std::vector<uint8_t>>(static_cast<const uint8_t*>(from),
                                                        static_cast<const uint8_t*>(from) + n);
    node.action = [=] { keep(copy_now(to, stage->data(), n)); };
  } else {
    node.action = [=] { keep(copy_now(to, from, n)); };
  }
  cudaError_t e = rt.submit(s, std::move(node));
  if (e == cudaSuccess && !capturing && pageable(to)) rt.drain(rt.of(s));
  return e == cudaSuccess && rt.sticky != cudaSuccess ? rt.set(rt.sticky) : e;
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  PF_LOCK;
  cudaError_t e = cudaMemcpyAsync(to, from, n, kind, nullptr);
  if (e == cudaSuccess) rt.drain(rt.default_stream);
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : e;
}
cudaError_t cudaMemsetAsync(void* p, int v, size_t n, cudaStream_t s) {
  PF_LOCK;
  Node node;
  node.type = cudaGraphNodeTypeMemset;
  node.action = [=] { keep(set_now(p, v, n)); };
  return rt.submit(s, std::move(node));
}
cudaError_t cudaMemset(void* p, int v, size_t n) {
  PF_LOCK;
  cudaError_t e = cudaMemsetAsync(p, v, n, nullptr);
  rt.drain(rt.default_stream);
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : e;
}
cudaError_t cudaGetSymbolAddress(void** p, const void* symbol) {
  PF_LOCK;
  *p = symbol_address(symbol, 0);
  return *p == nullptr ? rt.set(cudaErrorInvalidSymbol) : cudaSuccess;
}
cudaError_t cudaMemcpyToSymbol(const void* symbol, const void* from, size_t n, size_t offset,
                               cudaMemcpyKind kind) {
  PF_LOCK;
  void* p = symbol_address(symbol, offset + n);
  return p == nullptr ? rt.set(cudaErrorInvalidSymbol)
                      : cudaMemcpy(static_cast<char*>(p) + offset, from, n, kind);
}
cudaError_t cudaMemcpyFromSymbol(void* to, const void* symbol, size_t n, size_t offset,
                                 cudaMemcpyKind kind) {
  PF_LOCK;
  void* p = symbol_address(symbol, offset + n);
  return p == nullptr ? rt.set(cudaErrorInvalidSymbol)
                      : cudaMemcpy(to, static_cast<char*>(p) + offset, n, kind);
}
cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  PF_LOCK;
  *total = settings().device_memory_bytes;
  *free_bytes = *total - DeviceMemory::get().used_bytes();
  return cudaSuccess;
}

cudaError_t cudaGetLastError() {
  PF_LOCK;
  cudaError_t e = rt.last;
  rt.last = rt.sticky;
  return e;
}
cudaError_t cudaPeekAtLastError() {
  PF_LOCK;
  return rt.last;
}
const char* cudaGetErrorName(cudaError_t e) {
  return e == cudaSuccess                 ? "cudaSuccess"
         : e == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation"
         : e == cudaErrorLaunchFailure    ? "cudaErrorLaunchFailure"
         : e == cudaErrorInvalidValue     ? "cudaErrorInvalidValue"
         : e == cudaErrorNotReady         ? "cudaErrorNotReady"
                                          : "cudaError";
}
const char* cudaGetErrorString(cudaError_t e) {
  return e == cudaSuccess                 ? "no error"
         : e == cudaErrorMemoryAllocation ? "out of memory"
         : e == cudaErrorLaunchFailure    ? "a kernel failed; the finding is above"
         : e == cudaErrorInvalidValue     ? "invalid argument"
                                          : "an error of the ptxvm runtime";
}
cudaError_t cudaGetDeviceCount(int* n) {
  *n = 1;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = 0;
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  return d == 0 ? cudaSuccess : Runtime::get().set(cudaErrorInvalidDevice);
}
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int) {
  const Device& d = settings().device;
  *p = {};
  std::strncpy(p->name, ("ptxvm " + d.name).c_str(), sizeof p->name - 1);
  p->major = d.major;
  p->minor = d.minor;
  p->multiProcessorCount = d.n_sms;
  p->maxThreadsPerMultiProcessor = d.max_threads_per_sm;
  p->maxThreadsPerBlock = 1024;
  p->warpSize = 32;
  p->sharedMemPerBlock = 48 << 10;
  p->sharedMemPerBlockOptin = d.shared_per_block_optin_bytes;
  p->sharedMemPerMultiprocessor = d.shared_per_sm_bytes;
  p->totalGlobalMem = settings().device_memory_bytes;
  p->l2CacheSize = static_cast<int>(d.l2_bytes);
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr a, int) {
  const Device& d = settings().device;
  switch (a) {
    case cudaDevAttrMultiProcessorCount:
      *v = d.n_sms;
      break;
    case cudaDevAttrComputeCapabilityMajor:
      *v = d.major;
      break;
    case cudaDevAttrComputeCapabilityMinor:
      *v = d.minor;
      break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
      *v = static_cast<int>(d.shared_per_block_optin_bytes);
      break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
      *v = static_cast<int>(d.shared_per_sm_bytes);
      break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
      *v = 48 << 10;
      break;
    case cudaDevAttrMaxThreadsPerBlock:
      *v = 1024;
      break;
    case cudaDevAttrWarpSize:
      *v = 32;
      break;
    case cudaDevAttrL2CacheSize:
      *v = static_cast<int>(d.l2_bytes);
      break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
      *v = d.max_threads_per_sm;
      break;
    case cudaDevAttrMaxRegistersPerBlock:
    case cudaDevAttrMaxRegistersPerMultiprocessor:
      *v = 65536;
      break;
    default:
      return Runtime::get().set(cudaErrorInvalidValue);
  }
  return cudaSuccess;
}
