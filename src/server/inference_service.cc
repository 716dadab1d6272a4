#include "server/inference_service.h"

#include <atomic>
#include <functional>
#include <memory>

#include "server/model_calls.h"
#include "server/reply.h"
#include "server/text_size.h"

namespace pf {
namespace {

grpc::ServerUnaryReactor* answer(grpc::CallbackServerContext* context, const grpc::Status& status) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(status);
  return reactor;
}

// The answer to a call without the engine that the workers make, since its text is long. Keeps
// itself alive until gRPC says OnDone.
template <class Response>
class LongReply final : public grpc::ServerUnaryReactor {
 public:
  using Fill = std::function<Status(Response*)>;

  static LongReply* start(ServerState& state, grpc::CallbackServerContext* context,
                          Response* response, Fill fill) {
    std::shared_ptr<LongReply> reply(new LongReply(state));
    reply->self_ = reply;
    bool taken = state.long_texts.post([reply, response, fill = std::move(fill)] {
      if (reply->finished_.load()) return;
      if (reply->state_.ending.load()) return reply->finish(refuse_draining(reply->state_));
      Response own;  // gRPC's goes when the client does
      Status s = fill(&own);
      if (reply->finished_.exchange(true)) return;
      if (s.ok()) response->Swap(&own);
      if (!s.ok()) reply->state_.metrics.rejected("invalid");
      reply->Finish(to_grpc(s));
    });
    if (!taken) reply->finish(refuse(state, context, too_many_long_texts()));
    return reply.get();
  }

  void OnCancel() override { finish(to_grpc(FinishReason::kCancelled)); }
  void OnDone() override {
    --state_.n_open;
    std::shared_ptr<LongReply> self = std::move(self_);
  }

 private:
  explicit LongReply(ServerState& state) : state_(state) { ++state_.n_open; }
  void finish(const grpc::Status& status) {
    if (!finished_.exchange(true)) Finish(status);
  }

  ServerState& state_;
  std::shared_ptr<LongReply> self_;
  std::atomic<bool> finished_{false};  // whoever turns it calls Finish; until then all is there
};

// A call that is answered from the model's description, at once unless its text is long.
template <class Request, class Response, class Fill>
grpc::ServerUnaryReactor* answer_from_model(ServerState& state,
                                            grpc::CallbackServerContext* context,
                                            const Request& request, Response* response, Fill fill) {
  if (grpc::Status s = check_call(state, context); !s.ok()) return answer(context, s);
  const ServedModel& model = state.backing->model;
  Status s = check_model_name(request.model(), model);
  if (s.ok() && text_bytes(request) > kLongTextBytes) {
    auto copy = std::make_shared<const Request>(request);
    return LongReply<Response>::start(
        state, context, response,
        [copy, &model, fill](Response* own) { return fill(*copy, model, own); });
  }
  if (s.ok()) s = fill(request, model, response);
  if (!s.ok()) state.metrics.rejected("invalid");
  return answer(context, to_grpc(s));
}

}  // namespace

grpc::ServerUnaryReactor* InferenceService::Generate(grpc::CallbackServerContext* context,
                                                     const wire::GenerateRequest* request,
                                                     wire::GenerateResponse* response) {
  Handlers::Inside inside(state_.handlers);
  return UnaryReply::start(state_, context, *request, response);
}

grpc::ServerWriteReactor<wire::GenerateChunk>* InferenceService::GenerateStream(
    grpc::CallbackServerContext* context, const wire::GenerateRequest* request) {
  Handlers::Inside inside(state_.handlers);
  return StreamReply::start(state_, context, *request);
}

grpc::ServerUnaryReactor* InferenceService::Tokenize(grpc::CallbackServerContext* context,
                                                     const wire::TokenizeRequest* request,
                                                     wire::TokenizeResponse* response) {
  Handlers::Inside inside(state_.handlers);
  return answer_from_model(state_, context, *request, response, tokenize);
}

grpc::ServerUnaryReactor* InferenceService::Detokenize(grpc::CallbackServerContext* context,
                                                       const wire::DetokenizeRequest* request,
                                                       wire::DetokenizeResponse* response) {
  Handlers::Inside inside(state_.handlers);
  return answer_from_model(state_, context, *request, response, detokenize);
}

grpc::ServerUnaryReactor* InferenceService::GetModelInfo(grpc::CallbackServerContext* context,
                                                         const wire::GetModelInfoRequest* request,
                                                         wire::ModelInfo* response) {
  Handlers::Inside inside(state_.handlers);
  return answer_from_model(
      state_, context, *request, response,
      [](const wire::GetModelInfoRequest&, const ServedModel& model, wire::ModelInfo* info) {
        describe(model, info);
        return Status();
      });
}

}  // namespace pf
