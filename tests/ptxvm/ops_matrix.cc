// mma.sync and ldmatrix. Fragment layouts: PTX ISA, "Matrix Fragments for mma.m16n8k*".
//
// The FP32 sum of an element is order-sensitive in one documented way. A k16 product is two k8
// steps, as on sm_80. A step sums its 8 products in FP32 from k = 0 upwards, each product exact,
// each addition rounded to nearest, and adds that to the accumulator. So m16n8k16 equals two
// m16n8k8 bit for bit, and a kernel whose sums depend on how it splits K gives other bits.

#include <cstring>

#include "ptxvm/decode.h"
#include "ptxvm/halves.h"
#include "ptxvm/lanes.h"

namespace pf::ptxvm {
namespace {

void whole_warp(Warp& w, const Instr& in, u32 mask, const char* name) {
  if (mask != ~0u)
    fail(w, in, __builtin_ctz(~mask), Kind::kPartialWarp,
         std::string(name) + " without the whole warp; this lane is missing");
}

// The pattern of a result; every NaN is the canonical one.
u32 bits_of(float v) { return v != v ? 0x7fffffffu : std::bit_cast<u32>(v); }

// acc[16][8] += a[16][k] * b[k][8] in steps of 8.
void multiply(float (*acc)[8], const float (*a)[16], const float (*b)[8], int k) {
  for (int first = 0; first < k; first += 8) {
    for (int i = 0; i < 16; ++i) {
      float sum[8];
      for (int j = 0; j < 8; ++j) sum[j] = a[i][first] * b[first][j];
      for (int q = first + 1; q < first + 8; ++q)
        for (int j = 0; j < 8; ++j) sum[j] += a[i][q] * b[q][j];
      for (int j = 0; j < 8; ++j) acc[i][j] += sum[j];
    }
  }
}

// One register of a fragment is an 8 x 8 matrix of halves: lane l holds row l / 4, columns
// 2 (l % 4) and the next, which is row-major order. `m` gets it as floats.
template <bool kBrain>
void values_of(const u32* reg, float (*m)[8]) {
  float* out = m[0];
  for (int l = 0; l < 32; ++l) {
    out[2 * l] = kBrain ? bf16_value(reg[l]) : f16_value(reg[l] & 0xffff);
    out[2 * l + 1] = kBrain ? bf16_value(reg[l] >> 16) : f16_value(reg[l] >> 16);
  }
}

// Fragments: A block (row r & 1, column r >> 1) of 8 x 8; B block r, transposed.
template <bool kBrain>
void load_fragments(Warp& w, const u32* a_regs, int n_a, const u32* b_regs, int n_b, float (*a)[16],
                    float (*b)[8]) {
  float m[8][8];
  for (int r = 0; r < n_a; ++r) {
    values_of<kBrain>(w.r32(a_regs[r]), m);
    for (int i = 0; i < 8; ++i) std::memcpy(&a[i + (r & 1) * 8][(r >> 1) * 8], m[i], sizeof m[i]);
  }
  for (int r = 0; r < n_b; ++r) {
    values_of<kBrain>(w.r32(b_regs[r]), m);
    for (int i = 0; i < 8; ++i)
      for (int j = 0; j < 8; ++j) b[r * 8 + i][j] = m[j][i];
  }
}

// f16 and bf16; list: D, A, B, C; vec: registers of D. size: k; type: of D and C; type2: of A, B.
void mma_half(Warp& w, const Instr& in, u32 mask) {
  whole_warp(w, in, mask, "mma.sync");
  const u32* regs = &w.block->kernel->lists[in.list];
  int k = static_cast<int>(in.size), n_a = k / 4, n_b = k / 8;
  const u32 *d_regs = regs, *a_regs = regs + in.vec, *b_regs = a_regs + n_a, *c_regs = b_regs + n_b;
  float a[16][16], b[16][8], acc[16][8];
  if (in.type2 == Type::kBf16)
    load_fragments<true>(w, a_regs, n_a, b_regs, n_b, a, b);
  else
    load_fragments<false>(w, a_regs, n_a, b_regs, n_b, a, b);
  // C and D: rows 0-7 and 8-15; an f16 pair or two f32 registers hold a lane's two columns.
  for (int half = 0; half < 2; ++half) {
    float* out = acc[half * 8];
    if (in.type == Type::kF32) {
      const u32 *even = w.r32(c_regs[2 * half]), *odd = w.r32(c_regs[2 * half + 1]);
      for (int l = 0; l < 32; ++l) {
        out[2 * l] = std::bit_cast<float>(even[l]);
        out[2 * l + 1] = std::bit_cast<float>(odd[l]);
      }
    } else {
      values_of<false>(w.r32(c_regs[half]), acc + half * 8);
    }
  }
  multiply(acc, a, b, k);
  for (int half = 0; half < 2; ++half) {
    const float* v = acc[half * 8];
    if (in.type == Type::kF32) {
      u32 *even = w.r32(d_regs[2 * half]), *odd = w.r32(d_regs[2 * half + 1]);
      for (int l = 0; l < 32; ++l) even[l] = bits_of(v[2 * l]), odd[l] = bits_of(v[2 * l + 1]);
    } else {
      u32* d = w.r32(d_regs[half]);
      for (int l = 0; l < 32; ++l) d[l] = f16_bits(v[2 * l]) | f16_bits(v[2 * l + 1]) << 16;
    }
  }
}

// m16n8k16 and m16n8k32 of bytes. mode bits: A signed, B signed; sat: clamp the sum.
void mma_byte(Warp& w, const Instr& in, u32 mask) {
  whole_warp(w, in, mask, "mma.sync");
  const u32* regs = &w.block->kernel->lists[in.list];
  int k = static_cast<int>(in.size), n_a = k / 8, n_b = k / 16;
  const u32 *d_regs = regs, *a_regs = regs + 4, *b_regs = a_regs + n_a, *c_regs = b_regs + n_b;
  auto byte = [](u32 v, int i, bool sign) {
    u32 x = v >> (8 * i) & 255;
    return sign ? static_cast<int>(static_cast<int8_t>(x)) : static_cast<int>(x);
  };
  int a[16][32], b[32][8];
  for (int r = 0; r < n_a; ++r)
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i)
        a[(l >> 2) + (r & 1) * 8][(l & 3) * 4 + i + (r >> 1) * 16] =
            byte(w.r32(a_regs[r])[l], i, in.mode & 1);
  for (int r = 0; r < n_b; ++r)
    for (int l = 0; l < 32; ++l)
      for (int i = 0; i < 4; ++i)
        b[(l & 3) * 4 + i + r * 16][l >> 2] = byte(w.r32(b_regs[r])[l], i, in.mode & 2);
  u32 out[4][32];
  for (int r = 0; r < 4; ++r)
    for (int l = 0; l < 32; ++l) {
      int row = (l >> 2) + (r >> 1) * 8, column = (l & 3) * 2 + (r & 1);
      int64_t sum = static_cast<int32_t>(w.r32(c_regs[r])[l]);
      for (int q = 0; q < k; ++q) sum += a[row][q] * b[q][column];
      if (in.sat) sum = sum > INT32_MAX ? INT32_MAX : sum < INT32_MIN ? INT32_MIN : sum;
      out[r][l] = static_cast<u32>(sum);
    }
  for (int r = 0; r < 4; ++r) std::memcpy(w.r32(d_regs[r]), out[r], sizeof out[r]);
}

void select_mma(Builder& b) {
  if (!b.take("sync") || !b.take("aligned")) b.fail("only mma.sync.aligned is supported");
  int shape = b.take_one({"m16n8k8", "m16n8k16", "m16n8k32"});
  if (shape < 0) b.fail("unsupported shape");
  if (!b.take("row") || !b.take("col")) b.fail("only .row.col is supported");
  b.in.sat = b.take("satfinite");
  Type d = b.type(), ta = b.type(), tb = b.type(), c = b.type();
  int k = 8 << shape;
  bool half = ta == tb && (ta == Type::kF16 || ta == Type::kBf16),
       bytes = (ta == Type::kS8 || ta == Type::kU8) && (tb == Type::kS8 || tb == Type::kU8);
  bool good = half ? k <= 16 && d == c && (d == Type::kF32 || (d == Type::kF16 && ta == Type::kF16))
                   : bytes && k >= 16 && d == Type::kS32 && c == Type::kS32;
  if (!good) b.fail("unsupported shape or types");
  int n_a = half ? k / 4 : k / 8, n_d = d == Type::kF16 ? 2 : 4;
  b.in.size = static_cast<u32>(k);
  b.in.type = d;
  b.in.type2 = ta;
  b.in.mode = static_cast<uint8_t>((ta == Type::kS8) + 2 * (tb == Type::kS8));
  int want[4] = {n_d, n_a, n_a / 2, n_d};
  for (size_t i = 0; i < 4; ++i) {
    uint8_t n = 0;
    u32 list = b.vector(i, Type::kB32, i == 0, &n);
    if (i == 0) b.in.list = list;
    if (n != want[i]) b.fail("a fragment of the wrong size");
  }
  b.in.vec = static_cast<uint8_t>(n_d);
  b.in.fn = half ? mma_half : mma_byte;
}

void ldmatrix(Warp& w, const Instr& in, u32 mask) {
  whole_warp(w, in, mask, "ldmatrix.sync");
  const u32* regs = &w.block->kernel->lists[in.list];
  uint64_t address[32];
  for (int l = 0; l < 32; ++l)
    address[l] = in.address64 ? w.r64(in.r[1])[l] + static_cast<uint64_t>(in.disp)
                              : static_cast<u32>(w.r32(in.r[1])[l] + static_cast<u32>(in.disp));
  for (int q = 0; q < in.vec; ++q) {
    uint16_t m[8][8];
    for (int r = 0; r < 8; ++r)
      std::memcpy(
          m[r], access(w, in, q * 8 + r, in.space, address[q * 8 + r], 16, Access::kRead, nullptr),
          16);
    u32* d = w.r32(regs[q]);
    for (int l = 0; l < 32; ++l) {
      int row = l >> 2, column = (l & 3) * 2;
      d[l] = in.mode ? m[column][row] | u32(m[column + 1][row]) << 16
                     : m[row][column] | u32(m[row][column + 1]) << 16;
    }
  }
  if (w.block->measure)
    measure_access(w, in, in.space, address, in.vec == 4 ? ~0u : (1u << (in.vec * 8)) - 1, 16);
}
void select_ldmatrix(Builder& b) {
  if (!b.take("sync") || !b.take("aligned") || !b.take("m8n8"))
    b.fail("only ldmatrix.sync.aligned.m8n8 is supported");
  int n = b.take_one({"x1", "x2", "x4"});
  b.in.mode = b.take("trans");
  b.in.space = b.space();
  if (b.type() != Type::kB16) b.fail("unsupported type");
  b.in.r[1] = b.address(1, &b.in.disp);
  b.in.list = b.vector(0, Type::kB32, true, &b.in.vec);
  if (n < 0 || b.in.vec != 1 << n) b.fail("as many registers as matrices are needed");
  b.in.fn = ldmatrix;
}

// movmatrix: transpose of an 8 x 8 matrix held as one register per lane.
void movmatrix(Warp& w, const Instr& in, u32 mask) {
  whole_warp(w, in, mask, "movmatrix.sync");
  uint16_t m[8][8];
  for (int l = 0; l < 32; ++l) {
    u32 v = w.r32(in.r[1])[l];
    m[l >> 2][(l & 3) * 2] = static_cast<uint16_t>(v);
    m[l >> 2][(l & 3) * 2 + 1] = static_cast<uint16_t>(v >> 16);
  }
  for (int l = 0; l < 32; ++l)
    w.r32(in.r[0])[l] = m[(l & 3) * 2][l >> 2] | u32(m[(l & 3) * 2 + 1][l >> 2]) << 16;
}

}  // namespace

void add_matrix_ops(SelectorTable& t) {
  t["mma"] = select_mma;
  t["ldmatrix"] = select_ldmatrix;
  t["movmatrix"] = [](Builder& b) {
    for (const char* m : {"sync", "aligned", "m8n8", "trans", "b16"}) b.take(m);
    b.in.r[0] = b.target(0, Type::kB32);
    b.in.r[1] = b.source(1, Type::kB32);
    b.in.fn = movmatrix;
  };
}

}  // namespace pf::ptxvm
