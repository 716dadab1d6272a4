// Devices: which there are, what they can, who may read whose memory.

#include <cstring>

#include "ptxvm/runtime.h"

using namespace pf::ptxvm;

namespace {

bool exists(int device) { return device >= 0 && device < settings().n_devices; }

}  // namespace

cudaError_t cudaGetDeviceCount(int* n) {
  *n = settings().n_devices;
  return cudaSuccess;
}
cudaError_t cudaGetDevice(int* d) {
  *d = Runtime::device();
  return cudaSuccess;
}
cudaError_t cudaSetDevice(int d) {
  if (!exists(d)) return Runtime::get().set(cudaErrorInvalidDevice);
  Runtime::device() = d;
  return cudaSuccess;
}
cudaError_t cudaSetDeviceFlags(unsigned) { return cudaSuccess; }
cudaError_t cudaRuntimeGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDriverGetVersion(int* v) {
  *v = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaDeviceCanAccessPeer(int* can, int device, int peer) {
  if (!exists(device) || !exists(peer)) return Runtime::get().set(cudaErrorInvalidDevice);
  *can = device != peer;
  return cudaSuccess;
}
cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  PF_LOCK;
  if (!exists(peer) || peer == Runtime::device()) return rt.set(cudaErrorInvalidDevice);
  bool fresh = DeviceMemory::get().peers.insert({Runtime::device(), peer}).second;
  return fresh ? cudaSuccess : rt.set(cudaErrorPeerAccessAlreadyEnabled);
}
cudaError_t cudaDeviceDisablePeerAccess(int peer) {
  PF_LOCK;
  rt.drain_all();
  bool was = DeviceMemory::get().peers.erase({Runtime::device(), peer}) != 0;
  return was ? cudaSuccess : rt.set(cudaErrorPeerAccessNotEnabled);
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* p, int device) {
  if (!exists(device)) return Runtime::get().set(cudaErrorInvalidDevice);
  const Device& d = settings().device;
  *p = {};
  std::strncpy(p->name, ("ptxvm " + d.name).c_str(), sizeof p->name - 1);
  p->major = d.major;
  p->minor = d.minor;
  p->multiProcessorCount = d.n_sms;
  p->maxThreadsPerMultiProcessor = d.max_threads_per_sm;
  p->maxBlocksPerMultiProcessor = d.max_blocks_per_sm;
  p->maxThreadsPerBlock = 1024;
  p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
  p->maxThreadsDim[2] = 64;
  p->maxGridSize[0] = 0x7fffffff;
  p->maxGridSize[1] = p->maxGridSize[2] = 65535;
  p->warpSize = 32;
  p->sharedMemPerBlock = 48 << 10;
  p->reservedSharedMemPerBlock = 1 << 10;
  p->sharedMemPerBlockOptin = d.shared_per_block_optin_bytes;
  p->sharedMemPerMultiprocessor = d.shared_per_sm_bytes;
  p->totalGlobalMem = settings().device_memory_bytes;
  p->totalConstMem = 64 << 10;
  p->l2CacheSize = static_cast<int>(d.l2_bytes);
  p->regsPerBlock = p->regsPerMultiprocessor = 65536;
  p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
  p->asyncEngineCount = 2;
  p->memoryPoolsSupported = 1;
  p->pciBusID = device + 1;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* v, cudaDeviceAttr attribute, int device) {
  cudaDeviceProp p;
  if (cudaError_t e = cudaGetDeviceProperties(&p, device)) return e;
  const std::pair<cudaDeviceAttr, size_t> table[] = {
      {cudaDevAttrMultiProcessorCount, size_t(p.multiProcessorCount)},
      {cudaDevAttrComputeCapabilityMajor, size_t(p.major)},
      {cudaDevAttrComputeCapabilityMinor, size_t(p.minor)},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, p.sharedMemPerBlockOptin},
      {cudaDevAttrMaxSharedMemoryPerMultiprocessor, p.sharedMemPerMultiprocessor},
      {cudaDevAttrMaxSharedMemoryPerBlock, p.sharedMemPerBlock},
      {cudaDevAttrReservedSharedMemoryPerBlock, p.reservedSharedMemPerBlock},
      {cudaDevAttrMaxThreadsPerBlock, size_t(p.maxThreadsPerBlock)},
      {cudaDevAttrMaxBlockDimX, size_t(p.maxThreadsDim[0])},
      {cudaDevAttrMaxBlockDimY, size_t(p.maxThreadsDim[1])},
      {cudaDevAttrMaxBlockDimZ, size_t(p.maxThreadsDim[2])},
      {cudaDevAttrMaxGridDimX, size_t(p.maxGridSize[0])},
      {cudaDevAttrMaxGridDimY, size_t(p.maxGridSize[1])},
      {cudaDevAttrMaxGridDimZ, size_t(p.maxGridSize[2])},
      {cudaDevAttrWarpSize, size_t(p.warpSize)},
      {cudaDevAttrL2CacheSize, size_t(p.l2CacheSize)},
      {cudaDevAttrMaxThreadsPerMultiProcessor, size_t(p.maxThreadsPerMultiProcessor)},
      {cudaDevAttrMaxBlocksPerMultiprocessor, size_t(p.maxBlocksPerMultiProcessor)},
      {cudaDevAttrMaxRegistersPerBlock, size_t(p.regsPerBlock)},
      {cudaDevAttrMaxRegistersPerMultiprocessor, size_t(p.regsPerMultiprocessor)},
      {cudaDevAttrTotalConstantMemory, p.totalConstMem},
      {cudaDevAttrUnifiedAddressing, 1},
      {cudaDevAttrCanMapHostMemory, 1},
      {cudaDevAttrConcurrentKernels, 1},
      {cudaDevAttrAsyncEngineCount, size_t(p.asyncEngineCount)},
      {cudaDevAttrMemoryPoolsSupported, 1},
      {cudaDevAttrCooperativeLaunch, 0},
      {cudaDevAttrPciBusId, size_t(p.pciBusID)},
  };
  for (const auto& [name, value] : table)
    if (name == attribute) {
      *v = static_cast<int>(value);
      return cudaSuccess;
    }
  return Runtime::get().set(cudaErrorInvalidValue);
}
