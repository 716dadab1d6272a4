// Floating point: f32, f64, f16, bf16 and the packed halves. Semantics: PTX ISA sections
// "Floating Point" and "Half Precision". The approx functions are the host's, which are closer to
// the real value than the device's 1-2 ulp; a kernel's test tolerance must allow the device's.

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "ptxvm/decode.h"
#include "ptxvm/halves.h"
#include "ptxvm/lanes.h"
#include "ptxvm/rounding.h"

namespace pf::ptxvm {
namespace {

enum Op : uint8_t {
  kAdd,
  kSub,
  kMul,
  kDiv,
  kSqrt,
  kFma,
  kMin,
  kMax,
  kNeg,
  kAbs,
  kRcp,
  kRsqrt,
  kEx2,
  kLg2,
  kSin,
  kCos,
  kTanh
};

float flush(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }
float canonical(float v) { return v != v ? std::bit_cast<float>(0x7fffffffu) : v; }

// One operand NaN: the other; both: NaN. With `.NaN` any NaN wins. -0 is less than +0.
template <class T>
T smaller(T a, T b, bool nan_wins) {
  if (a != a || b != b)
    return nan_wins || (a != a && b != b) ? std::numeric_limits<T>::quiet_NaN() : a != a ? b : a;
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
template <class T>
T larger(T a, T b, bool nan_wins) {
  return -smaller<T>(-a, -b, nan_wins);
}

template <class T>
T evaluate(uint8_t op, Rounding mode, bool nan_wins, T a, T b, T c) {
  switch (op) {
    case kMin:
      return smaller(a, b, nan_wins);
    case kMax:
      return larger(a, b, nan_wins);
    case kNeg:
      return -a;
    case kAbs:
      return std::fabs(a);
    case kRcp:
      return rounded(Arith::kDiv, mode, T(1), a, T(0));
    case kRsqrt:
      return static_cast<T>(1 / std::sqrt(static_cast<long double>(a)));
    case kEx2:
      return std::exp2(a);
    case kLg2:
      return std::log2(a);
    case kSin:
      return std::sin(a);
    case kCos:
      return std::cos(a);
    case kTanh:
      return std::tanh(a);
    default:
      return rounded(static_cast<Arith>(op), mode, a, b, c);
  }
}

// The general f32 and f64 forms. mode: rounding; mode2: op; vec: operands; strong: `.NaN`.
void general32(Warp& w, const Instr& in, u32 mask) {
  u32* d = w.r32(in.r[0]);
  each_lane(mask, [&](int l) {
    float v[3] = {};
    for (int i = 0; i < in.vec; ++i) {
      v[i] = std::bit_cast<float>(w.r32(in.r[i + 1])[l]);
      if (in.ftz) v[i] = flush(v[i]);
    }
    float r =
        evaluate<float>(in.mode2, static_cast<Rounding>(in.mode), in.strong, v[0], v[1], v[2]);
    if (in.ftz) r = flush(r);
    if (in.sat) r = r > 0 ? std::min(r, 1.0f) : 0.0f;  // NaN and -0 too
    bool bitwise = in.mode2 == kNeg || in.mode2 == kAbs;
    d[l] = std::bit_cast<u32>(bitwise ? r : canonical(r));
  });
}
void general64(Warp& w, const Instr& in, u32 mask) {
  u64* d = w.r64(in.r[0]);
  each_lane(mask, [&](int l) {
    double v[3] = {};
    for (int i = 0; i < in.vec; ++i) v[i] = std::bit_cast<double>(w.r64(in.r[i + 1])[l]);
    d[l] = std::bit_cast<u64>(
        evaluate<double>(in.mode2, static_cast<Rounding>(in.mode), in.strong, v[0], v[1], v[2]));
  });
}

// One half: exact in float (double for fma), then one rounding.
u32 evaluate_half(const Instr& in, bool brain, const u32* v) {
  int e = brain ? 8 : 5, m = brain ? 7 : 10;
  u32 sign = v[0] & 0x8000;
  if (in.mode2 == kNeg) return v[0] ^ 0x8000;
  if (in.mode2 == kAbs) return v[0] ^ sign;
  float x[3];
  for (int i = 0; i < 3; ++i)
    x[i] = brain ? to_float(bf16{static_cast<uint16_t>(v[i])})
                 : to_float(f16{static_cast<uint16_t>(v[i])});
  if (in.ftz)  // of f16 only
    for (float& y : x)
      if (std::fabs(y) < 0x1p-14f) y = std::copysign(0.0f, y);
  long double r = in.mode2 == kFma ? static_cast<long double>(fma_to_odd(x[0], x[1], x[2]))
                                   : static_cast<long double>(evaluate<float>(
                                         in.mode2, kNearest, in.strong, x[0], x[1], x[2]));
  if (in.sat) r = r > 0 ? std::min(r, 1.0L) : 0;
  if (in.ftz && std::fabs(r) < 0x1p-14L) r = std::copysign(0.0L, r);
  if (in.disp) r = r < 0 ? 0 : r;  // .relu
  return static_cast<u32>(narrow(r, e, m, kNearest));
}
void halves(Warp& w, const Instr& in, u32 mask) {
  bool brain = in.type == Type::kBf16 || in.type == Type::kBf16x2,
       pair = in.type == Type::kF16x2 || in.type == Type::kBf16x2;
  u32* d = w.r32(in.r[0]);
  each_lane(mask, [&](int l) {
    u32 lo[3] = {}, hi[3] = {};
    for (int i = 0; i < in.vec; ++i) {
      u32 v = w.r32(in.r[i + 1])[l];
      lo[i] = v & 0xffff;
      hi[i] = v >> 16;
    }
    u32 r = evaluate_half(in, brain, lo);
    if (pair) r |= evaluate_half(in, brain, hi) << 16;
    d[l] = r;
  });
}

// The common half forms, as vector loops. Add, subtract and multiply as f32 are exact enough for
// one rounding (24 bits are more than twice 11 plus 2); fma goes through round to odd.
template <Op kOp, bool kBrain>
u32 plain_half(u32 a, u32 b, u32 c) {
  auto value = [](u32 v) { return kBrain ? bf16_value(v) : f16_value(v & 0xffff); };
  float x = value(a), y = value(b);
  float r = kOp == kAdd   ? x + y
            : kOp == kSub ? x - y
            : kOp == kMul ? x * y
                          : to_odd(fma_to_odd(x, y, value(c)));
  return kBrain ? bf16_bits(r) : f16_bits(r);
}
template <Op kOp, bool kBrain, bool kPair>
void plain_halves(Warp& w, const Instr& in, u32 mask) {
  u32 *d = w.r32(in.r[0]), *a = w.r32(in.r[1]), *b = w.r32(in.r[2]),
      *c = w.r32(kOp == kFma ? in.r[3] : in.r[2]);
  for_lanes(mask, [=](int l) {
    u32 r = plain_half<kOp, kBrain>(a[l] & 0xffff, b[l] & 0xffff, c[l] & 0xffff);
    if (kPair) r |= plain_half<kOp, kBrain>(a[l] >> 16, b[l] >> 16, c[l] >> 16) << 16;
    d[l] = r;
  });
}
template <Op kOp>
Handler fast_half(Type t) {
  return t == Type::kF16     ? plain_halves<kOp, false, false>
         : t == Type::kF16x2 ? plain_halves<kOp, false, true>
         : t == Type::kBf16  ? plain_halves<kOp, true, false>
                             : plain_halves<kOp, true, true>;
}
Handler fast_half(Op op, Type t) {
  return op == kAdd   ? fast_half<kAdd>(t)
         : op == kSub ? fast_half<kSub>(t)
         : op == kMul ? fast_half<kMul>(t)
         : op == kFma ? fast_half<kFma>(t)
                      : nullptr;
}

// The common f32 forms, as vector loops.
using f = float;
Handler fast32(Op op) {
  switch (op) {
    case kAdd:
      return map2<f, f, f, [](f a, f b) { return canonical(a + b); }>;
    case kSub:
      return map2<f, f, f, [](f a, f b) { return canonical(a - b); }>;
    case kMul:
      return map2<f, f, f, [](f a, f b) { return canonical(a * b); }>;
    case kFma:
      return map3<f, f, f, f, [](f a, f b, f c) { return canonical(__builtin_fmaf(a, b, c)); }>;
    case kDiv:
      return map2<f, f, f, [](f a, f b) { return canonical(a / b); }>;
    case kNeg:
      return map1<u32, u32, [](u32 a) -> u32 { return a ^ 0x80000000u; }>;
    case kAbs:
      return map1<u32, u32, [](u32 a) -> u32 { return a & 0x7fffffffu; }>;
    case kMax:
      return map2<f, f, f, [](f a, f b) {
        return a != a   ? canonical(b)
               : b != b ? a
               : a == b ? (std::bit_cast<u32>(a) >> 31 ? b : a)
                        : (a > b ? a : b);
      }>;
    default:
      return nullptr;
  }
}

void select(Builder& b, Op op, int n, Type t) {
  Instr& in = b.in;
  bool directed = false;
  int mode = b.take_one({"rn", "rz", "rm", "rp"});
  directed = mode > 0;
  b.take_one({"approx", "full"});
  in.ftz = b.take("ftz");
  b.take("noftz");
  in.sat |= b.take("sat");
  in.strong = b.take("NaN");
  in.disp = b.take("relu");
  if (in.ftz && (t == Type::kBf16 || t == Type::kBf16x2)) b.fail(".ftz is not of bf16");
  in.type = t;
  in.mode = static_cast<uint8_t>(std::max(mode, 0));
  in.mode2 = op;
  in.vec = static_cast<uint8_t>(n);
  in.r[0] = b.target(0, t);
  for (int i = 1; i <= n; ++i) in.r[i] = b.source(static_cast<size_t>(i), t);
  if (t == Type::kF64)
    in.fn = general64;
  else if (t != Type::kF32)
    in.fn = in.ftz || in.sat || in.strong || in.disp ? nullptr : fast_half(op, t);
  else
    in.fn = directed || in.ftz || in.sat || in.strong ? nullptr : fast32(op);
  if (in.fn == nullptr) in.fn = t == Type::kF32 ? general32 : halves;
  if (in.disp && t == Type::kF32) b.fail(".relu needs a half type");
}

template <Op kOp>
void select_function(Builder& b) {
  Type t = b.type();
  if (!is_float(t)) b.fail("unsupported type");
  select(b, kOp, 1, t);
}

template <class T>
void copysign_bits(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]), *b = lanes_of<T>(w, in.r[2]);
  constexpr T kSign = T(1) << (8 * sizeof(T) - 1);
  each_lane(mask, [&](int l) { d[l] = (a[l] & kSign) | (b[l] & ~kSign); });
}

void testp(Warp& w, const Instr& in, u32 mask) {
  u32 r = 0;
  each_lane(mask, [&](int l) {
    int c = in.type == Type::kF64 ? std::fpclassify(std::bit_cast<double>(w.r64(in.r[1])[l]))
                                  : std::fpclassify(std::bit_cast<float>(w.r32(in.r[1])[l]));
    static constexpr int kClass[] = {0, FP_INFINITE, 0, FP_NAN, FP_NORMAL, FP_SUBNORMAL};
    bool yes = in.mode == 0   ? c != FP_INFINITE && c != FP_NAN
               : in.mode == 2 ? c != FP_NAN
                              : c == kClass[in.mode];
    r |= u32(yes) << l;
  });
  w.set_predicate(in.r[0], mask, r);
}

}  // namespace

