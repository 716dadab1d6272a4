#include <cmath>

#include "fuzz/target.h"
#include "server/make_request.h"
#include "server/small_model.h"

const pf::fuzz::Target pf::fuzz::target{"request", 20000};

// A request as it comes over the wire: what the border lets in, the engine can take.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace pf;
  static const ServedModel model = small_model();
  wire::GenerateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) return 0;
  if (Status s = check_request(request, model); !s.ok()) return fuzz::check_refusal(s), 0;
  Result<PreparedRequest> made = make_request(request, model, 0);
  if (!made.ok()) return fuzz::check_refusal(made.status()), 0;
  const Request& r = *made->request;
  check(!r.prompt.empty() && static_cast<int64_t>(r.prompt.size()) <= model.info.max_context,
        "a prompt that does not fit");
  for (int32_t id : r.prompt) check(id >= 0 && id < kLogitsWidth, "a token outside of the logits");
  check(r.n >= 1 && r.n <= 64, "completions without bits");
  const SamplingParams& p = r.sampling;
  check(std::isfinite(p.temperature) && p.temperature >= 0 && p.top_p > 0 && p.top_p <= 1 &&
            p.min_p >= 0 && p.min_p < 1 && p.repetition_penalty > 0,
        "sampling out of range");
  check(is_valid_utf8(model.tokenizer.decode(r.prompt, false)), "a text that is no UTF-8");
  ++fuzz::n_taken;
  return 0;
}
