#pragma once

#include "base/check.h"
#include "base/view.h"
#include "kernels/common/check_aligned.h"

namespace pf::kernels {

// Up to three tables of rows of one width, taken as one behind the other.
template <class A>
struct Tables {
  const A* x[3];  // [V[j], E]
  int64_t V[3];

  // The first value of row `at`; null where at < 0; a trap past the last table.
  __device__ const A* row(int64_t at, int E) const {
    if (at < 0) return nullptr;
#pragma unroll
    for (int j = 0; j < 3; ++j) {
      if (at < V[j]) return x[j] + at * E;
      at -= V[j];
    }
    __trap();
    return nullptr;
  }
};

template <class A>
Tables<A> tables_of(const View<const A, 2> (&views)[3], int64_t E) {
  Tables<A> t{};
  for (int j = 0; j < 3; ++j) {
    check(views[j].shape[0] == 0 || views[j].shape[1] == E, "joined tables: one of another width");
    check_aligned({views[j].data});
    t.x[j] = views[j].data;
    t.V[j] = views[j].shape[0];
  }
  return t;
}

}  // namespace pf::kernels
