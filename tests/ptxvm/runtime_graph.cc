// Capture and graphs.

#include <algorithm>

#include "ptxvm/runtime.h"

using namespace pf::ptxvm;

namespace {

// Replays a copy of the nodes: in any order that the dependencies allow, when a seed asks for it.
void replay(const std::shared_ptr<Graph>& g) {
  Runtime& rt = Runtime::get();
  std::vector<bool> done(g->nodes.size());
  for (size_t left = g->nodes.size(); left > 0; --left) {
    std::vector<size_t> ready;
    for (size_t i = 0; i < done.size(); ++i)
      if (!done[i] && std::all_of(g->nodes[i]->after.begin(), g->nodes[i]->after.end(),
                                  [&](size_t a) { return done[a]; }))
        ready.push_back(i);
    rt.rng = rt.rng * 6364136223846793005ull + 1442695040888963407ull;
    size_t i = settings().seed ? ready[(rt.rng >> 33) % ready.size()] : ready[0];
    rt.run_node(*g->nodes[i]);
    done[i] = true;
  }
}
std::shared_ptr<Graph>* graph_of(const void* g) {
  return static_cast<std::shared_ptr<Graph>*>(const_cast<void*>(g));
}
// A copy to launch; its nodes remember where they come from.
std::shared_ptr<Graph> executable(const Graph& g) {
  auto copy = std::make_shared<Graph>();
  copy->bytes = g.bytes;
  for (const auto& n : g.nodes) {
    copy->nodes.push_back(std::make_unique<Node>(*n));
    if (n->source == nullptr) copy->nodes.back()->source = n.get();
  }
  return copy;
}

}  // namespace

