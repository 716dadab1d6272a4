// Truth: products as float64 loops over the very numbers that were packed; and bits that may not
// change with the number of rows, tiles or threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "backend/cpu/packed_matrix.h"
#include "model/quantize.h"

namespace pf {
namespace {

std::vector<const CpuKernels*> all_kernels() {
  std::vector<const CpuKernels*> k = {kernels_portable()};
  if (kernels_avx2()) k.push_back(kernels_avx2());
  if (kernels_avx512()) k.push_back(kernels_avx512());
  return k;
}

struct Matrix {
  Tensor tensor;
  std::vector<float> values;
  std::vector<std::byte> blocks;
};
Matrix random_matrix(int64_t n, int64_t k, uint32_t seed) {
  Matrix m;
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal(0, 1);
  m.values.resize(static_cast<size_t>(n * k));
  for (float& v : m.values) v = normal(rng);
  m.tensor.name = "w";
  m.tensor.shape = {n, k};
  m.tensor.data = std::as_bytes(std::span(m.values));
  return m;
}

std::vector<float> multiply_all(const CpuKernels& kernels, const PackedMatrix& w,
                                const std::vector<float>& x, int64_t m, int threads,
                                bool add = false) {
  constexpr int64_t kGuard = 512;
  int64_t ld = w.n + 3;
  std::vector<float> y(static_cast<size_t>(m * ld + kGuard), 7.0f);
  Buffer packed(static_cast<size_t>(packed_rows_bytes(w.format, w.n_steps, m)));
  for (int64_t r = 0; r < m; ++r)
    pack_activation(kernels, w, x.data() + r * w.k, r, m, packed.as());
  ThreadPool pool(threads);
  WorkShare share(threads);
  pool.run([&](int t) { multiply(kernels, {&w, packed.as(), m, y.data(), ld, add}, &share, t); });
  for (int64_t i = 0; i < kGuard; ++i)
    EXPECT_EQ(y[static_cast<size_t>(m * ld + i)], 7.0f) << "written behind the end";
  std::vector<float> out;
  for (int64_t r = 0; r < m; ++r) {
    for (int64_t i = w.n; i < ld; ++i)
      EXPECT_EQ(y[static_cast<size_t>(r * ld + i)], 7.0f) << "written beside a row";
    out.insert(out.end(), y.begin() + r * ld, y.begin() + r * ld + w.n);
  }
  return out;
}

const std::vector<std::pair<int64_t, int64_t>> kShapes = {{1, 32},  {16, 64},  {17, 33},
                                                          {48, 96}, {50, 130}, {100, 576}};
const std::vector<WeightFormat> kFormats = {WeightFormat::kF32, WeightFormat::kBf16,
                                            WeightFormat::kInt8, WeightFormat::kInt4};

TEST(PackedMatrix, ARowReadBackIsTheRowInItsType) {
  ThreadPool pool(2);
  for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16})
    for (auto [n, k] : kShapes) {
      Matrix m = random_matrix(n, k, static_cast<uint32_t>(n));
      m.values[0] = 1.00390625f;   // half-way between two bf16: to even
      m.values[1] = -1.01171875f;  // likewise, upwards in magnitude
      m.values[2] = INFINITY;
      m.values[3] = 1e-40f;  // subnormal
      const Tensor* tensors[] = {&m.tensor};
      auto w = pack_matrix(tensors, format, pool);
      ASSERT_TRUE(w.ok());
      std::vector<float> row(static_cast<size_t>(k) + 64, 7.0f);
      for (int64_t r = 0; r < n; ++r) {
        w->read_row(r, row.data());
        for (int64_t i = 0; i < k; ++i) {
          float v = m.values[static_cast<size_t>(r * k + i)];
          if (format == WeightFormat::kBf16) v = to_float(to_bf16(v));
          ASSERT_EQ(row[static_cast<size_t>(i)], v) << "row " << r << " column " << i;
        }
        EXPECT_EQ(row[static_cast<size_t>(k)], 7.0f) << "written behind the row";
      }
    }
}

