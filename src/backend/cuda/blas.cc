// cuBLAS is larger than everything else here together and most servers do without it, so it is
// neither linked nor needed at build time: four functions of its C interface, by name.
#include "backend/cuda/blas.h"

#include <cuda_runtime_api.h>
#include <library_types.h>

#include <memory>
#include <string>

#include "backend/cuda/device_memory.h"
#include "base/check.h"
#include "base/shared_library.h"

namespace pf {
namespace {

// Of cublas_api.h, which is the same in CUDA 12 and 13.
using Handle = void*;
constexpr int kSuccess = 0, kNotTransposed = 0, kTransposed = 1, kFloatSums = 68,
              kDefaultAlgorithm = -1;
using Create = int (*)(Handle*);
using Destroy = int (*)(Handle);
using SetStream = int (*)(Handle, cudaStream_t);
using SetWorkspace = int (*)(Handle, void*, size_t);
using Gemm = int (*)(Handle, int transpose_a, int transpose_b, int m, int n, int k,
                     const void* alpha, const void* a, cudaDataType a_type, int lda, const void* b,
                     cudaDataType b_type, int ldb, const void* beta, void* c, cudaDataType c_type,
                     int ldc, int compute_type, int algorithm);

struct Cublas {
  SharedLibrary library;
  Handle handle = nullptr;
  Create create = nullptr;
  Destroy destroy = nullptr;
  SetStream set_stream = nullptr;
  SetWorkspace set_workspace = nullptr;
  Gemm gemm = nullptr;
  DeviceMemory workspace;

  Cublas() = default;
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;
  ~Cublas() {
    if (handle != nullptr) destroy(handle);
  }

  bool find_all() {
    return library.find("cublasCreate_v2", &create) && library.find("cublasDestroy_v2", &destroy) &&
           library.find("cublasSetStream_v2", &set_stream) &&
           library.find("cublasSetWorkspace_v2", &set_workspace) &&
           library.find("cublasGemmEx", &gemm);
  }

  // Rows of ours are columns of theirs: y^T [N, T] = w [N, K] x^T [K, T].
  void multiply(const BlasProduct& p, cudaStream_t stream) const {
    const float one = 1, old = p.add ? 1 : 0;
    const cudaDataType type = p.bf16 ? CUDA_R_16BF : CUDA_R_16F;
    const auto T = static_cast<int>(p.T), N = static_cast<int>(p.N), K = static_cast<int>(p.K);
    int status = set_stream(handle, stream);
    // A stream takes the library's own workspace back.
    if (status == kSuccess) status = set_workspace(handle, workspace.as(), workspace.bytes());
    if (status == kSuccess)
      status = gemm(handle, kTransposed, kNotTransposed, N, T, K, &one, p.w, type, K, p.x, type, K,
                    &old, p.y, p.y_is_float ? CUDA_R_32F : type, N, kFloatSums, kDefaultAlgorithm);
    check(status == kSuccess, "cuBLAS refused a product");
  }
};

}  // namespace

Result<Blas> load_cublas_from(std::span<const char* const> names) {
  auto cublas = std::make_shared<Cublas>();  // shared: a std::function may be copied
  Result<SharedLibrary> library = SharedLibrary::open(names);
  if (!library.ok())
    return Status(Code::kUnavailable,
                  "--prefill-gemm cublas: " + library.status().message() +
                      "; install cuBLAS (libcublas of the CUDA toolkit, or pip's nvidia-cublas "
                      "with its folder in LD_LIBRARY_PATH) or use --prefill-gemm own");
  cublas->library = library.take();
  if (!cublas->find_all())
    return Status(Code::kUnavailable,
                  "--prefill-gemm cublas: the library that was found lacks functions of cuBLAS 12; "
                  "install a later one or use --prefill-gemm own");
  if (int status = cublas->create(&cublas->handle); status != kSuccess) {
    cublas->handle = nullptr;
    return Status(Code::kUnavailable, "--prefill-gemm cublas: cuBLAS does not start here (status " +
                                          std::to_string(status) + "); use --prefill-gemm own");
  }
  cublas->workspace = DeviceMemory(kBlasWorkspaceBytes);
  return Blas([cublas](const BlasProduct& p, cudaStream_t stream) { cublas->multiply(p, stream); });
}

Result<Blas> load_cublas() {
  static constexpr const char* kNames[] = {
      CUDART_VERSION >= 13000 ? "libcublas.so.13" : "libcublas.so.12",
      CUDART_VERSION >= 13000 ? "libcublas.so.12" : "libcublas.so.13", "libcublas.so"};
  return load_cublas_from(kNames);
}

}  // namespace pf
