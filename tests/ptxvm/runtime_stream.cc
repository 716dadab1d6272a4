// Streams, events, capture and graphs.

#include <algorithm>
#include <chrono>

#include "ptxvm/runtime.h"

namespace pf::ptxvm {

Runtime& Runtime::get() {
  static auto* r = [] {
    clear_sticky_error = [] { get().last = get().sticky = cudaSuccess; };
    return new Runtime;
  }();
  return *r;
}
Stream& Runtime::of(cudaStream_t s) {
  bool is_default = s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread;
  return is_default ? default_stream : *reinterpret_cast<Stream*>(s);
}
cudaError_t Runtime::set(cudaError_t e) {
  if (e != cudaSuccess) last = e;
  return e;
}

void Runtime::run_node(Node& node) {
  if (sticky != cudaSuccess) return;
  if (node.type == cudaGraphNodeTypeKernel) {
    cudaError_t e = launch_now(node.call);
    if (e != cudaSuccess) last = sticky = e;
  } else if (node.action) {
    node.action();
  }
}

cudaError_t Runtime::submit(cudaStream_t handle, Node node) {
  Stream& s = of(handle);
  if (s.capture != nullptr) {
    node.after.assign(s.capture_after.begin(), s.capture_after.end());
    s.capture->nodes.push_back(std::make_unique<Node>(std::move(node)));
    s.capture_after = {s.capture->nodes.size() - 1};
    return cudaSuccess;
  }
  if (sticky != cudaSuccess) return set(sticky);
  // The default stream and the blocking ones follow each other.
  if (&s == &default_stream) {
    for (Stream* other : streams) {
      if (other->blocking && other->capture != nullptr) {
        other->capture_broken = true;
        return set(cudaErrorStreamCaptureImplicit);
      }
      if (other->blocking) drain(*other);
    }
  } else if (s.blocking) {
    drain(default_stream);
  }
  auto held = std::make_shared<Node>(std::move(node));
  s.queue.push_back({[this, held] { run_node(*held); }, nullptr, 0});
  return cudaSuccess;
}

bool Runtime::step(Stream& s) {
  if (s.queue.empty()) return false;
  Operation op = std::move(s.queue.front());
  s.queue.pop_front();
  if (op.waits_for != nullptr) {
    Event& e = *op.waits_for;
    while (e.n_done < op.wait_record && e.stream != nullptr && e.stream != &s && step(*e.stream)) {
    }
  }
  if (op.run) op.run();
  return true;
}
void Runtime::drain(Stream& s) {
  while (!s.queue.empty()) {
    if (settings().seed && !streams.empty()) {  // let others get ahead
      rng = rng * 6364136223846793005ull + 1442695040888963407ull + settings().seed;
      Stream* other = streams[(rng >> 33) % streams.size()];
      if (other != &s) step(*other);
    }
    step(s);
  }
}
void Runtime::drain_all() {
  drain(default_stream);
  for (size_t i = 0; i < streams.size(); ++i) drain(*streams[i]);
}

}  // namespace pf::ptxvm

using namespace pf::ptxvm;

