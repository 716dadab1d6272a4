#include "server/inference_service.h"

#include "server/model_calls.h"
#include "server/reply.h"

namespace pf {
namespace {

// A stream that ends before it begins.
class RefusedStream final : public grpc::ServerWriteReactor<wire::GenerateChunk> {
 public:
  explicit RefusedStream(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// A call that is answered at once from the model's description.
template <class Request, class Response, class Fill>
grpc::ServerUnaryReactor* answer_from_model(ServerState& state,
                                            grpc::CallbackServerContext* context,
                                            const Request& request, Response* response, Fill fill) {
  if (grpc::Status s = check_call(state, context); !s.ok()) return answer(context, s);
  const ServedModel& model = state.backing->model;
  Status s = check_model_name(request.model(), model);
  if (s.ok()) s = fill(request, model, response);
  if (!s.ok()) state.metrics.rejected("invalid");
  return answer(context, to_grpc(s));
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const wire::GenerateRequest* request,
                                                     wire::GenerateResponse* response) {
  PreparedRequest prepared;
  if (grpc::Status s = admit(state_, context, *request, &prepared); !s.ok())
    return answer(context, s);
  return UnaryReply::start(state_, context, std::move(prepared), response);
}

grpc::ServerWriteReactor<wire::GenerateChunk>* InferenceService::GenerateStream(
    grpc::CallbackServerContext* context, const wire::GenerateRequest* request) {
  PreparedRequest prepared;
  if (grpc::Status s = admit(state_, context, *request, &prepared); !s.ok())
    return new RefusedStream(s);
  return StreamReply::start(state_, context, std::move(prepared));
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const wire::TokenizeRequest* request,
                                                     wire::TokenizeResponse* response) {
  return answer_from_model(state_, context, *request, response, tokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const wire::DetokenizeRequest* request,
                                                       wire::DetokenizeResponse* response) {
  return answer_from_model(state_, context, *request, response, detokenize);
}

grpc::ServerUnaryReactor* InferenceService::GetModelInfo(grpc::CallbackServerContext* context,
                                                         const wire::GetModelInfoRequest* request,
                                                         wire::ModelInfo* response) {
  return answer_from_model(
      state_, context, *request, response,
      [](const wire::GetModelInfoRequest&, const ServedModel& model, wire::ModelInfo* info) {
        describe(model, info);
        return Status();
      });
}

}  // namespace pf
