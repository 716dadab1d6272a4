#include "server/reply.h"

namespace pf {
namespace {

constexpr size_t kMaxPendingBytes = 1 << 20;

// Makes the call of a prepared request and submits it; the refusal otherwise.
grpc::Status submit(ServerState& state, grpc::CallbackServerContext* context,
                    PreparedRequest prepared, const std::shared_ptr<Call>& call) {
  Status s = state.backing->dispatcher.submit(std::move(prepared.request), call);
  if (!s.ok()) call->deliver = nullptr;  // or reply and call would hold each other for ever
  if (s.code() == Code::kResourceExhausted) return refuse_full_queue(state, context, s);
  if (!s.ok()) state.metrics.rejected("duplicate");
  return to_grpc(s);
}

std::shared_ptr<Call> make_call(ServerState& state, PreparedRequest* prepared) {
  return std::make_shared<Call>(state.backing->model.tokenizer, std::move(prepared->answer));
}

}  // namespace

StreamReply::StreamReply(ServerState& state, grpc::CallbackServerContext* context)
    : state_(state), context_(context) {
  ++state_.n_open;
}

StreamReply* StreamReply::start(ServerState& state, grpc::CallbackServerContext* context,
                                PreparedRequest prepared) {
  std::shared_ptr<StreamReply> reply(new StreamReply(state, context));
  reply->self_ = reply;
  reply->call_ = make_call(state, &prepared);
  reply->call_->deliver = [reply](Delivery d) { reply->deliver(std::move(d)); };
  if (grpc::Status s = submit(state, context, std::move(prepared), reply->call_); !s.ok()) {
    {
      std::lock_guard lock(reply->mutex_);
      reply->status_ = s;
      reply->ended_ = true;
    }
    reply->go_on();
  }
  return reply.get();
}

void StreamReply::deliver(Delivery delivery) {
  {
    std::lock_guard lock(mutex_);
    if (!ended_) {
      for (wire::GenerateChunk& chunk : delivery.chunks) append(std::move(chunk));
      if (delivery.last) {
        ended_ = true;
        status_ = to_grpc(delivery.failure);
      }
    }
  }
  go_on();
  check_reader();
}

void StreamReply::append(wire::GenerateChunk chunk) {
  pending_bytes_ += chunk.ByteSizeLong();
  for (auto it = pending_.rbegin(); it != pending_.rend(); ++it) {
    if (it->index() != chunk.index()) continue;
    append_chunk(std::move(chunk), &*it);
    return;
  }
  pending_.push_back(std::move(chunk));
}

// Begins the next operation, if there is one and none is under way.
void StreamReply::go_on() {
  bool finishes = false;
  {
    std::lock_guard lock(mutex_);
    if (busy_ || finished_ || cancelling_) return;
    if (!pending_.empty()) {
      writing_ = std::move(pending_.front());
      pending_.pop_front();
      if (pending_.empty()) pending_bytes_ = 0;
      busy_ = true;
      write_began_us_ = state_.clock.now_us();
    } else if (ended_) {
      finished_ = finishes = true;
    } else {
      return;
    }
  }
  if (finishes)
    Finish(status_);
  else
    StartWrite(&writing_);
}

void StreamReply::OnWriteDone(bool ok) {
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    state_.metrics.write_blocked(1e-6 *
                                 static_cast<double>(state_.clock.now_us() - write_began_us_));
    if (!ok) {
      pending_.clear();
      if (!ended_) status_ = to_grpc(FinishReason::kCancelled);
      ended_ = true;
    }
  }
  go_on();
}

void StreamReply::check_reader() {
  {
    std::lock_guard lock(mutex_);
    bool late = busy_ && state_.clock.now_us() - write_began_us_ > state_.slow_reader_us;
    if (too_slow_ || finished_ || !(late || pending_bytes_ > kMaxPendingBytes)) return;
    too_slow_ = cancelling_ = true;  // no Finish meanwhile: it would end the context
  }
  state_.log.warn("slow reader cancelled", {{"id", call_->answer.options().request_id}});
  context_->TryCancel();  // the write fails, OnCancel frees the engine
  {
    std::lock_guard lock(mutex_);
    cancelling_ = false;
  }
  go_on();
}

void StreamReply::OnCancel() {
  if (call_->ticket != 0) state_.backing->dispatcher.cancel(*call_);
  {
    std::lock_guard lock(mutex_);
    if (!ended_) status_ = to_grpc(FinishReason::kCancelled);
    ended_ = true;
    pending_.clear();
  }
  go_on();
}

void StreamReply::OnDone() {
  --state_.n_open;
  std::shared_ptr<StreamReply> self = std::move(self_);  // ends here, unless events still come
}

UnaryReply::UnaryReply(ServerState& state, wire::GenerateResponse* response)
    : state_(state), response_(response) {
  ++state_.n_open;
}

UnaryReply* UnaryReply::start(ServerState& state, grpc::CallbackServerContext* context,
                              PreparedRequest prepared, wire::GenerateResponse* response) {
  std::shared_ptr<UnaryReply> reply(new UnaryReply(state, response));
  reply->self_ = reply;
  for (int32_t i = 0; i < prepared.answer.n; ++i)
    response->add_completions()->set_index(static_cast<uint32_t>(i));
  reply->call_ = make_call(state, &prepared);
  reply->call_->deliver = [reply](Delivery d) { reply->deliver(std::move(d)); };
  if (grpc::Status s = submit(state, context, std::move(prepared), reply->call_); !s.ok())
    reply->finish(s);
  return reply.get();
}

void UnaryReply::deliver(Delivery delivery) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    for (wire::GenerateChunk& chunk : delivery.chunks) {
      if (chunk.has_prompt()) *response_->mutable_prompt() = std::move(*chunk.mutable_prompt());
      append_chunk(std::move(chunk),
                   response_->mutable_completions(static_cast<int>(chunk.index())));
    }
  }
  if (delivery.last) finish(to_grpc(delivery.failure));
}

void UnaryReply::finish(const grpc::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    finished_ = true;
  }
  Finish(status);
}

void UnaryReply::OnCancel() {
  if (call_->ticket != 0) state_.backing->dispatcher.cancel(*call_);
  finish(to_grpc(FinishReason::kCancelled));
}

void UnaryReply::OnDone() {
  --state_.n_open;
  std::shared_ptr<UnaryReply> self = std::move(self_);
}

}  // namespace pf
