// Truth: products as float64 loops over the very numbers that were packed; and bits that may not
// change with the number of rows, tiles or threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>
#include <utility>

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
                                            WeightFormat::kInt8, WeightFormat::kInt4,
                                            WeightFormat::kInt4Wide};
// The least width from k on that a matrix of this format can have.
int64_t width_of(WeightFormat format, int64_t k) {
  return format == WeightFormat::kInt4Wide ? (k + 127) / 128 * 128 : k;
}

// The matrix quantised, as a file holds it; its values are then those of the file.
void quantize(Matrix* m, TensorType type, int group) {
  int64_t n = m->tensor.rows(), k = m->tensor.cols();
  m->blocks.resize(static_cast<size_t>(n * row_bytes(type, k)));
  for (int64_t r = 0; r < n; ++r)
    ASSERT_TRUE(quantize_row(type, m->values.data() + r * k, k,
                             m->blocks.data() + r * row_bytes(type, k), group)
                    .ok());
  m->tensor.type = type;
  m->tensor.data = m->blocks;
  dequantize_rows(m->tensor, 0, n, m->values.data());
}

// A matrix of which pack_matrix makes this format.
Matrix matrix_for(WeightFormat format, int64_t n, int64_t k, uint32_t seed) {
  Matrix m = random_matrix(n, k, seed);
  if (format == WeightFormat::kInt4Wide) quantize(&m, TensorType::kQ4_1, 128);
  return m;
}

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
      for (auto [n, least] : kShapes) {
        const int64_t k = width_of(format, least);
        Matrix m = matrix_for(format, n, k, static_cast<uint32_t>(n + k));
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
    for (auto [type, format] : {std::pair{TensorType::kQ4_0, WeightFormat::kInt4},
                                {TensorType::kQ4_1, WeightFormat::kInt4},
                                {TensorType::kQ8_0, WeightFormat::kInt8},
                                {TensorType::kQ4_0, WeightFormat::kInt4Wide},
                                {TensorType::kQ4_1, WeightFormat::kInt4Wide}}) {
      const int64_t n = 37, k = width_of(format, 3 * 96), rows = 5, group = step_width(format);
      Matrix m = random_matrix(n, k, 5);
      quantize(&m, type, static_cast<int>(group));
      const Tensor* tensors[] = {&m.tensor};
      auto w = pack_matrix(tensors, format, pool);
      std::vector<float> x = random_matrix(rows, k, 6).values;
      std::vector<float> y = multiply_all(*kernels, *w, x, rows, 1);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) {
          double want = 0, scale = 0, slack = 0;
          for (int64_t g = 0; g < k; g += group) {
            double max = 0;
            for (int64_t j = g; j < g + group; ++j)
              max = std::max<double>(max, std::fabs(x[static_cast<size_t>(r * k + j)]));
            for (int64_t j = g; j < g + group; ++j) {
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
  for (WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4, WeightFormat::kInt4Wide}) {
    const int64_t k = width_of(format, 320);
    Matrix m = matrix_for(format, 64, k, 7);
    const Tensor* tensors[] = {&m.tensor};
    std::vector<float> x = random_matrix(3, k, 8).values;
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

// Scales that are powers of two, whole minimums and activations of -127..127 with a 127 in every
// block: nothing rounds, so every instruction set gives the very number, whatever it adds first.
TEST(Gemm, WholeNumbersComeOutExactlyAtEveryWidthAndRowCount) {
  std::mt19937 rng(21);
  auto below = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)); };
  ThreadPool pool(1);
  for (int round = 0; round < 40; ++round) {
    const bool wide = round % 2 == 0;
    const int64_t group = wide ? 128 : 32, n = 1 + below(70), k = group * (1 + below(1152 / group)),
                  rows = 1 + below(20), in_group = group / 32;
    Matrix m;
    m.blocks.resize(static_cast<size_t>(n * row_bytes(TensorType::kQ4_1, k)));
    m.tensor = {"w", TensorType::kQ4_1, {n, k}, m.blocks};
    f16 d{}, least{};
    for (int64_t b = 0; b < n * k / 32; ++b) {
      std::byte* block = &m.blocks[static_cast<size_t>(b * 20)];
      if (b % in_group == 0) {
        d = to_f16(0.5f * static_cast<float>(1 << below(3)));
        least = to_f16(static_cast<float>(below(9) - 4));
      }
      std::memcpy(block, &d, 2);
      std::memcpy(block + 2, &least, 2);
      for (int i = 0; i < 16; ++i) block[4 + i] = static_cast<std::byte>(below(256));
    }
    m.values.resize(static_cast<size_t>(n * k));
    dequantize_rows(m.tensor, 0, n, m.values.data());
    std::vector<float> x(static_cast<size_t>(rows * k));
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = i % 32 == 0 ? 127.0f : static_cast<float>(below(255) - 127);
    const Tensor* tensors[] = {&m.tensor};
    auto w = pack_matrix(tensors, wide ? WeightFormat::kInt4Wide : WeightFormat::kInt4, pool);
    ASSERT_TRUE(w.ok()) << w.status().message();
    for (const CpuKernels* kernels : all_kernels()) {
      std::vector<float> y = multiply_all(*kernels, *w, x, rows, 1 + round % 3);
      for (int64_t r = 0; r < rows; ++r)
        for (int64_t i = 0; i < n; ++i) {
          double want = 0;  // below 2^24 halves at all times
          for (int64_t j = 0; j < k; ++j)
            want += static_cast<double>(m.values[static_cast<size_t>(i * k + j)]) *
                    x[static_cast<size_t>(r * k + j)];
          ASSERT_EQ(y[static_cast<size_t>(r * n + i)], want)
              << kernels->name << " " << n << "x" << k << " groups of " << group << " row " << r;
        }
    }
  }
}

// Both round alike everywhere, so a draft says the same on either machine.
TEST(Gemm, Avx2AndAvx512HaveTheSameBitsOfIntegerFormats) {
  if (!kernels_avx2() || !kernels_avx512()) GTEST_SKIP() << "this machine has not got both";
  ThreadPool pool(1);
  for (WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4, WeightFormat::kInt4Wide})
    for (int64_t rows : {1, 3, 16, 21}) {
      const int64_t n = 83, k = width_of(format, 450);
      Matrix m = matrix_for(format, n, k, 31);
      const Tensor* tensors[] = {&m.tensor};
      std::vector<float> x = random_matrix(rows, k, 32).values;
      auto w = pack_matrix(tensors, format, pool);
      EXPECT_EQ(multiply_all(*kernels_avx2(), *w, x, rows, 1),
                multiply_all(*kernels_avx512(), *w, x, rows, 1));
    }
}

