#include "cli/start_notes.h"

namespace pf {
namespace {

constexpr double kDearDraft = 0.1, kTooDearDraft = 0.3;  // SOURCES: a draft step over a target step

}  // namespace

std::vector<std::string> start_notes(const EngineOptions& o) {
  std::vector<std::string> notes;
  if (o.prefill_gemm == "cublas")
    notes.push_back(
        "--prefill-gemm cublas: a prompt's sums depend on how it is cut into chunks, so a request "
        "may get another text at another time; own keeps it the same");
  if (o.tensor_parallel_size > 1 && o.cuda_graphs)
    notes.push_back("--tensor-parallel-size " + std::to_string(o.tensor_parallel_size) +
                    ": CUDA graphs are not used for a model that several devices share; its "
                    "kernels are launched one by one, which small steps pay for in time");
  return notes;
}

std::vector<DraftCost> draft_costs(const std::vector<DrafterDescription>& drafters,
                                   const std::vector<double>& measured) {
  std::vector<DraftCost> costs;
  for (size_t i = 0; i < drafters.size(); ++i) {
    DraftCost c;
    c.drafter = drafters[i].name;
    c.measured = i < measured.size() && measured[i] > 0;
    c.ratio = c.measured ? measured[i] : static_cast<double>(drafters[i].step_cost_ratio);
    if (!(c.ratio > 0)) continue;
    if (c.ratio > kTooDearDraft)
      c.warning =
          "a draft step costs more than 30 % of a target step: it can hardly pay; take a smaller "
          "draft";
    else if (c.ratio > kDearDraft)
      c.warning =
          "a draft step costs more than 10 % of a target step; a smaller draft may pay better";
    costs.push_back(std::move(c));
  }
  return costs;
}

}  // namespace pf