TEST(Gemm, EveryRowHasTheSameBitsInEveryBatchAndOnEveryNumberOfThreads) {
  ThreadPool pool(2);
  for (const CpuKernels* kernels : all_kernels())
    for (WeightFormat format : kFormats)
      for (auto [n, k] : kShapes) {
        Matrix m = random_matrix(n, k, static_cast<uint32_t>(n + k));
        const Tensor* tensors[] = {&m.tensor};
        auto w = pack_matrix(tensors, format, pool);
        ASSERT_TRUE(w.ok());
        constexpr int64_t kRows = 200;
        std::vector<float> x = random_matrix(kRows, k, 9).values;
        std::vector<float> all = multiply_all(*kernels, *w, x, kRows, 1);
        for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 15, 16, 17, 64, 101})
          for (int threads : {1, 2, 3})
            for (int64_t first : {int64_t{0}, kRows - rows}) {
              std::vector<float> part(x.begin() + first * k, x.begin() + (first + rows) * k);
              std::vector<float> y = multiply_all(*kernels, *w, part, rows, threads);
              ASSERT_EQ(std::memcmp(y.data(), all.data() + first * n, y.size() * 4), 0)
                  << kernels->name << " format " << static_cast<int>(format) << " " << n << "x" << k
                  << " rows " << rows;
            }
      }
}

TEST(Gemm, MatchesTheProductInDouble) {
  ThreadPool pool(1);
  for (const CpuKernels* kernels : all_kernels())
    for (WeightFormat format : {WeightFormat::kF32, WeightFormat::kBf16})
      for (auto [n, k] : kShapes) {
        Matrix m = random_matrix(n, k, 3);
        std::vector<float> x = random_matrix(9, k, 4).values;
        bool bf = format == WeightFormat::kBf16;
        if (bf) {  // inputs rounded to the kernel's type before the oracle
          for (float& v : m.values) v = to_float(to_bf16(v));
          for (float& v : x) v = to_float(to_bf16(v));
        }
        const Tensor* tensors[] = {&m.tensor};
        auto w = pack_matrix(tensors, format, pool);
        std::vector<float> y = multiply_all(*kernels, *w, x, 9, 1);
        for (int64_t r = 0; r < 9; ++r)
          for (int64_t i = 0; i < n; ++i) {
            double want = 0, scale = 0;
            for (int64_t j = 0; j < k; ++j) {
              double p = static_cast<double>(m.values[static_cast<size_t>(i * k + j)]) *
                         x[static_cast<size_t>(r * k + j)];
              want += p;
              scale += std::fabs(p);
            }
            // Each of k sums rounds by at most 2^-24 of the partial sum, which stays below `scale`.
            ASSERT_NEAR(y[static_cast<size_t>(r * n + i)], want,
                        static_cast<double>(k) * 0x1p-23 * scale)
                << kernels->name;
          }
      }
}

TEST(Gemm, IntegerFormatsMatchTheirOwnDefinition) {
  ThreadPool pool(1);
  for (const CpuKernels* kernels : all_kernels())
    for (TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1, TensorType::kQ8_0}) {
      constexpr int64_t n = 37, k = 96, rows = 5;
      Matrix m = random_matrix(n, k, 5);
      m.blocks.resize(static_cast<size_t>(n * row_bytes(type, k)));
      for (int64_t r = 0; r < n; ++r)
        ASSERT_TRUE(
            quantize_row(type, m.values.data() + r * k, k, m.blocks.data() + r * row_bytes(type, k))
                .ok());
      m.tensor.type = type;
      m.tensor.data = m.blocks;
      dequantize_rows(m.tensor, 0, n, m.values.data());  // the weights that the file holds
      const Tensor* tensors[] = {&m.tensor};
      auto w = pack_matrix(
          tensors, type == TensorType::kQ8_0 ? WeightFormat::kInt8 : WeightFormat::kInt4, pool);
      std::vector<float> x = random_matrix(rows, k, 6).values;
      std::vector<float> y = multiply_all(*kernels, *w, x, rows, 1);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) {
          double want = 0, scale = 0, slack = 0;
          for (int64_t g = 0; g < k; g += 32) {
            double max = 0;
            for (int64_t j = g; j < g + 32; ++j)
              max = std::max<double>(max, std::fabs(x[static_cast<size_t>(r * k + j)]));
            for (int64_t j = g; j < g + 32; ++j) {
              double weight = m.values[static_cast<size_t>(i * k + j)],
                     v = x[static_cast<size_t>(r * k + j)];
              want += weight * v;
              scale += std::fabs(weight * v);
              slack += std::fabs(weight) * max / 254;  // half a step of the activation's int8
            }
          }
          ASSERT_NEAR(y[static_cast<size_t>(r * n + i)], want, slack + 1e-5 * scale)
              << kernels->name;
        }
    }
}