cudaError_t cudaStreamBeginCapture(cudaStream_t h, cudaStreamCaptureMode mode) {
  PF_LOCK;
  Stream& s = rt.of(h);
  if (s.is_default) return rt.set(cudaErrorStreamCaptureUnsupported);
  if (s.capture != nullptr) return rt.set(cudaErrorIllegalState);
  s.capture = std::make_shared<Graph>();
  s.origin = &s;
  s.capture_after.clear();
  s.capture_broken = false;
  s.capture_relaxed = mode == cudaStreamCaptureModeRelaxed;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t h, cudaGraph_t* out) {
  PF_LOCK;
  Stream& s = rt.of(h);
  *out = nullptr;
  if (s.capture == nullptr || s.origin != &s) return rt.set(cudaErrorStreamCaptureUnmatched);
  std::shared_ptr<Graph> g = s.capture;
  const std::set<size_t> joined = s.capture_after;
  bool broken = s.capture_broken, unjoined = false;
  for (Stream* other : rt.streams) {
    if (other->capture != g) continue;
    if (other != &s)  // its last nodes must lie before something in the origin
      for (size_t tail : other->capture_after) {
        bool reached = joined.count(tail) != 0;
        for (const auto& n : g->nodes)
          reached |= std::count(n->after.begin(), n->after.end(), tail) != 0;
        unjoined |= !reached;
      }
    broken |= other->capture_broken;
    other->capture = nullptr;
    other->origin = nullptr;
    other->capture_after.clear();
  }
  if (broken) return rt.set(cudaErrorStreamCaptureInvalidated);
  if (unjoined) return rt.set(cudaErrorStreamCaptureUnjoined);
  *out = reinterpret_cast<cudaGraph_t>(new std::shared_ptr<Graph>(g));
  return cudaSuccess;
}
cudaError_t cudaStreamIsCapturing(cudaStream_t h, cudaStreamCaptureStatus* status) {
  PF_LOCK;
  Stream& s = rt.of(h);
  *status = s.capture == nullptr ? cudaStreamCaptureStatusNone
            : s.capture_broken   ? cudaStreamCaptureStatusInvalidated
                                 : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* out, cudaGraph_t g, unsigned long long) {
  PF_LOCK;
  std::shared_ptr<Graph> made = executable(**graph_of(g));
  made->bytes = made->nodes.size() * rt.graph_node_bytes;
  rt.graph_bytes += made->bytes;
  *out = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<Graph>(made));
  ++rt.calls.n_executable_graphs;
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* out, cudaGraph_t g,
                                          unsigned long long flags) {
  return cudaGraphInstantiate(out, g, flags);
}
cudaError_t cudaGraphUpload(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
// Arguments, sizes and addresses may change; kinds of nodes, kernels and dependencies may not. A
// launch that is still queued keeps what it was given.
cudaError_t cudaGraphExecUpdate(cudaGraphExec_t exec, cudaGraph_t g,
                                cudaGraphExecUpdateResultInfo* info) {
  PF_LOCK;
  const Graph &now = **graph_of(exec), &next = **graph_of(g);
  *info = {};
  info->result = now.nodes.size() == next.nodes.size() ? cudaGraphExecUpdateSuccess
                                                       : cudaGraphExecUpdateErrorTopologyChanged;
  for (size_t i = 0; info->result == cudaGraphExecUpdateSuccess && i < now.nodes.size(); ++i) {
    const Node &a = *now.nodes[i], &b = *next.nodes[i];
    info->result = a.type != b.type                     ? cudaGraphExecUpdateErrorNodeTypeChanged
                   : a.after != b.after                 ? cudaGraphExecUpdateErrorTopologyChanged
                   : a.call.function != b.call.function ? cudaGraphExecUpdateErrorFunctionChanged
                                                        : cudaGraphExecUpdateSuccess;
    if (info->result != cudaGraphExecUpdateSuccess)
      info->errorNode = reinterpret_cast<cudaGraphNode_t>(next.nodes[i].get());
  }
  if (info->result != cudaGraphExecUpdateSuccess) return rt.set(cudaErrorGraphExecUpdateFailure);
  std::shared_ptr<Graph> changed = executable(next);
  changed->bytes = now.bytes;
  for (size_t i = 0; i < now.nodes.size(); ++i) changed->nodes[i]->source = now.nodes[i]->source;
  *graph_of(exec) = changed;
  return cudaSuccess;
}
cudaError_t cudaGraphKernelNodeGetParams(cudaGraphNode_t handle, cudaKernelNodeParams* p) {
  PF_LOCK;
  auto& node = *reinterpret_cast<Node*>(handle);
  if (node.type != cudaGraphNodeTypeKernel) return rt.set(cudaErrorInvalidValue);
  node.arg_pointers.clear();
  for (auto& a : node.call.args) node.arg_pointers.push_back(a.data());
  *p = {};
  p->func = const_cast<void*>(node.call.function);
  p->gridDim = {node.call.grid.x, node.call.grid.y, node.call.grid.z};
  p->blockDim = {node.call.block.x, node.call.block.y, node.call.block.z};
  p->sharedMemBytes = static_cast<unsigned>(node.call.dynamic_shared_bytes);
  p->kernelParams = node.arg_pointers.data();
  return cudaSuccess;
}
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t exec, cudaGraphNode_t handle,
                                             const cudaKernelNodeParams* p) {
  PF_LOCK;
  std::shared_ptr<Graph> changed = executable(**graph_of(exec));
  for (auto& node : changed->nodes) {
    if (node->source != reinterpret_cast<const Node*>(handle)) continue;
    if (node->call.function != p->func) return rt.set(cudaErrorInvalidValue);
    if (cudaError_t e = make_call(p->func, p->gridDim, p->blockDim, p->kernelParams,
                                  p->sharedMemBytes, &node->call))
      return rt.set(e);
    *graph_of(exec) = changed;
    return cudaSuccess;
  }
  return rt.set(cudaErrorInvalidValue);
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t g, cudaStream_t h) {
  PF_LOCK;
  Node n;
  n.type = cudaGraphNodeTypeGraph;
  n.action = [graph = *graph_of(g)] { replay(graph); };
  return rt.submit(h, std::move(n));
}
cudaError_t cudaGraphDestroy(cudaGraph_t g) {
  delete graph_of(g);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t g) {
  PF_LOCK;
  --rt.calls.n_executable_graphs;
  rt.graph_bytes -= (*graph_of(g))->bytes;
  delete graph_of(g);
  return cudaSuccess;
}
cudaError_t cudaGraphGetNodes(cudaGraph_t g, cudaGraphNode_t* nodes, size_t* n) {
  PF_LOCK;
  auto& list = (*graph_of(g))->nodes;
  if (nodes != nullptr)
    for (size_t i = 0; i < std::min(*n, list.size()); ++i)
      nodes[i] = reinterpret_cast<cudaGraphNode_t>(list[i].get());
  *n = list.size();
  return cudaSuccess;
}
cudaError_t cudaGraphNodeGetType(cudaGraphNode_t node, cudaGraphNodeType* type) {
  *type = reinterpret_cast<Node*>(node)->type;
  return cudaSuccess;
}
