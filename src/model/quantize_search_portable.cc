// The search on 4 groups at once, with what every machine has; and which one runs.
#include <algorithm>
#include <cmath>

#include "base/dtype.h"
#include "model/quantize_search.h"

#define PF_LANES 4

namespace pf {
namespace {

#include "model/quantize_search.inc.h"

}  // namespace

QuantSearcher quant_searcher_portable() { return search; }

QuantSearcher choose_quant_searcher() {
  if (QuantSearcher s = quant_searcher_avx512()) return s;
  if (QuantSearcher s = quant_searcher_avx2()) return s;
  return quant_searcher_portable();
}

}  // namespace pf