TEST(Gemm, InstructionSetsAgreeOnIntegerDotProducts) {
  // The integer part is exact; what is left is the order of one multiply-add per group.
  ThreadPool pool(1);
  Matrix m = random_matrix(64, 320, 7);
  const Tensor* tensors[] = {&m.tensor};
  std::vector<float> x = random_matrix(3, 320, 8).values;
  for (WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    auto w = pack_matrix(tensors, format, pool);
    std::vector<float> first = multiply_all(*all_kernels()[0], *w, x, 3, 1);
    for (const CpuKernels* kernels : all_kernels()) {
      std::vector<float> y = multiply_all(*kernels, *w, x, 3, 1);
      for (size_t i = 0; i < y.size(); ++i) ASSERT_NEAR(y[i], first[i], 2e-4);
    }
  }
}

TEST(Gemm, AddsToWhatIsThere) {
  ThreadPool pool(1);
  Matrix m = random_matrix(20, 40, 7);
  const Tensor* tensors[] = {&m.tensor};
  std::vector<float> x = random_matrix(3, 40, 8).values;
  auto w = pack_matrix(tensors, WeightFormat::kF32, pool);
  std::vector<float> plain = multiply_all(*kernels_portable(), *w, x, 3, 1),
                     added = multiply_all(*kernels_portable(), *w, x, 3, 1, true);
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(added[i], 7.0f + plain[i]);
}

// Shapes and row counts as they come: tails of tiles, of chunks and of both at once.
TEST(Gemm, RandomShapesKeepTheBitsOfOneRowAndOneThread) {
  std::mt19937 rng(11);
  auto upto = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)) + 1; };
  ThreadPool pool(1);
  for (int round = 0; round < 60; ++round) {
    int64_t n = upto(150), k = upto(300), rows = upto(40);
    WeightFormat format = kFormats[static_cast<size_t>(round) % kFormats.size()];
    Matrix m = random_matrix(n, k, static_cast<uint32_t>(round));
    const Tensor* tensors[] = {&m.tensor};
    auto w = pack_matrix(tensors, format, pool);
    ASSERT_TRUE(w.ok());
    std::vector<float> x = random_matrix(rows, k, 12).values;
    for (const CpuKernels* kernels : all_kernels()) {
      std::vector<float> all = multiply_all(*kernels, *w, x, rows, 2, round % 2 == 0);
      for (int64_t r = 0; r < rows; ++r) {
        std::vector<float> row(x.begin() + r * k, x.begin() + (r + 1) * k);
        std::vector<float> y = multiply_all(*kernels, *w, row, 1, 1, round % 2 == 0);
        ASSERT_EQ(std::memcmp(y.data(), all.data() + r * n, y.size() * 4), 0)
            << kernels->name << " format " << static_cast<int>(format) << " " << n << "x" << k
            << " row " << r << " of " << rows;
      }
    }
  }
}

TEST(Gemm, TensorsStandBelowEachOther) {
  ThreadPool pool(2);
  Matrix a = random_matrix(5, 64, 1), b = random_matrix(20, 64, 2);
  const Tensor *both[] = {&a.tensor, &b.tensor}, *second[] = {&b.tensor};
  std::vector<float> x = random_matrix(1, 64, 3).values;
  for (WeightFormat format : kFormats) {
    auto w = pack_matrix(both, format, pool), own = pack_matrix(second, format, pool);
    std::vector<float> y = multiply_all(*kernels_portable(), *w, x, 1, 1),
                       z = multiply_all(*kernels_portable(), *own, x, 1, 1);
    EXPECT_EQ(std::vector<float>(y.begin() + 5, y.end()), z);
  }
}

TEST(Gemm, RefusesWeightsThatCannotBeQuantised) {
  ThreadPool pool(1);
  Matrix m = random_matrix(4, 32, 1);
  m.values[70] = INFINITY;
  const Tensor* tensors[] = {&m.tensor};
  auto w = pack_matrix(tensors, WeightFormat::kInt4, pool);
  ASSERT_FALSE(w.ok());
  EXPECT_EQ(w.status().message().rfind("w: ", 0), 0u)
      << "names the tensor: " << w.status().message();
}

}  // namespace
}  // namespace pf
