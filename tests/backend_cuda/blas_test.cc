// Truth: the product as a float64 loop that stands in for cuBLAS; beside it the kernels' own.
#include "backend/cuda/blas.h"

#include <cmath>

#include "backend/cuda/device_memory.h"
#include "backend_cuda/cuda_rig.h"
#include "kernels/gemm_fp16.h"
#include "sampling/draft_tree.h"

namespace pf {
namespace {

// y[t,n] = [y[t,n] +] sum x w, in double and rounded once; checked against gemm_fp16.
class HostGemm {
 public:
  Blas blas() {
    return [this](const BlasProduct& p, cudaStream_t stream) {
      asked.push_back(p);
      if (p.y_is_float)
        multiply<float>(p, stream);
      else
        multiply<bf16>(p, stream);
    };
  }
  std::vector<BlasProduct> asked;

 private:
  template <class T>
  static std::vector<T> fetch(const void* from, int64_t n, cudaStream_t stream) {
    std::vector<T> to(static_cast<size_t>(n));
    cuda_check(
        cudaMemcpyAsync(to.data(), from, to.size() * sizeof(T), cudaMemcpyDeviceToHost, stream));
    cuda_check(cudaStreamSynchronize(stream));
    return to;
  }
  static double value(float v) { return static_cast<double>(v); }
  static double value(bf16 v) { return static_cast<double>(to_float(v)); }
  static void round(double v, float* to) { *to = static_cast<float>(v); }
  static void round(double v, bf16* to) { *to = to_bf16(static_cast<float>(v)); }