namespace {

using EventHandle = std::shared_ptr<Event>*;
EventHandle event_of(cudaEvent_t e) { return reinterpret_cast<EventHandle>(e); }
double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

cudaError_t synchronise(Stream& s) {
  Runtime& rt = Runtime::get();
  if (s.capture != nullptr) {
    s.capture_broken = true;
    return rt.set(cudaErrorStreamCaptureUnsupported);
  }
  rt.drain(s);
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : cudaSuccess;
}

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

#define PF_LOCK                 \
  Runtime& rt = Runtime::get(); \
  std::lock_guard lock(rt.mutex)

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  PF_LOCK;
  auto* s = new Stream;
  s->blocking = (flags & cudaStreamNonBlocking) == 0;
  rt.streams.push_back(s);
  *out = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  return cudaStreamCreateWithFlags(out, flags);
}
cudaError_t cudaStreamDestroy(cudaStream_t h) {
  PF_LOCK;
  Stream* s = &rt.of(h);
  if (s == &rt.default_stream) return rt.set(cudaErrorInvalidResourceHandle);
  rt.drain(*s);
  std::erase(rt.streams, s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t h) {
  PF_LOCK;
  if (&rt.of(h) == &rt.default_stream) rt.drain_all();
  return synchronise(rt.of(h));
}
cudaError_t cudaStreamQuery(cudaStream_t h) {
  PF_LOCK;
  Stream& s = rt.of(h);
  rt.step(s);  // time passes
  if (rt.sticky != cudaSuccess) return rt.set(rt.sticky);
  return s.queue.empty() ? cudaSuccess : cudaErrorNotReady;
}
cudaError_t cudaDeviceSynchronize() {
  PF_LOCK;
  for (Stream* s : rt.streams)
    if (s->capture != nullptr) return synchronise(*s);
  rt.drain_all();
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : cudaSuccess;
}
cudaError_t cudaLaunchHostFunc(cudaStream_t h, cudaHostFn_t f, void* data) {
  PF_LOCK;
  Node n;
  n.type = cudaGraphNodeTypeHost;
  n.action = [f, data] { f(data); };
  return rt.submit(h, std::move(n));
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned) {
  *out = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(std::make_shared<Event>()));
  return cudaSuccess;
}
cudaError_t cudaEventCreate(cudaEvent_t* out) { return cudaEventCreateWithFlags(out, 0); }
cudaError_t cudaEventDestroy(cudaEvent_t e) {
  PF_LOCK;
  delete event_of(e);
  return cudaSuccess;
}
cudaError_t cudaEventRecordWithFlags(cudaEvent_t h, cudaStream_t sh, unsigned) {
  PF_LOCK;
  Stream& s = rt.of(sh);
  std::shared_ptr<Event> e = *event_of(h);
  e->stream = &s;
  if (s.capture != nullptr) {
    e->capture = &s;
    e->capture_after = s.capture_after;
    return cudaSuccess;
  }
  e->capture = nullptr;
  uint64_t record = ++e->n_recorded;
  s.queue.push_back({[e, record] {
                       e->n_done = std::max(e->n_done, record);
                       e->seconds = now();
                     },
                     nullptr, 0});
  return cudaSuccess;
}
cudaError_t cudaEventRecord(cudaEvent_t h, cudaStream_t s) {
  return cudaEventRecordWithFlags(h, s, 0);
}
cudaError_t cudaStreamWaitEvent(cudaStream_t sh, cudaEvent_t h, unsigned) {
  PF_LOCK;
  Stream& s = rt.of(sh);
  std::shared_ptr<Event> e = *event_of(h);
  if (e->capture != nullptr &&
      e->capture->capture != nullptr) {  // joins the capture, or merges in it
    s.capture = e->capture->capture;
    s.origin = e->capture->origin;
    s.capture_after.insert(e->capture_after.begin(), e->capture_after.end());
    return cudaSuccess;
  }
  if (s.capture != nullptr) return rt.set(cudaErrorStreamCaptureIsolation);
  s.queue.push_back({nullptr, e, e->n_recorded});
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t h) {
  PF_LOCK;
  Event& e = **event_of(h);
  while (e.n_done < e.n_recorded && rt.step(*e.stream)) {
  }
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t h) {
  PF_LOCK;
  Event& e = **event_of(h);
  if (e.n_done < e.n_recorded) rt.step(*e.stream);
  return e.n_done < e.n_recorded ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  PF_LOCK;
  Event &x = **event_of(a), &y = **event_of(b);
  if (x.n_recorded == 0 || y.n_recorded == 0) return rt.set(cudaErrorInvalidResourceHandle);
  if (x.n_done < x.n_recorded || y.n_done < y.n_recorded) return cudaErrorNotReady;
  *ms = static_cast<float>((y.seconds - x.seconds) * 1e3);
  return cudaSuccess;
}

cudaError_t cudaStreamBeginCapture(cudaStream_t h, cudaStreamCaptureMode) {
  PF_LOCK;
  Stream& s = rt.of(h);
  if (&s == &rt.default_stream) return rt.set(cudaErrorStreamCaptureUnsupported);
  if (s.capture != nullptr) return rt.set(cudaErrorIllegalState);
  s.capture = std::make_shared<Graph>();
  s.origin = &s;
  s.capture_after.clear();
  s.capture_broken = false;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t h, cudaGraph_t* out) {
  PF_LOCK;
  Stream& s = rt.of(h);
  *out = nullptr;
  if (s.capture == nullptr || s.origin != &s) return rt.set(cudaErrorStreamCaptureUnmatched);
  std::shared_ptr<Graph> g = s.capture;
  bool broken = s.capture_broken, unjoined = false;
  for (Stream* other : rt.streams) {
    if (other->capture != g) continue;
    if (other != &s)  // its last nodes must lie before something in the origin
      for (size_t tail : other->capture_after) {
        bool reached = s.capture_after.count(tail) != 0;
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
  auto copy = std::make_shared<Graph>();
  for (const auto& n : (*graph_of(g))->nodes) copy->nodes.push_back(std::make_unique<Node>(*n));
  *out = reinterpret_cast<cudaGraphExec_t>(new std::shared_ptr<Graph>(copy));
  return cudaSuccess;
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
