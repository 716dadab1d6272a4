#include "device/cublas.h"

#include <dlfcn.h>

#include <string>

#include "base/check.h"

namespace pf {
namespace {

// Of cublas_v2.h and library_types.h.
constexpr int kTranspose = 1, kPlain = 0, kHalf = 2, kComputeFloat = 68, kDefault = -1;
using Create = int (*)(void**);
using Destroy = int (*)(void*);
using SetStream = int (*)(void*, cudaStream_t);
using Gemm = int (*)(void*, int, int, int, int, int, const void*, const void*, int, int,
                     const void*, int, int, const void*, void*, int, int, int, int);

}  // namespace

std::unique_ptr<Cublas> Cublas::open(cudaStream_t stream) {
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return nullptr;
  std::unique_ptr<Cublas> out(new Cublas);
  out->library_ = library;
  auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  auto set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
  out->gemm_ = dlsym(library, "cublasGemmEx");
  if (create == nullptr || set_stream == nullptr || out->gemm_ == nullptr) return nullptr;
  if (create(&out->handle_) != 0 || set_stream(out->handle_, stream) != 0) return nullptr;
  return out;
}

Cublas::~Cublas() {
  auto destroy = reinterpret_cast<Destroy>(dlsym(library_, "cublasDestroy_v2"));
  if (destroy != nullptr && handle_ != nullptr) destroy(handle_);
  dlclose(library_);
}

void Cublas::multiply(f16* y, const f16* x, const f16* w, int64_t T, int64_t N, int64_t K) const {
  const float one = 1, zero = 0;
  const auto t = static_cast<int>(T), n = static_cast<int>(N), k = static_cast<int>(K);
  // Column-major: y^T [N, T] = w x^T.
  const int status =
      reinterpret_cast<Gemm>(gemm_)(handle_, kTranspose, kPlain, n, t, k, &one, w, kHalf, k, x,
                                    kHalf, k, &zero, y, kHalf, n, kComputeFloat, kDefault);
  check(status == 0, "cublasGemmEx failed");
}

}  // namespace pf
