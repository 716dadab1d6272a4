#pragma once
// Inside of the replacement runtime: streams are queues of operations that run when somebody waits,
// so that a missing synchronisation shows as wrong data; a graph is a list of operations recorded
// from a capture, with their dependencies, replayed by cudaGraphLaunch.

#include <cuda_runtime_api.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ptxvm/host_calls.h"
#include "ptxvm/machine.h"
#include "ptxvm/report.h"

namespace pf::ptxvm {

struct Event;
struct Stream;

struct KernelCall {
  const void* function = nullptr;
  Dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
  int device = 0;
  std::vector<std::vector<uint8_t>> args;
};

struct Node {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  KernelCall call;                  // of a kernel node
  std::function<void()> action;     // of the others
  std::vector<size_t> after;        // nodes of the same graph
  const Node* source = nullptr;     // of an executable graph: the node it was made from
  std::vector<void*> arg_pointers;  // what cudaGraphKernelNodeGetParams gave out
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  uint64_t bytes = 0;  // of device memory, once it is executable
};

struct Operation {
  std::function<void()> run;
  std::shared_ptr<Event> waits_for;  // cudaStreamWaitEvent
  uint64_t wait_record = 0;          // that many records of it must have happened
};

struct Event {
  uint64_t n_recorded = 0, n_done = 0;  // records asked for, records reached
  double seconds = 0;
  bool timed = true;
  int device = 0;
  Stream* stream = nullptr;
  Stream* capture = nullptr;  // recorded inside a capture: the stream it belongs to
  std::set<size_t> capture_after;
};

struct Stream {
  std::deque<Operation> queue;
  int device = 0;
  bool is_default = false;
  bool blocking = true;            // ordered against the default stream
  std::shared_ptr<Graph> capture;  // non-null while capturing
  Stream* origin = nullptr;        // where the capture began
  std::set<size_t> capture_after;  // nodes the next one follows
  bool capture_broken = false, capture_relaxed = false;
};

struct Runtime {
  static Runtime& get();
  std::recursive_mutex mutex;
  cudaError_t last = cudaSuccess, sticky = cudaSuccess;
  std::deque<Stream> defaults;  // the default stream of each device
  std::vector<Stream*> streams;
  uint64_t rng = 1;
  HostCalls calls;
  uint64_t graph_node_bytes = 0, graph_bytes = 0;  // host_calls.h

  // The current device of the calling thread.
  static int& device();
  Stream& of(cudaStream_t s);
  Stream& default_of(int device);
  // For calls that a capture does not allow (cudaMalloc, cudaMemcpy, ...): breaks a capture that is
  // going on, unless it is a relaxed one, and returns the error; else cudaSuccess.
  cudaError_t refuse_in_capture();
  cudaError_t set(cudaError_t e);
  // Runs or records. In a capture the node is added to the graph.
  cudaError_t submit(cudaStream_t s, Node node);
  void drain(Stream& s);
  void drain_all();
  bool step(Stream& s);  // one operation, and what it waits for
  void run_node(Node& node);
};

// Kernel of a host function pointer; errors set, null when unknown.
struct Registered {
  Module* module = nullptr;
  std::string name;
  std::string error;
};
Registered find_function(const void* host_function);
Module* module_of_variable(const void* host_variable, std::string* name);
size_t dynamic_limit(const void* host_function);  // on the current device
cudaError_t launch_now(const KernelCall& call);
// The call that a launch with these arguments makes, or an error (too much shared memory, ...).
cudaError_t make_call(const void* function, dim3 grid, dim3 block, void** args, size_t shared,
                      KernelCall* call);
void misuse(std::string text);  // records a finding of kind kRuntimeUse

}  // namespace pf::ptxvm

// The first line of every entry point: the runtime, locked.
#define PF_LOCK                                           \
  ::pf::ptxvm::Runtime& rt = ::pf::ptxvm::Runtime::get(); \
  std::lock_guard lock(rt.mutex)
