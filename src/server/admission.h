#pragma once

#include <grpcpp/grpcpp.h>

#include <string>

#include "server/make_request.h"
#include "server/server_state.h"

namespace pf {

grpc::Status to_grpc(const Status& status);
// For an answer that could not be given.
grpc::Status to_grpc(FinishReason failure);

// The token alone; counts a refusal.
grpc::Status check_token(ServerState& state, grpc::CallbackServerContext* context);

// What all calls pass: the token, then the phase. Echoes x-request-id and traceparent.
grpc::Status check_call(ServerState& state, grpc::CallbackServerContext* context);

// A generating call in front of its tokenising.
struct Admitted {
  int64_t arrival_us = 0, deadline_us = 0;
  std::string request_id;
  bool is_long = false;           // its text is work for TextWorkers
  std::shared_ptr<void> counted;  // as one that is being prepared
};

// All that costs no tokenising, cheapest checks first, a full queue among them. Refusals are
// counted by reason.
grpc::Status admit(ServerState& state, grpc::CallbackServerContext* context,
                   const wire::GenerateRequest& request, Admitted* out);

// Tokenises: the rest of the way up to the queue. Knows no context, which may be gone by now.
grpc::Status prepare(ServerState& state, const wire::GenerateRequest& request,
                     const Admitted& admitted, PreparedRequest* out);

// Of a call that the dispatcher or the workers do not take; counted by reason.
grpc::Status refuse(ServerState& state, grpc::CallbackServerContext* context, const Status& status);

// The server shuts down; counted.
grpc::Status refuse_draining(ServerState& state);

// Where TextWorkers take no more.
inline Status too_many_long_texts() {
  return Status(Code::kResourceExhausted, "too many long texts wait already; try again later");
}

// Counts a refusal and tells the client when to come back.
grpc::Status refuse_full_queue(ServerState& state, grpc::CallbackServerContext* context,
                               const Status& status);

}  // namespace pf
