// Streams and events.

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
int& Runtime::device() {
  static thread_local int device = 0;
  return device;
}
Stream& Runtime::default_of(int device) {
  while (defaults.size() <= static_cast<size_t>(device)) {
    defaults.emplace_back();
    defaults.back().is_default = true;
    defaults.back().device = static_cast<int>(defaults.size()) - 1;
  }
  return defaults[static_cast<size_t>(device)];
}
Stream& Runtime::of(cudaStream_t s) {
  bool is_default = s == nullptr || s == cudaStreamLegacy || s == cudaStreamPerThread;
  return is_default ? default_of(device()) : *reinterpret_cast<Stream*>(s);
}
cudaError_t Runtime::refuse_in_capture() {
  for (Stream* s : streams) {
    if (s->capture == nullptr || s->capture_relaxed) continue;
    s->capture_broken = true;
    return set(cudaErrorStreamCaptureUnsupported);
  }
  return cudaSuccess;
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
  calls.kernels += node.type == cudaGraphNodeTypeKernel;
  calls.graphs += node.type == cudaGraphNodeTypeGraph;
  calls.copies += node.type == cudaGraphNodeTypeMemcpy;
  calls.memsets += node.type == cudaGraphNodeTypeMemset;
  // The default stream and the blocking ones follow each other.
  if (s.is_default) {
    for (Stream* other : streams) {
      if (other->device != s.device) continue;
      if (other->blocking && other->capture != nullptr) {
        other->capture_broken = true;
        return set(cudaErrorStreamCaptureImplicit);
      }
      if (other->blocking) drain(*other);
    }
  } else if (s.blocking) {
    drain(default_of(s.device));
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
HostCalls host_calls() {
  PF_LOCK;
  return rt.calls;
}
void clear_host_calls() {
  PF_LOCK;
  const int64_t n = rt.calls.n_executable_graphs;
  rt.calls = {};
  rt.calls.n_executable_graphs = n;
}
void set_graph_node_bytes(uint64_t bytes) {
  PF_LOCK;
  rt.graph_node_bytes = bytes;
}
void Runtime::drain_all() {
  for (Stream& s : defaults) drain(s);
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
  ++rt.calls.waits;
  rt.drain(s);
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : cudaSuccess;
}

}  // namespace

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* out, unsigned flags) {
  PF_LOCK;
  auto* s = new Stream;
  s->blocking = (flags & cudaStreamNonBlocking) == 0;
  s->device = Runtime::device();
  rt.streams.push_back(s);
  *out = reinterpret_cast<cudaStream_t>(s);
  return cudaSuccess;
}
cudaError_t cudaStreamCreate(cudaStream_t* out) { return cudaStreamCreateWithFlags(out, 0); }
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* out, unsigned flags, int) {
  return cudaStreamCreateWithFlags(out, flags);
}
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t h) {
  PF_LOCK;
  Stream* s = &rt.of(h);
  if (s->is_default) return rt.set(cudaErrorInvalidResourceHandle);
  rt.drain(*s);
  std::erase(rt.streams, s);
  delete s;
  return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t h) {
  PF_LOCK;
  if (rt.of(h).is_default) rt.drain_all();
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
  if (cudaError_t e = rt.refuse_in_capture()) return e;
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

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* out, unsigned flags) {
  auto e = std::make_shared<Event>();
  e->timed = (flags & cudaEventDisableTiming) == 0;
  e->device = Runtime::device();
  *out = reinterpret_cast<cudaEvent_t>(new std::shared_ptr<Event>(e));
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
  if (e->device != s.device) {
    misuse("an event of device " + std::to_string(e->device) +
           " is recorded in a stream of device " + std::to_string(s.device));
    return rt.set(cudaErrorInvalidResourceHandle);
  }
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
  if (e.capture != nullptr) return rt.set(cudaErrorCapturedEvent);
  while (e.n_done < e.n_recorded && rt.step(*e.stream)) {
  }
  return rt.sticky != cudaSuccess ? rt.set(rt.sticky) : cudaSuccess;
}
cudaError_t cudaEventQuery(cudaEvent_t h) {
  PF_LOCK;
  Event& e = **event_of(h);
  if (e.capture != nullptr) return rt.set(cudaErrorCapturedEvent);
  if (e.n_done < e.n_recorded) rt.step(*e.stream);
  return e.n_done < e.n_recorded ? cudaErrorNotReady : cudaSuccess;
}
cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t a, cudaEvent_t b) {
  PF_LOCK;
  Event &x = **event_of(a), &y = **event_of(b);
  if (x.n_recorded == 0 || y.n_recorded == 0 || !x.timed || !y.timed)
    return rt.set(cudaErrorInvalidResourceHandle);
  if (x.n_done < x.n_recorded || y.n_done < y.n_recorded) return cudaErrorNotReady;
  *ms = static_cast<float>((y.seconds - x.seconds) * 1e3);
  return cudaSuccess;
}