TEST(Gemm, GroupsOf128TakeAScaleAndAMinimumForEach128) {
  ThreadPool pool(1);
  Matrix m = matrix_for(WeightFormat::kInt4Wide, 20, 384, 3);
  const Tensor* tensors[] = {&m.tensor};
  auto wide = pack_matrix(tensors, WeightFormat::kInt4Wide, pool);
  auto narrow = pack_matrix(tensors, WeightFormat::kInt4, pool);
  EXPECT_EQ(wide->bytes(), 2 * 3 * (16 * 128 / 2 + 16 * 4));  // two tiles of 16 rows
  EXPECT_EQ(narrow->bytes(), 2 * 12 * (16 * 32 / 2 + 16 * 4));
  EXPECT_EQ(packed_matrix_bytes(WeightFormat::kInt4Wide, 20, 384), wide->bytes());
}

// Shapes and row counts as they come: tails of tiles, of chunks and of both at once.
TEST(Gemm, RandomShapesKeepTheBitsOfOneRowAndOneThread) {
  std::mt19937 rng(11);
  auto upto = [&](int64_t n) { return static_cast<int64_t>(rng() % static_cast<uint32_t>(n)) + 1; };
  ThreadPool pool(1);
  for (int round = 0; round < 60; ++round) {
    int64_t n = upto(150), k = upto(300), rows = upto(40);
    WeightFormat format = kFormats[static_cast<size_t>(round) % kFormats.size()];
    k = width_of(format, k);
    Matrix m = matrix_for(format, n, k, static_cast<uint32_t>(round));
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

// A row that holds NaN or infinity says so in every product, also where activations become
// integers, which have no sign for it; its neighbours keep their bits. Values too small for a scale
// are 0.
TEST(Gemm, WhatIsNotFiniteStaysSoAndInItsRow) {
  ThreadPool pool(1);
  for (const CpuKernels* kernels : all_kernels())
    for (WeightFormat format : kFormats) {
      SCOPED_TRACE(std::string(kernels->name) + " format " +
                   std::to_string(static_cast<int>(format)));
      const int64_t n = 17, k = 128, m = 3;
      Matrix matrix = matrix_for(format, n, k, 5);
      const Tensor* tensors[] = {&matrix.tensor};
      auto w = pack_matrix(tensors, format, pool);
      ASSERT_TRUE(w.ok());
      std::vector<float> x = random_matrix(m, k, 6).values;
      const std::vector<float> sound = multiply_all(*kernels, *w, x, m, 1);
      for (float ill : {NAN, INFINITY, -INFINITY}) {
        std::vector<float> poisoned = x;
        poisoned[static_cast<size_t>(k + 77)] = ill;
        std::vector<float> y = multiply_all(*kernels, *w, poisoned, m, 1);
        for (int64_t i = 0; i < n; ++i) {
          EXPECT_FALSE(std::isfinite(y[static_cast<size_t>(n + i)])) << ill << " column " << i;
          EXPECT_EQ(y[static_cast<size_t>(i)], sound[static_cast<size_t>(i)]);
          EXPECT_EQ(y[static_cast<size_t>(2 * n + i)], sound[static_cast<size_t>(2 * n + i)]);
        }
      }
      for (float tiny : {0.0f, 1e-42f, 1e-37f}) {
        std::vector<float> faint(static_cast<size_t>(k), tiny);
        for (float v : multiply_all(*kernels, *w, faint, 1, 1)) EXPECT_LT(std::fabs(v), 1e-34f);
      }
    }
}

TEST(Gemm, TensorsStandBelowEachOther) {
  ThreadPool pool(2);
  for (WeightFormat format : kFormats) {
    const int64_t k = width_of(format, 64);
    Matrix a = matrix_for(format, 5, k, 1), b = matrix_for(format, 20, k, 2);
    const Tensor *both[] = {&a.tensor, &b.tensor}, *second[] = {&b.tensor};
    std::vector<float> x = random_matrix(1, k, 3).values;
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

TEST(Gemm, RefusesGroupsOf128WhoseBlocksDiffer) {
  ThreadPool pool(2);
  for (TensorType type : {TensorType::kQ4_0, TensorType::kQ4_1})
    for (size_t at : {0, 2}) {
      if (type == TensorType::kQ4_0 && at == 2) continue;  // no minimum
      Matrix m = random_matrix(20, 256, 1);
      quantize(&m, type, 128);
      const size_t row = m.blocks.size() / 20, block = row / 8;
      m.blocks[18 * row + 6 * block + at] ^= std::byte{1};  // row 18, its seventh block
      const Tensor* tensors[] = {&m.tensor};
      auto w = pack_matrix(tensors, WeightFormat::kInt4Wide, pool);
      ASSERT_FALSE(w.ok());
      EXPECT_EQ(w.status().message().rfind("w: row 18 has blocks of different scales", 0), 0u)
          << w.status().message();
    }
}

}  // namespace
}  // namespace pf
