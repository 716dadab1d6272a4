// Comparisons and selects of every type: setp, set, selp, slct. Semantics: PTX ISA sections
// "Comparison and Select" and "Half Precision Comparison".

#include <bit>
#include <cmath>

#include "base/dtype.h"
#include "ptxvm/decode.h"
#include "ptxvm/lanes.h"

namespace pf::ptxvm {
namespace {

enum Compare : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kNum, kNan };
template <class T>
bool compare(uint8_t op, bool unordered_true, T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    bool nan = a != a || b != b;
    if (op == kNum) return !nan;
    if (op == kNan) return nan;
    if (nan) return unordered_true;
  }
  switch (op) {
    case kEq:
      return a == b;
    case kNe:
      return a != b;
    case kLt:
      return a < b;
    case kLe:
      return a <= b;
    case kGt:
      return a > b;
    default:
      return a >= b;
  }
}
float flush(float v) { return std::fpclassify(v) == FP_SUBNORMAL ? std::copysign(0.0f, v) : v; }

// Bits of lanes for which the comparison holds. mode: comparison | 8 when NaN makes it true.
template <class T, uint8_t kCompare>
u32 compare_mask(Warp& w, const Instr& in) {
  const auto *a = lanes_of<T>(w, in.r[2]), *b = lanes_of<T>(w, in.r[3]);
  u32 hits[32];
  bool u = in.mode & 8;
#pragma GCC ivdep
  for (int l = 0; l < 32; ++l)
    hits[l] = compare<T>(kCompare, u, from_word<T>(a[l]), from_word<T>(b[l])) ? 1u : 0u;
  u32 r = 0;
  for (int l = 0; l < 32; ++l) r |= hits[l] << l;
  return r;
}
template <class T>
u32 compare_mask(Warp& w, const Instr& in) {
  switch (in.mode & 7) {
    case kEq:
      return compare_mask<T, kEq>(w, in);
    case kNe:
      return compare_mask<T, kNe>(w, in);
    case kLt:
      return compare_mask<T, kLt>(w, in);
    case kLe:
      return compare_mask<T, kLe>(w, in);
    case kGt:
      return compare_mask<T, kGt>(w, in);
    case kGe:
      return compare_mask<T, kGe>(w, in);
    case kNum:
      return compare_mask<T, kNum>(w, in);
    default:
      return compare_mask<T, kNan>(w, in);
  }
}
float half_of(Type t, u32 v) {
  return t == Type::kF16 ? to_float(f16{u16(v)}) : to_float(bf16{u16(v)});
}
u32 compare_halves(Warp& w, const Instr& in, int shift) {
  const u32 *a = w.r32(in.r[2]), *b = w.r32(in.r[3]);
  Type t = in.type == Type::kF16 || in.type == Type::kF16x2 ? Type::kF16 : Type::kBf16;
  u32 r = 0;
  for (int l = 0; l < 32; ++l)
    r |= u32(compare<float>(in.mode & 7, in.mode & 8, half_of(t, a[l] >> shift),
                            half_of(t, b[l] >> shift)))
         << l;
  return r;
}
u32 compared(Warp& w, const Instr& in) {
  switch (in.type) {
    case Type::kU16:
    case Type::kB16:
      return compare_mask<u16>(w, in);
    case Type::kS16:
      return compare_mask<s16>(w, in);
    case Type::kU32:
    case Type::kB32:
      return compare_mask<u32>(w, in);
    case Type::kS32:
      return compare_mask<s32>(w, in);
    case Type::kU64:
    case Type::kB64:
      return compare_mask<u64>(w, in);
    case Type::kS64:
      return compare_mask<s64>(w, in);
    case Type::kF64:
      return compare_mask<double>(w, in);
    case Type::kF16:
    case Type::kBf16:
      return compare_halves(w, in, 0);
    default:
      break;
  }
  if (!in.ftz) return compare_mask<float>(w, in);
  const auto *a = lanes_of<float>(w, in.r[2]), *b = lanes_of<float>(w, in.r[3]);
  u32 r = 0;
  for (int l = 0; l < 32; ++l)
    r |= u32(compare<float>(in.mode & 7, in.mode & 8, flush(from_word<float>(a[l])),
                            flush(from_word<float>(b[l]))))
         << l;
  return r;
}
u32 combine(Warp& w, const Instr& in, u32 hit) {
  if (in.mode2 == 0) return hit;
  u32 c = w.predicate(in.r[4]);
  return in.mode2 == 1 ? hit & c : in.mode2 == 2 ? hit | c : hit ^ c;
}
void setp(Warp& w, const Instr& in, u32 mask) {
  if (in.type == Type::kF16x2 || in.type == Type::kBf16x2) {
    u32 lo = compare_halves(w, in, 0), hi = compare_halves(w, in, 16);
    w.set_predicate(in.r[0], mask, combine(w, in, lo));
    w.set_predicate(in.r[1], mask, combine(w, in, hi));
    return;
  }
  u32 hit = compared(w, in), p = combine(w, in, hit), q = combine(w, in, ~hit);
  w.set_predicate(in.r[0], mask, p);
  w.set_predicate(in.r[1], mask, q);
}
void set(Warp& w, const Instr& in, u32 mask) {
  u32* d = w.r32(in.r[0]);
  if (in.type == Type::kF16x2 || in.type == Type::kBf16x2) {
    u32 lo = combine(w, in, compare_halves(w, in, 0)),
        hi = combine(w, in, compare_halves(w, in, 16));
    u32 one = in.type2 == Type::kF16x2 ? 0x3c00 : in.type2 == Type::kBf16x2 ? 0x3f80 : 0xffff;
    each_lane(mask, [&](int l) { d[l] = (lo >> l & 1 ? one : 0) | (hi >> l & 1 ? one << 16 : 0); });
    return;
  }
  u32 hit = combine(w, in, compared(w, in));
  u32 one = in.type2 == Type::kF32                             ? 0x3f800000u
            : in.type2 == Type::kF16                           ? 0x3c00u
            : in.type2 == Type::kBf16                          ? 0x3f80u
            : in.type2 == Type::kU16 || in.type2 == Type::kS16 ? 0xffffu
                                                               : ~0u;
  each_lane(mask, [&](int l) { d[l] = hit >> l & 1 ? one : 0; });
}
void select_compare(Builder& b, bool to_register) {
  // The unsigned names lo, ls, hi, hs and the unordered equ... share the comparison.
  int c = b.take_one({"eq", "ne", "lt", "le", "gt", "ge", "num", "nan", "equ", "neu", "ltu", "leu",
                      "gtu", "geu", "lo", "ls", "hi", "hs"});
  if (c < 0) b.fail("no comparison");
  b.in.mode = static_cast<uint8_t>(c < 8 ? c : c < 14 ? (c - 8) | 8 : c - 14 + kLt);
  b.in.mode2 = static_cast<uint8_t>(b.take_one({"and", "or", "xor"}) + 1);
  b.in.ftz = b.take("ftz");
  if (to_register) b.in.type2 = b.type();
  Type t = b.in.type = b.type();
  if (to_register) {
    b.in.r[0] = b.target(0, b.in.type2);
  } else {
    b.in.r[0] = b.predicate(0);
    b.in.r[1] = b.piped_predicate(0);
  }
  b.in.r[2] = b.source(1, t);
  b.in.r[3] = b.source(2, t);
  if (b.in.mode2) b.in.r[4] = b.predicate(3);
  b.in.fn = to_register ? set : setp;
}

