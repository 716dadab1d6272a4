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

// The whole way of a generating call up to the queue, cheapest checks first; a full queue is
// noticed before the prompt is tokenised. Refusals are counted by reason.
grpc::Status admit(ServerState& state, grpc::CallbackServerContext* context,
                   const wire::GenerateRequest& request, PreparedRequest* out);

// Counts a refusal and tells the client when to come back.
grpc::Status refuse_full_queue(ServerState& state, grpc::CallbackServerContext* context,
                               const Status& status);

}  // namespace pf
