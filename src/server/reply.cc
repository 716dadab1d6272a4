#include "server/reply.h"

#include <utility>

namespace pf {
namespace {

constexpr size_t kMaxPendingBytes = 1 << 20;

}  // namespace

Status Submission::submit(PreparedRequest prepared, std::function<void(Delivery)> deliver) {
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return {};
    call_ = std::make_shared<Call>(state_.backing->model.tokenizer, std::move(prepared.answer));
  }
  call_->deliver = std::move(deliver);
  Status s = state_.backing->dispatcher.submit(std::move(prepared.request), call_);
  if (!s.ok()) {
    call_->deliver = nullptr;  // or reply and call would hold each other for ever
    return s;
  }
  {
    std::lock_guard lock(mutex_);
    submitted_ = true;
    if (!cancelled_) return {};
  }
  state_.backing->dispatcher.cancel(*call_);
  return {};
}

void Submission::cancel() {
  {
    std::lock_guard lock(mutex_);
    cancelled_ = true;
    if (!submitted_) return;
  }
  state_.backing->dispatcher.cancel(*call_);
}

bool Submission::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

// Begins the reply of an admitted call: here, or when its text is long and it is its turn.
template <class Reply>
void begin_in_time(ServerState& state, const std::shared_ptr<Reply>& reply,
                   const wire::GenerateRequest& request, Admitted admitted) {
  if (!admitted.is_long) return reply->begin(request, admitted);
  // gRPC's own copy goes when the client does.
  auto copy = std::make_shared<const wire::GenerateRequest>(request);
  bool taken = state.long_texts.post([reply, copy, admitted = std::move(admitted)] {
    if (!reply->submission_.cancelled()) reply->begin(*copy, admitted);
  });
  if (!taken) reply->refuse(too_many_long_texts());
}

StreamReply::StreamReply(ServerState& state, grpc::CallbackServerContext* context)
    : state_(state), context_(context), submission_(state) {
  ++state_.n_open;
}

StreamReply* StreamReply::start(ServerState& state, grpc::CallbackServerContext* context,
                                const wire::GenerateRequest& request) {
  std::shared_ptr<StreamReply> reply(new StreamReply(state, context));
  reply->self_ = reply;
  Admitted admitted;
  if (grpc::Status s = admit(state, context, request, &admitted); !s.ok())
    reply->end(s);
  else
    begin_in_time(state, reply, request, std::move(admitted));
  return reply.get();
}

void StreamReply::begin(const wire::GenerateRequest& request, const Admitted& admitted) {
  PreparedRequest prepared;
  if (grpc::Status s = prepare(state_, request, admitted, &prepared); !s.ok()) return end(s);
  Status s = submission_.submit(std::move(prepared), [reply = shared_from_this()](Delivery d) {
    reply->deliver(std::move(d));
  });
  if (!s.ok()) refuse(s);
}

void StreamReply::end(const grpc::Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;
    ended_ = true;
    status_ = status;
  }
  go_on();
}

void StreamReply::refuse(const Status& status) {
  {
    std::lock_guard lock(mutex_);
    if (ended_) return;  // and the context may be gone
    ended_ = true;
    status_ = pf::refuse(state_, context_, status);
  }
  go_on();
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
  state_.log.warn("slow reader cancelled", {{"id", submission_.request_id()}});
  context_->TryCancel();  // the write fails, OnCancel frees the engine
  {
    std::lock_guard lock(mutex_);
    cancelling_ = false;
  }
  go_on();
}

void StreamReply::OnCancel() {
  submission_.cancel();
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

UnaryReply::UnaryReply(ServerState& state, grpc::CallbackServerContext* context,
                       wire::GenerateResponse* response)
    : state_(state), context_(context), response_(response), submission_(state) {
  ++state_.n_open;
}

UnaryReply* UnaryReply::start(ServerState& state, grpc::CallbackServerContext* context,
                              const wire::GenerateRequest& request,
                              wire::GenerateResponse* response) {
  std::shared_ptr<UnaryReply> reply(new UnaryReply(state, context, response));
  reply->self_ = reply;
  Admitted admitted;
  if (grpc::Status s = admit(state, context, request, &admitted); !s.ok())
    reply->finish(s);
  else
    begin_in_time(state, reply, request, std::move(admitted));
  return reply.get();
}

void UnaryReply::begin(const wire::GenerateRequest& request, const Admitted& admitted) {
  PreparedRequest prepared;
  if (grpc::Status s = prepare(state_, request, admitted, &prepared); !s.ok()) return finish(s);
  {
    std::lock_guard lock(mutex_);
    if (finished_) return;
    for (int32_t i = 0; i < prepared.answer.n; ++i)
      response_->add_completions()->set_index(static_cast<uint32_t>(i));
  }
  Status s = submission_.submit(std::move(prepared), [reply = shared_from_this()](Delivery d) {
    reply->deliver(std::move(d));
  });
  if (!s.ok()) refuse(s);
}

void UnaryReply::refuse(const Status& status) {
  if (claim_finish()) Finish(pf::refuse(state_, context_, status));
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

// True for one caller, who then finishes: until it does, context and response are there.
bool UnaryReply::claim_finish() {
  std::lock_guard lock(mutex_);
  return !std::exchange(finished_, true);
}

void UnaryReply::finish(const grpc::Status& status) {
  if (claim_finish()) Finish(status);
}

void UnaryReply::OnCancel() {
  submission_.cancel();
  finish(to_grpc(FinishReason::kCancelled));
}

void UnaryReply::OnDone() {
  --state_.n_open;
  std::shared_ptr<UnaryReply> self = std::move(self_);
}

}  // namespace pf
