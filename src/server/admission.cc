#include "server/admission.h"

#include <chrono>
#include <random>

namespace pf {
namespace {

constexpr size_t kMaxEchoBytes = 256;
constexpr const char* kPushbackMs = "500";

std::string header(const grpc::CallbackServerContext& context, const char* name) {
  auto it = context.client_metadata().find(name);
  if (it == context.client_metadata().end()) return "";
  return {it->second.data(), it->second.size()};
}

std::string made_id() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  char text[24];
  std::snprintf(text, sizeof(text), "req-%016llx", static_cast<unsigned long long>(random()));
  return text;
}

std::string id_of(const wire::GenerateRequest& r, const grpc::CallbackServerContext& context) {
  if (!r.request_id().empty()) return r.request_id();
  std::string id = header(context, "x-request-id");
  return !id.empty() && is_request_id(id) ? id : made_id();
}

// The client's deadline on the server's own clock.
int64_t deadline_of(const grpc::CallbackServerContext& context, int64_t now_us) {
  using std::chrono::duration_cast, std::chrono::microseconds, std::chrono::system_clock;
  auto left = duration_cast<microseconds>(context.deadline() - system_clock::now()).count();
  constexpr int64_t kYear = int64_t{365} * 24 * 3600 * 1'000'000;
  return left > kYear ? kNever : now_us + left;
}

bool queue_is_full(const ServerState& state) {
  const Backing& b = *state.backing;
  return b.port.snapshot().n_waiting + state.n_preparing.load() > b.model.max_queue;
}

std::shared_ptr<void> counted(std::atomic<int64_t>& n) {
  ++n;
  return std::shared_ptr<void>(&n, [&n](void*) { --n; });
}

grpc::Status refuse_invalid(ServerState& state, const Status& status) {
  state.metrics.rejected("invalid");
  return to_grpc(status);
}

}  // namespace

grpc::Status to_grpc(const Status& status) {
  auto code = [&] {
    switch (status.code()) {
      case Code::kOk:
        return grpc::StatusCode::OK;
      case Code::kInvalidArgument:
        return grpc::StatusCode::INVALID_ARGUMENT;
      case Code::kNotFound:
        return grpc::StatusCode::NOT_FOUND;
      case Code::kAlreadyExists:
        return grpc::StatusCode::ALREADY_EXISTS;
      case Code::kPermissionDenied:
        return grpc::StatusCode::PERMISSION_DENIED;
      case Code::kUnauthenticated:
        return grpc::StatusCode::UNAUTHENTICATED;
      case Code::kResourceExhausted:
        return grpc::StatusCode::RESOURCE_EXHAUSTED;
      case Code::kFailedPrecondition:
        return grpc::StatusCode::FAILED_PRECONDITION;
      case Code::kUnimplemented:
        return grpc::StatusCode::UNIMPLEMENTED;
      case Code::kUnavailable:
        return grpc::StatusCode::UNAVAILABLE;
      case Code::kInternal:
        return grpc::StatusCode::INTERNAL;
    }
    die("no such code");
  }();
  return status.ok() ? grpc::Status::OK : grpc::Status(code, status.message());
}

grpc::Status to_grpc(FinishReason failure) {
  switch (failure) {
    case FinishReason::kNone:
      return grpc::Status::OK;
    case FinishReason::kDeadline:
      return {grpc::StatusCode::DEADLINE_EXCEEDED, "the deadline passed before the answer ended"};
    case FinishReason::kCorrupted:
      return {grpc::StatusCode::INTERNAL, "the model's logits were not finite for this request"};
    default:
      return {grpc::StatusCode::CANCELLED, "the call was cancelled"};
  }
}

grpc::Status refuse_draining(ServerState& state) {
  state.metrics.rejected("draining");
  return {grpc::StatusCode::UNAVAILABLE, "this server is shutting down; try another one"};
}

grpc::Status check_token(ServerState& state, grpc::CallbackServerContext* context) {
  Status s = state.auth.check(header(*context, "authorization"));
  if (!s.ok()) state.metrics.rejected("unauthenticated");
  return to_grpc(s);
}

grpc::Status check_call(ServerState& state, grpc::CallbackServerContext* context) {
  for (const char* name : {"x-request-id", "traceparent"})
    if (std::string value = header(*context, name); !value.empty() && value.size() <= kMaxEchoBytes)
      context->AddInitialMetadata(name, value);
  if (grpc::Status s = check_token(state, context); !s.ok()) return s;
  switch (state.phase.load()) {
    case ServerState::Phase::kReady:
      return grpc::Status::OK;
    case ServerState::Phase::kLoading:
      state.metrics.rejected("loading");
      return {grpc::StatusCode::UNAVAILABLE, "the model is still loading; try again later"};
    case ServerState::Phase::kDraining:
      return refuse_draining(state);
  }
  die("no such phase");
}

grpc::Status refuse_full_queue(ServerState& state, grpc::CallbackServerContext* context,
                               const Status& status) {
  state.metrics.rejected("queue_full");
  context->AddTrailingMetadata("grpc-retry-pushback-ms", kPushbackMs);
  return to_grpc(status);
}

grpc::Status refuse(ServerState& state, grpc::CallbackServerContext* context,
                    const Status& status) {
  if (status.code() == Code::kResourceExhausted) return refuse_full_queue(state, context, status);
  state.metrics.rejected("duplicate");
  return to_grpc(status);
}

grpc::Status admit(ServerState& state, grpc::CallbackServerContext* context,
                   const wire::GenerateRequest& request, Admitted* out) {
  if (grpc::Status s = check_call(state, context); !s.ok()) return s;
  out->arrival_us = state.clock.now_us();
  out->deadline_us = deadline_of(*context, out->arrival_us);
  if (out->deadline_us <= out->arrival_us) return to_grpc(FinishReason::kDeadline);
  out->counted = counted(state.n_preparing);
  if (queue_is_full(state))
    return refuse_full_queue(
        state, context, Status(Code::kResourceExhausted, "the queue is full; try again later"));
  if (Status s = check_request(request, state.backing->model); !s.ok())
    return refuse_invalid(state, s);
  out->request_id = id_of(request, *context);
  out->is_long = text_bytes(request) > kLongTextBytes;
  return grpc::Status::OK;
}

grpc::Status prepare(ServerState& state, const wire::GenerateRequest& request,
                     const Admitted& admitted, PreparedRequest* out) {
  if (state.ending.load()) return refuse_draining(state);
  Result<PreparedRequest> prepared =
      make_request(request, state.backing->model, admitted.arrival_us);
  if (!prepared.ok()) return refuse_invalid(state, prepared.status());
  *out = prepared.take();
  out->request->deadline_us = admitted.deadline_us;
  out->answer.request_id = admitted.request_id;
  return grpc::Status::OK;
}

}  // namespace pf
