#pragma once
// What a program asked of the replacement runtime, for budgets of launches: what a capture records
// is not counted, what a graph replays neither (ptxvm::n_launches() counts every kernel that ran).

#include <cstdint>

namespace pf::ptxvm {

struct HostCalls {
  uint64_t kernels = 0;  // <<<>>>
  uint64_t graphs = 0;   // cudaGraphLaunch
  uint64_t copies = 0, memsets = 0;
  uint64_t waits = 0;               // cudaStreamSynchronize
  int64_t n_executable_graphs = 0;  // instantiated and not destroyed; not cleared
};
HostCalls host_calls();
void clear_host_calls();

// Graphs that are instantiated from now on take so much device memory for each node until they are
// destroyed, as cudaMemGetInfo then shows; 0 at first.
void set_graph_node_bytes(uint64_t bytes);

}  // namespace pf::ptxvm
