#include "server/dispatcher.h"

#include <chrono>

#include "base/thread_name.h"

namespace pf {
namespace {

constexpr std::chrono::milliseconds kTick(100);

const char* reason_name(FinishReason reason, bool is_eos) {
  switch (reason) {
    case FinishReason::kLength:
      return "length";
    case FinishReason::kContextFull:
      return "context_full";
    case FinishReason::kEndToken:
      return is_eos ? "eos" : "stop_token";
    case FinishReason::kTimeLimit:
      return "time_limit";
    case FinishReason::kShutdown:
      return "shutdown";
    case FinishReason::kDeadline:
      return "deadline";
    case FinishReason::kCorrupted:
      return "corrupted";
    case FinishReason::kCancelled:
      return "cancelled";
    default:
      return "aborted";
  }
}

}  // namespace

Dispatcher::Dispatcher(EnginePort port, const Clock& clock, Metrics& metrics, Log& log)
    : port_(std::move(port)), clock_(clock), metrics_(metrics), log_(log) {
  thread_ = std::thread([this] { run(); });
}

Dispatcher::~Dispatcher() {
  stop_.store(true);
  port_.outbox->wake();
  thread_.join();
}

Status Dispatcher::submit(std::unique_ptr<Request> request, std::shared_ptr<Call> call) {
  const std::string& id = call->answer.options().request_id;
  // Held while the engine takes the request, so that no event of it finds its call missing.
  std::lock_guard lock(mutex_);
  if (ids_.contains(id))
    return Status(Code::kAlreadyExists, "request_id is in flight already; choose another one");
  request->ticket = last_ticket_ + 1;
  request->cancel = &call->cancel_bits;
  if (!port_.submit(request))
    return Status(Code::kResourceExhausted, "the queue is full; try again later");
  if (calls_.empty()) progress_us_ = clock_.now_us();
  call->ticket = ++last_ticket_;
  ids_.insert(id);
  calls_[call->ticket] = std::move(call);
  return {};
}

void Dispatcher::cancel(Call& call) {
  int64_t none = 0;
  call.cancelled_us.compare_exchange_strong(none, clock_.now_us());
  call.cancel_bits.store(~0u);
  port_.cancelled(call.ticket);
}

bool Dispatcher::abort(const std::string& request_id) {
  std::lock_guard lock(mutex_);
  for (auto& [ticket, call] : calls_) {
    if (call->answer.options().request_id != request_id) continue;
    call->aborted.store(true);
    call->cancel_bits.store(~0u);
    port_.cancelled(ticket);
    return true;
  }
  return false;
}

int64_t Dispatcher::n_in_flight() const {
  std::lock_guard lock(mutex_);
  return static_cast<int64_t>(calls_.size());
}

bool Dispatcher::wait_until_idle(int64_t timeout_us) {
  std::unique_lock lock(mutex_);
  return idle_.wait_for(lock, std::chrono::microseconds(timeout_us),
                        [&] { return calls_.empty(); });
}

int64_t Dispatcher::waiting_since_us() const {
  std::lock_guard lock(mutex_);
  return calls_.empty() ? 0 : progress_us_;
}

void Dispatcher::run() {
  name_this_thread("pf-dispatch");
  int64_t next_tick_us = 0;
  while (!stop_.load()) {
    if (std::optional<Event> event = port_.outbox->pop_for(kTick)) take(std::move(*event));
    if (clock_.now_us() < next_tick_us) continue;
    tick();
    next_tick_us = clock_.now_us() + std::chrono::microseconds(kTick).count();
  }
}

void Dispatcher::take(Event event) {
  int64_t now_us = clock_.now_us();
  std::shared_ptr<Call> call;
  {
    std::lock_guard lock(mutex_);
    progress_us_ = now_us;
    auto it = calls_.find(event.ticket);
    check(it != calls_.end(), "an event of no call");
    call = it->second;
  }
  if (event.finish == FinishReason::kCancelled && call->aborted.load())
    event.finish = FinishReason::kAborted;
  if (!event.tokens.empty()) {
    if (call->last_tokens_us != 0)
      metrics_.token_gap(1e-6 * static_cast<double>(now_us - call->last_tokens_us));
    call->last_tokens_us = now_us;
  }
  CompletionRecord record{"", 0, {}, event.times};
  FinishReason finish = event.finish;
  size_t index = static_cast<size_t>(event.index);
  Delivery delivery;
  Answer& answer = call->answer;
  answer.push(std::move(event), now_us, &delivery.chunks);
  end_what_is_of_no_use(*call);
  if (finish != FinishReason::kNone) {
    const CompletionStream& stream = answer.stream(index);
    record.reason = stream.stopped() ? "stop_string" : reason_name(finish, stream.ended_by_eos());
    record.n_generated = stream.n_tokens();
    record.speculation = stream.speculation();
    count(*call, record, now_us);
  }
  delivery.last = answer.finished();
  delivery.failure = answer.failure();
  bool over = delivery.last;
  if (over) end(*call);
  if (over || !delivery.chunks.empty()) call->deliver(std::move(delivery));
  if (over) call->deliver = nullptr;
}

// Completions that a stop string ended; all of them when one failed, since then the call fails.
void Dispatcher::end_what_is_of_no_use(Call& call) {
  uint32_t bits = call.answer.failure() != FinishReason::kNone ? ~0u : call.answer.stopped();
  if ((bits & ~call.cancel_bits.fetch_or(bits)) != 0) port_.cancelled(call.ticket);
}

void Dispatcher::count(Call& call, const CompletionRecord& record, int64_t now_us) {
  metrics_.finished(record);
  if (int64_t since_us = call.cancelled_us.load(); since_us != 0)
    metrics_.freed(1e-6 * static_cast<double>(now_us - since_us));
  call.n_drafted += record.speculation.drafted;
  call.n_accepted += record.speculation.accepted;
  if (!call.answer.finished()) return;
  const PhaseTimes& t = record.times;
  auto ms = [](int64_t from_us, int64_t to_us) {
    return to_us < from_us ? 0.0 : 1e-3 * static_cast<double>(to_us - from_us);
  };
  log_.info("request", {{"id", call.answer.options().request_id},
                        {"tokens_in", call.answer.options().n_prompt},
                        {"cached", call.answer.n_cached_tokens()},
                        {"tokens_out", call.answer.n_tokens()},
                        {"queue_ms", ms(t.arrival_us, t.first_scheduled_us)},
                        {"ttft_ms", ms(t.arrival_us, t.first_token_us)},
                        {"total_ms", ms(t.arrival_us, t.end_us)},
                        {"drafted", call.n_drafted},
                        {"accepted", call.n_accepted},
                        {"reason", std::string(record.reason)}});
}

void Dispatcher::tick() {
  std::vector<std::shared_ptr<Call>> calls;
  {
    std::lock_guard lock(mutex_);
    calls.reserve(calls_.size());
    for (auto& [ticket, call] : calls_) calls.push_back(call);
  }
  for (auto& call : calls) call->deliver({});
}

void Dispatcher::end(const Call& call) {
  {
    std::lock_guard lock(mutex_);
    ids_.erase(call.answer.options().request_id);
    calls_.erase(call.ticket);
  }
  idle_.notify_all();
}

}  // namespace pf
