// Keys of a tile, turned: then the scores of 16 keys are one register, and no sum runs across
// lanes. Included inside the anonymous namespace of each instruction-set file. No include guard.

inline float load_key(const bf16* p, int64_t i) { return to_float(p[i]); }
inline float load_key(const float* p, int64_t i) { return p[i]; }

using Words = uint32_t __attribute__((vector_size(64)));

template <int kStride>
inline void exchange(Words& a, Words& b) {
  constexpr auto low = [](int l) { return l & kStride ? 16 + l - kStride : l; };
  constexpr auto high = [](int l) { return l & kStride ? 16 + l : l + kStride; };
  Words x = a, y = b;
#define PF_LANES(f)                                                                              \
  f(0), f(1), f(2), f(3), f(4), f(5), f(6), f(7), f(8), f(9), f(10), f(11), f(12), f(13), f(14), \
      f(15)
  a = __builtin_shufflevector(x, y, PF_LANES(low));
  b = __builtin_shufflevector(x, y, PF_LANES(high));
#undef PF_LANES
}

template <int kStride>
inline void exchange_all(Words (&w)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i)
    if (!(i & kStride)) exchange<kStride>(w[i], w[i + kStride]);
}

// 16 words of each of 16 rows -> 16 words of each of 16 columns.
inline void transpose(const std::byte* const* rows, int64_t offset, Words (&w)[16]) {
#pragma GCC unroll 16
  for (int i = 0; i < 16; ++i) std::memcpy(&w[i], rows[i] + offset, 64);
  exchange_all<8>(w);
  exchange_all<4>(w);
  exchange_all<2>(w);
  exchange_all<1>(w);
}

// 16 keys of D values -> [D][16] floats.
template <class T>
inline void turn_keys(const std::byte* const* rows, int64_t D, float* out) {
  constexpr int64_t kPerWord = sizeof(uint32_t) / sizeof(T);
  int64_t d = 0;
  for (; d + 16 * kPerWord <= D; d += 16 * kPerWord) {
    Words w[16];
    transpose(rows, d * static_cast<int64_t>(sizeof(T)), w);
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      if constexpr (kPerWord == 1) {
        std::memcpy(out + (d + i) * 16, &w[i], 64);
      } else {
        Words even = w[i] << 16, odd = w[i] & 0xffff0000u;
        std::memcpy(out + (d + 2 * i) * 16, &even, 64);
        std::memcpy(out + (d + 2 * i + 1) * 16, &odd, 64);
      }
    }
  }
  for (; d < D; ++d)  // D is an odd multiple of 16
    for (int j = 0; j < 16; ++j) out[d * 16 + j] = load_key(reinterpret_cast<const T*>(rows[j]), d);
}
