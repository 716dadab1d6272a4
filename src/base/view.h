#pragma once

#include <concepts>
#include <cstdint>
#include <span>

#include "base/check.h"

namespace pf {

// A borrowed, dense, row-major array of fixed rank. Never owns, never allocates.
// The element type and the rank are in the type, so a signature says half of what it needs.
template <class T, int kRank>
struct View {
  T* data = nullptr;
  int64_t shape[kRank] = {};

  int64_t size() const {
    int64_t n = 1;
    for (int64_t s : shape) n *= s;
    return n;
  }

  // The element at one index per dimension.
  template <std::integral... I>
  requires(sizeof...(I) == kRank) T& operator()(I... index) const {
    int64_t at = 0;
    int d = 0;
    ((debug_check(index >= 0 && static_cast<int64_t>(index) < shape[d], "index out of a View"),
      at = at * shape[d++] + static_cast<int64_t>(index)),
     ...);
    return data[at];
  }

  // The sub-array at `index` of the first dimension; a row, where the rank is 2.
  View<T, kRank - 1> operator[](int64_t index) const requires(kRank > 1) {
    debug_check(index >= 0 && index < shape[0], "index out of a View");
    View<T, kRank - 1> v;
    int64_t stride = 1;
    for (int d = 1; d < kRank; ++d) stride *= v.shape[d - 1] = shape[d];
    v.data = data + index * stride;
    return v;
  }

  // Elements [first, first + n) of the first dimension.
  View rows(int64_t first, int64_t n) const {
    debug_check(first >= 0 && n >= 0 && first + n <= shape[0], "rows out of a View");
    View v = *this;
    v.shape[0] = n;
    v.data = data + (shape[0] ? first * (size() / shape[0]) : 0);
    return v;
  }

  std::span<T> span() const { return {data, static_cast<size_t>(size())}; }

  // A view that may write is also a view that may read.
  template <std::same_as<const T> C>
  requires(!std::same_as<C, T>) operator View<C, kRank>() const {
    View<C, kRank> v{data};
    for (int i = 0; i < kRank; ++i) v.shape[i] = shape[i];
    return v;
  }
};

}  // namespace pf
