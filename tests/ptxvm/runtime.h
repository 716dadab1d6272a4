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

#include "ptxvm/machine.h"
#include "ptxvm/report.h"

namespace pf::ptxvm {

struct Event;
struct Stream;

struct KernelCall {
  const void* function = nullptr;
  Dim3 grid, block;
  size_t dynamic_shared_bytes = 0;
  std::vector<std::vector<uint8_t>> args;
};

struct Node {
  cudaGraphNodeType type = cudaGraphNodeTypeEmpty;
  KernelCall call;               // of a kernel node
  std::function<void()> action;  // of the others
  std::vector<size_t> after;     // nodes of the same graph
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  std::vector<std::set<size_t>> tails;
};

struct Operation {
  std::function<void()> run;
  std::shared_ptr<Event> waits_for;  // cudaStreamWaitEvent
  uint64_t wait_record = 0;          // that many records of it must have happened
};

struct Event {
  uint64_t n_recorded = 0, n_done = 0;  // records asked for, records reached
  double seconds = 0;
  Stream* stream = nullptr;
  Stream* capture = nullptr;  // recorded inside a capture: the stream it belongs to
  std::set<size_t> capture_after;
};

struct Stream {
  std::deque<Operation> queue;
  bool blocking = true;            // ordered against the default stream
  std::shared_ptr<Graph> capture;  // non-null while capturing
  Stream* origin = nullptr;        // where the capture began
  std::set<size_t> capture_after;  // nodes the next one follows
  bool capture_broken = false;
};

struct Runtime {
  static Runtime& get();
  std::recursive_mutex mutex;
  cudaError_t last = cudaSuccess, sticky = cudaSuccess;
  Stream default_stream;
  std::vector<Stream*> streams;
  uint64_t rng = 1;

  Stream& of(cudaStream_t s);
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
size_t dynamic_limit(const void* host_function);
cudaError_t launch_now(const KernelCall& call);

}  // namespace pf::ptxvm
