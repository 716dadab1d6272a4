// Memory and copies.

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "ptxvm/runtime.h"

namespace pf::ptxvm {

void misuse(std::string text) {
  Finding f;
  f.kind = Kind::kRuntimeUse;
  f.message = std::move(text);
  record(std::move(f));
}

}  // namespace pf::ptxvm

using namespace pf::ptxvm;

namespace {

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
    if (source == nullptr || source->first_unwritten(offset, n) == n)
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
// Whether the direction that the caller states is the true one.
bool right_kind(const void* to, const void* from, cudaMemcpyKind kind) {
  DeviceMemory& m = DeviceMemory::get();
  bool to_device = m.is_device_address(reinterpret_cast<uint64_t>(to)),
       from_device = m.is_device_address(reinterpret_cast<uint64_t>(from));
  bool right =
      kind == cudaMemcpyDefault ||
      (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
       from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!right)
    misuse(std::string("a copy from ") + (from_device ? "device" : "host") + " to " +
           (to_device ? "device" : "host") + " memory with another cudaMemcpyKind");
  return right;
}
// The one path of all copies. The rows of pageable sources are staged, so that the caller may reuse
// them at once; a copy to pageable memory waits, as the real one does.
cudaError_t copy_rows(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width,
                      size_t height, cudaStream_t s) {
  Runtime& rt = Runtime::get();
  Node node;
  node.type = cudaGraphNodeTypeMemcpy;
  bool capturing = rt.of(s).capture != nullptr;
  auto copy = [=](const void* source) {
    for (size_t y = 0; y < height; ++y)
      keep(copy_now(static_cast<char*>(to) + y * to_pitch,
                    static_cast<const char*>(source) + y * from_pitch, width));
  };
  if (!capturing && pageable(from) && width * height > 0) {
    auto* bytes = static_cast<const uint8_t*>(from);
    auto stage =
        std::make_shared<std::vector<uint8_t>>(bytes, bytes + (height - 1) * from_pitch + width);
    node.action = [=] { copy(stage->data()); };
  } else {
    node.action = [=] { copy(from); };
  }
  cudaError_t e = rt.submit(s, std::move(node));
  if (e == cudaSuccess && !capturing && pageable(to)) rt.drain(rt.of(s));
  return e == cudaSuccess && rt.sticky != cudaSuccess ? rt.set(rt.sticky) : e;
}
// A synchronous call ends when the default stream is empty.
cudaError_t finish(cudaError_t submitted) {
  Runtime& rt = Runtime::get();
  if (submitted == cudaSuccess) rt.drain(rt.of(nullptr));
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : submitted;
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
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  if (n == 0) return cudaSuccess;
  Region* r = DeviceMemory::get().allocate(n, "", Runtime::device());
  if (r == nullptr) return rt.set(cudaErrorMemoryAllocation);
  *p = reinterpret_cast<void*>(r->base);
  return cudaSuccess;
}
cudaError_t cudaFree(void* p) {
  PF_LOCK;
  if (p == nullptr) return cudaSuccess;
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  rt.drain_all();
  if (DeviceMemory::get().release(reinterpret_cast<uint64_t>(p))) return cudaSuccess;
  misuse("cudaFree of a pointer that is no live allocation");
  return rt.set(cudaErrorInvalidValue);
}
// The memory is there at once; it goes when the stream comes to the free.
cudaError_t cudaMallocAsync(void** p, size_t n, cudaStream_t s) {
  PF_LOCK;
  if (rt.of(s).capture != nullptr) {
    rt.of(s).capture_broken = true;
    misuse("cudaMallocAsync inside a capture is not supported by this machine");
    return rt.set(cudaErrorStreamCaptureUnsupported);
  }
  Region* r = n ? DeviceMemory::get().allocate(n, "", rt.of(s).device) : nullptr;
  *p = r ? reinterpret_cast<void*>(r->base) : nullptr;
  return r != nullptr || n == 0 ? cudaSuccess : rt.set(cudaErrorMemoryAllocation);
}
cudaError_t cudaFreeAsync(void* p, cudaStream_t s) {
  PF_LOCK;
  if (p == nullptr) return cudaSuccess;
  Node node;
  node.type = cudaGraphNodeTypeMemFree;
  node.action = [p] {
    if (DeviceMemory::get().release(reinterpret_cast<uint64_t>(p))) return;
    misuse("cudaFreeAsync of a pointer that is no live allocation");
    keep(cudaErrorInvalidValue);
  };
  return rt.submit(s, std::move(node));
}
cudaError_t cudaHostAlloc(void** p, size_t n, unsigned) {
  PF_LOCK;
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  *p = std::calloc(n, 1);
  if (*p == nullptr) return rt.set(cudaErrorMemoryAllocation);
  DeviceMemory::get().adopt_host(*p, n, "pinned host memory of " + std::to_string(n) + " bytes");
  return cudaSuccess;
}
cudaError_t cudaMallocHost(void** p, size_t n) { return cudaHostAlloc(p, n, 0); }
cudaError_t cudaHostRegister(void* p, size_t n, unsigned) {
  PF_LOCK;
  if (p == nullptr || n == 0) return rt.set(cudaErrorInvalidValue);
  if (DeviceMemory::get().is_pinned_host(p)) return rt.set(cudaErrorHostMemoryAlreadyRegistered);
  DeviceMemory::get().adopt_host(p, n, "registered memory of " + std::to_string(n) + " bytes");
  return cudaSuccess;
}
cudaError_t cudaHostUnregister(void* p) {
  PF_LOCK;
  rt.drain_all();
  return DeviceMemory::get().release_host(p) ? cudaSuccess
                                             : rt.set(cudaErrorHostMemoryNotRegistered);
}
cudaError_t cudaHostGetDevicePointer(void** device, void* host, unsigned) {
  PF_LOCK;
  *device = host;  // one address space
  return DeviceMemory::get().is_pinned_host(host) ? cudaSuccess : rt.set(cudaErrorInvalidValue);
}
cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* a, const void* p) {
  PF_LOCK;
  *a = {};
  a->device = -1;
  a->type = cudaMemoryTypeUnregistered;
  Region* r = DeviceMemory::get().find(reinterpret_cast<uint64_t>(p));
  if (r == nullptr) return cudaSuccess;
  bool host = !DeviceMemory::get().is_device_address(reinterpret_cast<uint64_t>(p));
  a->type = host ? cudaMemoryTypeHost : cudaMemoryTypeDevice;
  a->device = host ? Runtime::device() : std::max(r->device, 0);
  a->devicePointer = const_cast<void*>(p);
  a->hostPointer = host ? const_cast<void*>(p) : nullptr;
  return cudaSuccess;
}
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

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t n, cudaMemcpyKind kind,
                            cudaStream_t s) {
  PF_LOCK;
  if (!right_kind(to, from, kind)) return rt.set(cudaErrorInvalidMemcpyDirection);
  return copy_rows(to, n, from, n, n, 1, s);
}
cudaError_t cudaMemcpy(void* to, const void* from, size_t n, cudaMemcpyKind kind) {
  PF_LOCK;
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  return finish(cudaMemcpyAsync(to, from, n, kind, nullptr));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                              size_t width, size_t height, cudaMemcpyKind kind, cudaStream_t s) {
  PF_LOCK;
  if (width > to_pitch || width > from_pitch) return rt.set(cudaErrorInvalidPitchValue);
  if (!right_kind(to, from, kind)) return rt.set(cudaErrorInvalidMemcpyDirection);
  return copy_rows(to, to_pitch, from, from_pitch, width, height, s);
}
cudaError_t cudaMemcpy2D(void* to, size_t to_pitch, const void* from, size_t from_pitch,
                         size_t width, size_t height, cudaMemcpyKind kind) {
  PF_LOCK;
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  return finish(cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height, kind, nullptr));
}
cudaError_t cudaMemcpyPeerAsync(void* to, int, const void* from, int, size_t n, cudaStream_t s) {
  return cudaMemcpyAsync(to, from, n, cudaMemcpyDeviceToDevice, s);
}
cudaError_t cudaMemcpyPeer(void* to, int, const void* from, int, size_t n) {
  return cudaMemcpy(to, from, n, cudaMemcpyDeviceToDevice);
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
  if (cudaError_t e = rt.refuse_in_capture()) return e;
  return finish(cudaMemsetAsync(p, v, n, nullptr));
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
  *free_bytes = *total - DeviceMemory::get().used_bytes(Runtime::device()) - rt.graph_bytes;
  return cudaSuccess;
}
