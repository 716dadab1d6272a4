#pragma once

#include "proto/pilotfish/v1/inference.grpc.pb.h"
#include "server/server_state.h"

namespace pf {

// pilotfish.v1.Inference over gRPC's callback API. Everything that could block waits elsewhere: the
// engine answers through the dispatcher.
class InferenceService final : public pilotfish::v1::Inference::CallbackService {
 public:
  explicit InferenceService(ServerState& state) : state_(state) {}

  grpc::ServerUnaryReactor* Generate(grpc::CallbackServerContext* context,
                                     const pilotfish::v1::GenerateRequest* request,
                                     pilotfish::v1::GenerateResponse* response) override;
  grpc::ServerWriteReactor<pilotfish::v1::GenerateChunk>* GenerateStream(
      grpc::CallbackServerContext* context, const pilotfish::v1::GenerateRequest* request) override;
  grpc::ServerUnaryReactor* Tokenize(grpc::CallbackServerContext* context,
                                     const pilotfish::v1::TokenizeRequest* request,
                                     pilotfish::v1::TokenizeResponse* response) override;
  grpc::ServerUnaryReactor* Detokenize(grpc::CallbackServerContext* context,
                                       const pilotfish::v1::DetokenizeRequest* request,
                                       pilotfish::v1::DetokenizeResponse* response) override;
  grpc::ServerUnaryReactor* GetModelInfo(grpc::CallbackServerContext* context,
                                         const pilotfish::v1::GetModelInfoRequest* request,
                                         pilotfish::v1::ModelInfo* response) override;

 private:
  ServerState& state_;
};

}  // namespace pf