  template <class Y>
  void multiply(const BlasProduct& p, cudaStream_t stream) {
    ASSERT_TRUE(p.bf16);
    auto x = fetch<bf16>(p.x, p.T * p.K, stream), w = fetch<bf16>(p.w, p.N * p.K, stream);
    std::vector<Y> y(static_cast<size_t>(p.T * p.N));
    if (p.add) y = fetch<Y>(p.y, p.T * p.N, stream);
    DeviceBuffer<Y> own(p.T * p.N);
    cuda_check(cudaMemcpyAsync(own.data(), p.y, own.bytes(), cudaMemcpyDeviceToDevice, stream));
    kernels::gemm_fp16<bf16, Y>(
        {own.data(), {p.T, p.N}}, {static_cast<const bf16*>(p.x), {p.T, p.K}},
        {static_cast<const bf16*>(p.w), {p.N, p.K}}, {nullptr, p.add}, stream);
    auto kernels_y = fetch<Y>(own.data(), p.T * p.N, stream);
    for (int64_t t = 0; t < p.T; ++t)
      for (int64_t n = 0; n < p.N; ++n) {
        double sum = 0, size = 0;
        for (int64_t k = 0; k < p.K; ++k) {
          double product = value(x[static_cast<size_t>(t * p.K + k)]) *
                           value(w[static_cast<size_t>(n * p.K + k)]);
          sum += product;
          size += std::abs(product);
        }
        Y& out = y[static_cast<size_t>(t * p.N + n)];
        if (p.add) sum += value(out), size += std::abs(value(out));
        round(sum, &out);
        // K float additions, each off by 2^-24 of at most `size`; then both are rounded to y's
        // type: to 24 bits and to 8, half a unit each.
        const double bound = static_cast<double>(p.K) * 0x1p-24 * size +
                             std::abs(sum) * (p.y_is_float ? 0x1p-23 : 0x1p-7);
        ASSERT_NEAR(value(kernels_y[static_cast<size_t>(t * p.N + n)]), value(out), bound);
      }
    cuda_check(
        cudaMemcpyAsync(p.y, y.data(), y.size() * sizeof(Y), cudaMemcpyHostToDevice, stream));
    cuda_check(cudaStreamSynchronize(stream));
  }
};

CudaOptions with(HostGemm* gemm) {
  CudaOptions o;
  o.prefill_gemm = CudaOptions::PrefillGemm::kCublas;
  o.blas = gemm->blas();
  return o;
}

TEST(CudaBlas, MultipliesThePromptsRowsAndNoOthers) {
  Model m = bf16_model(cuda_shape());
  HostGemm gemm;
  CudaRig own(m), blas(m, with(&gemm));
  std::vector<int32_t> prompt = text_of(131), early = text_of(12, 1), late = text_of(9, 2);
  auto prompt_table = own.table(17, 0), early_table = own.table(4, 60),
       late_table = own.table(4, 120);
  DraftTree tree;
  for (int32_t i = 0; i < 3; ++i) tree.add_one_hot(10 + i, i < 2 ? DraftTree::kRoot : 0);
  Batch batch;
  std::vector<std::vector<float>> want, got;
  for (CudaRig* rig : {&own, &blas}) {
    for (auto* s : {&early, &late}) {
      batch.clear();
      batch.add(std::span(*s).first(s->size() - 1), 0, nullptr,
                s == &early ? early_table : late_table, Batch::Logits::kNone);
      for (int i = 0; i < 3; ++i) rig->backend->forward(batch);  // small: a graph by the third time
    }
    EXPECT_TRUE(gemm.asked.empty());
    batch.clear();
    batch.add(std::span(early).last(1), 11, &tree, early_table, Batch::Logits::kLast);
    batch.add(prompt, 0, nullptr, prompt_table, Batch::Logits::kLast);
    batch.add(std::span(late).last(1), 8, nullptr, late_table, Batch::Logits::kLast);
    rig->backend->forward(batch);
    (rig == &own ? want : got) = rig->logits(6);
  }
  ASSERT_EQ(gemm.asked.size(), 2u * 4u);  // QKV, output, gate and up, down
  for (const BlasProduct& p : gemm.asked) EXPECT_EQ(p.T, 131);
  for (size_t row : {0u, 1u, 2u, 3u, 5u}) EXPECT_EQ(got[row], want[row]) << "row " << row;
  // Both are as far from the definition as MatchesTheDefinition (forward_test.cc) says, at most.
  double differences = 0, squares = 0;
  for (size_t i = 0; i < want[4].size(); ++i) {
    differences += std::pow(static_cast<double>(got[4][i] - want[4][i]), 2);
    squares += std::pow(static_cast<double>(want[4][i]), 2);
  }
  EXPECT_LT(std::sqrt(differences / squares), 2 * 2 * 1.3 * 0x1p-7);
}

TEST(CudaBlas, OwnNeverAsksIt) {
  Model m = bf16_model(cuda_shape());
  HostGemm gemm;
  CudaOptions o = with(&gemm), small = with(&gemm);
  o.prefill_gemm = CudaOptions::PrefillGemm::kOwn;
  small.int4 = true;  // has kernels of its own only
  for (const CudaOptions& options : {o, small}) {
    CudaRig rig(m, options);
    auto table = rig.table(17, 0);
    std::vector<int32_t> prompt = text_of(131);
    Batch batch;
    batch.add(prompt, 0, nullptr, table, Batch::Logits::kLast);
    rig.backend->forward(batch);
    rig.logits(1);
  }
  EXPECT_TRUE(gemm.asked.empty());
}

TEST(CudaBlas, AMissingLibraryIsNamedWithWhatToInstall) {
  const char* const missing[] = {"libpilotfish-has-no-such.so.13"};
  Result<Blas> none = load_cublas_from(missing);
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("libpilotfish-has-no-such.so.13"), std::string::npos);
  EXPECT_NE(none.status().message().find("install cuBLAS"), std::string::npos);
  EXPECT_NE(none.status().message().find("--prefill-gemm own"), std::string::npos);
  EXPECT_EQ(none.status().message().find('\n'), std::string::npos);
  const char* const other[] = {"libc.so.6"};
  Result<Blas> wrong = load_cublas_from(other);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.status().message().find("lacks functions of cuBLAS"), std::string::npos);
}

}  // namespace
}  // namespace pf
