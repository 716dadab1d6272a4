// The search on 8 groups at once.
#include "model/quantize_search.h"

#if defined(__AVX2__)

#include <algorithm>
#include <cmath>

#include "base/dtype.h"

#define PF_LANES 8

namespace pf {
namespace {

#include "model/quantize_search.inc.h"

}  // namespace

QuantSearcher quant_searcher_avx2() { return __builtin_cpu_supports("avx2") ? search : nullptr; }

}  // namespace pf

#else

namespace pf {
QuantSearcher quant_searcher_avx2() { return nullptr; }
}  // namespace pf

#endif