template <class T>
void selp(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]), *b = lanes_of<T>(w, in.r[2]);
  u32 p = w.predicate(in.r[3]);
  for_lanes(mask, [=](int l) { d[l] = p >> l & 1 ? a[l] : b[l]; });
}
void select_selp(Builder& b) {
  Type t = b.type();
  b.in.r[0] = b.target(0, t);
  for (size_t i = 1; i <= 2; ++i) b.in.r[i] = b.source(i, t);
  b.in.r[3] = b.predicate(3);
  b.in.fn = size_of(t) == 8 ? selp<u64> : selp<u32>;
}
template <class T>
void slct(Warp& w, const Instr& in, u32 mask) {
  auto *d = lanes_of<T>(w, in.r[0]), *a = lanes_of<T>(w, in.r[1]), *b = lanes_of<T>(w, in.r[2]);
  const u32* c = w.r32(in.r[3]);
  each_lane(mask, [&](int l) {
    bool first = static_cast<s32>(c[l]) >= 0;
    if (in.type2 == Type::kF32) {
      float v = std::bit_cast<float>(c[l]);
      first = (in.ftz ? flush(v) : v) >= 0;
    }
    d[l] = first ? a[l] : b[l];
  });
}
void select_slct(Builder& b) {
  b.in.ftz = b.take("ftz");
  Type t = b.type();
  b.in.type2 = b.type();
  Type c = b.in.type2;
  b.in.r[0] = b.target(0, t);
  for (size_t i = 1; i <= 2; ++i) b.in.r[i] = b.source(i, t);
  b.in.r[3] = b.source(3, c);
  b.in.fn = size_of(t) == 8 ? slct<u64> : slct<u32>;
}

}  // namespace

void add_compare_ops(SelectorTable& t) {
  t["setp"] = [](Builder& b) { select_compare(b, false); };
  t["set"] = [](Builder& b) { select_compare(b, true); };
  t["selp"] = select_selp;
  t["slct"] = select_slct;
}

}  // namespace pf::ptxvm
