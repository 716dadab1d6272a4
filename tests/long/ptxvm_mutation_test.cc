// Truth: the float64 oracles of two kernels. One executed PTX instruction at a time is edited at
// random; the machine's checks or the oracle must notice at least nine of ten edits. The survivors
// are printed, to be explained. Those seen are edits without an effect on these inputs: bounds that
// are never met with equality, guards around loops that run anyway, signed arithmetic on what is
// never negative, a rounding below the tolerance, a shuffle whose other lanes are not used.
//
// PF_MUTANTS sets how many edits are tried per kernel (default 400), PF_SEED which ones.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <random>

#include "base/dtype.h"
#include "long/ptx_edits.h"
#include "ptxvm/ptxvm.h"
#include "ptxvm/samples/samples.h"

namespace pf::ptxvm {
namespace {

std::vector<float> values(size_t n, uint32_t seed) {
  std::vector<float> v(n);
  for (float& x : v) {
    seed = seed * 1664525u + 1013904223u;
    x = to_float(to_f16(static_cast<float>(static_cast<int>(seed >> 8) % 2000 - 1000) / 500.0f));
  }
  return v;
}
template <class T>
T* on_device(const std::vector<T>& host) {
  void* p = nullptr;
  cudaMalloc(&p, host.size() * sizeof(T));
  cudaMemcpy(p, host.data(), host.size() * sizeof(T), cudaMemcpyHostToDevice);
  return static_cast<T*>(p);
}
std::vector<uint16_t> halves(const std::vector<float>& v) {
  std::vector<uint16_t> h;
  for (float x : v) h.push_back(to_f16(x).bits);
  return h;
}
__half* half_array(const std::vector<float>& v) {
  return reinterpret_cast<__half*>(on_device(halves(v)));
}

// A kernel on fixed inputs with the answer. `run` says whether the answer came out; findings are
// left for the caller.
struct Subject {
  std::string kernel;
  std::function<bool()> run;
};

// softmax(q k^T / 8) v in f64, rows of 64.
std::vector<double> attention(const std::vector<float>& q, const std::vector<float>& k,
                              const std::vector<float>& v, size_t n) {
  std::vector<double> out(n * 64), p(n);
  for (size_t i = 0; i < n; ++i) {
    double sum = 0;
    for (size_t j = 0; j < n; ++j) {
      p[j] = 0;
      for (size_t d = 0; d < 64; ++d) p[j] += double(q[i * 64 + d]) * k[j * 64 + d] / 8;
      sum += p[j] = std::exp(p[j]);
    }
    for (size_t j = 0; j < n; ++j)
      for (size_t d = 0; d < 64; ++d) out[i * 64 + d] += p[j] / sum * v[j * 64 + d];
  }
  return out;
}
Subject flash_subject() {
  const size_t n = 130;  // two whole tiles and a part of a third
  auto q = values(n * 64, 1), k = values(n * 64, 2), v = values(n * 64, 3);
  auto want = attention(q, k, v, n);
  __half *dq = half_array(q), *dk = half_array(k), *dv = half_array(v);
  return {"flash_kernel", [=] {
            __half* out = nullptr;
            cudaMalloc(reinterpret_cast<void**>(&out), n * 128);
            flash_attention(dq, dk, dv, out, static_cast<int>(n));
            std::vector<uint16_t> got(n * 64);
            bool right =
                cudaMemcpy(got.data(), out, n * 128, cudaMemcpyDeviceToHost) == cudaSuccess;
            cudaFree(out);
            // p and the result are f16 of values up to 2: 2^-11 relative each.
            for (size_t i = 0; right && i < want.size(); ++i)
              right = std::fabs(to_float(f16{got[i]}) - want[i]) < 4e-3;
            return right;
          }};
}
Subject gemv_subject() {
  const size_t rows = 7, k = 1544;  // 193 words: six rounds of a warp, then one word
  std::vector<unsigned> w(rows * k / 8);
  for (size_t i = 0; i < w.size(); ++i) w[i] = static_cast<unsigned>(i * 2654435761u);
  auto x = values(k, 9);
  std::vector<double> want(rows);
  for (size_t r = 0; r < rows; ++r)
    for (size_t i = 0; i < k; ++i)
      want[r] += (double(w[r * k / 8 + i / 8] >> (4 * (i % 8)) & 15) - 8) * x[i];
  unsigned* dw = on_device(w);
  __half* dx = half_array(x);
  return {"int4_gemv_kernel", [=] {
            float* y = nullptr;
            cudaMalloc(reinterpret_cast<void**>(&y), rows * 4);
            int4_gemv(dw, dx, y, static_cast<int>(rows), static_cast<int>(k));
            std::vector<float> got(rows);
            bool right = cudaMemcpy(got.data(), y, rows * 4, cudaMemcpyDeviceToHost) == cudaSuccess;
            cudaFree(y);
            // 1544 exact products below 16, summed in f32.
            for (size_t r = 0; right && r < rows; ++r) right = std::fabs(got[r] - want[r]) < 1e-3;
            return right;
          }};
}

// How the edit was noticed: a kind of finding, "wrong result", "survived", or "" when the edited
// text is no PTX that the machine takes (such an edit does not count).
std::string fate(const Subject& subject) {
  bool right = subject.run();
  std::vector<Finding> found = take_findings();
  for (const Finding& f : found)
    if (f.kind == Kind::kUnsupported) return "";
  for (const Finding& f : found)  // the first one that the kernel caused
    if (!f.kernel.empty()) return kind_name(f.kind);
  return !found.empty() ? kind_name(found[0].kind) : right ? "survived" : "wrong result";
}

void expect_killed(const Subject& subject) {
  std::string original = registered_ptx();
  clear_measures();
  ASSERT_TRUE(subject.run());
  ASSERT_TRUE(take_findings().empty());
  std::vector<std::string> lines = lines_of(original);
  const std::vector<Edit> all = shuffled_edits(lines, executed_ptx_lines(subject.kernel));

  settings().print_findings = false;
  settings().max_steps = 20 * measure(subject.kernel).warp_steps;
  std::map<std::string, int> fates;
  std::string survivors;
  uint32_t n = 0, wanted = number_from("PF_MUTANTS", 400);
  for (const Edit& e : all) {
    if (n == wanted) break;
    clear_measures();
    replace_ptx(edited(lines, e));
    std::string f = fate(subject);
    if (f.empty()) continue;
    ++n;
    ++fates[f];
    if (f == "survived")
      survivors += "  PTX " + std::to_string(e.line + 1) + ": " + lines[e.line] + "\n        -> " +
                   (e.text.empty() ? "(gone)" : e.text) + "\n";
  }
  clear_measures();
  replace_ptx(original);
  settings().print_findings = true;
  settings().max_steps = Settings{}.max_steps;

  double killed = 1 - double(fates["survived"]) / n;
  std::printf("%s: %zu edits possible, %u tried, %.1f %% killed\n", subject.kernel.c_str(),
              all.size(), n, 100 * killed);
  for (const auto& [name, count] : fates) std::printf("  %4d %s\n", count, name.c_str());
  testing::Test::RecordProperty("tried", std::to_string(n));  // for scripts/ptx_table.py
  testing::Test::RecordProperty("killed", std::to_string(killed));
  std::printf("survivors:\n%s", survivors.c_str());
  EXPECT_GE(killed, 0.9) << subject.kernel;
}

TEST(Mutation, FlashAttention) { expect_killed(flash_subject()); }
TEST(Mutation, Int4Gemv) { expect_killed(gemv_subject()); }

}  // namespace
}  // namespace pf::ptxvm