bool is_float(Type t) {
  switch (t) {
    case Type::kF16:
    case Type::kBf16:
    case Type::kF16x2:
    case Type::kBf16x2:
    case Type::kF32:
    case Type::kF64:
      return true;
    default:
      return false;
  }
}

void select_float(Builder& b, const char* op, Type t) {
  std::string name = op;
  static const std::map<std::string, std::pair<Op, int>> kOps = {
      {"add", {kAdd, 2}}, {"sub", {kSub, 2}}, {"mul", {kMul, 2}},
      {"div", {kDiv, 2}}, {"fma", {kFma, 3}}, {"min", {kMin, 2}},
      {"max", {kMax, 2}}, {"neg", {kNeg, 1}}, {"abs", {kAbs, 1}}};
  auto [code, n] = kOps.at(name);
  select(b, code, n, t);
}

void add_float_ops(SelectorTable& t) {
  t["fma"] = [](Builder& b) {
    Type y = b.type();
    select(b, kFma, 3, y);
  };
  t["sqrt"] = select_function<kSqrt>;
  t["rcp"] = select_function<kRcp>;
  t["rsqrt"] = select_function<kRsqrt>;
  t["ex2"] = select_function<kEx2>;
  t["lg2"] = select_function<kLg2>;
  t["sin"] = select_function<kSin>;
  t["cos"] = select_function<kCos>;
  t["tanh"] = select_function<kTanh>;
  t["copysign"] = [](Builder& b) {
    Type y = b.type();
    b.in.r[0] = b.target(0, y);
    b.in.r[1] = b.source(1, y);
    b.in.r[2] = b.source(2, y);
    b.in.fn = y == Type::kF64 ? copysign_bits<u64> : copysign_bits<u32>;
  };
  t["testp"] = [](Builder& b) {
    b.in.mode = static_cast<uint8_t>(
        b.take_one({"finite", "infinite", "number", "notanumber", "normal", "subnormal"}));
    b.in.type = b.type();
    b.in.r[0] = b.predicate(0);
    b.in.r[1] = b.source(1, b.in.type);
    b.in.fn = testp;
  };
}

}  // namespace pf::ptxvm
