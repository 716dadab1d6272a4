#include "cli/start_notes.h"

namespace pf {

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

}  // namespace pf
