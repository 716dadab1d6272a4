// The search on 16 groups at once.
#include "model/quantize_search.h"

#if defined(__AVX512F__)

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

#define PF_LANES 16

namespace pf {
namespace {

#include "model/quantize_search.inc.h"

}  // namespace

QuantSearcher quant_searcher_avx512() {
  return __builtin_cpu_supports("avx512f") ? search : nullptr;
}

}  // namespace pf

#else

namespace pf {
QuantSearcher quant_searcher_avx512() { return nullptr; }
}  // namespace pf

#endif
