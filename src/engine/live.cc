#include "engine/live.h"

#include <iterator>

namespace pf {
namespace {

template <class T>
void append(std::vector<T>* to, std::vector<T>* from) {
  to->insert(to->end(), std::make_move_iterator(from->begin()),
             std::make_move_iterator(from->end()));
}

}  // namespace

void Emitter::emit(Event event) {
  flush();
  if (backlog_.empty() && outbox_->try_push(std::move(event))) return;
  for (auto it = backlog_.rbegin(); it != backlog_.rend(); ++it) {
    if (it->ticket != event.ticket || it->index != event.index) continue;
    for (VerifiedRound& round : event.rounds)
      round.first_token += static_cast<int32_t>(it->tokens.size());
    append(&it->rounds, &event.rounds);
    if (!it->losses.empty() || !event.losses.empty()) {
      it->losses.resize(it->tokens.size(), 0);
      event.losses.resize(event.tokens.size(), 0);
      append(&it->losses, &event.losses);
    }
    append(&it->tokens, &event.tokens);
    append(&it->origins, &event.origins);
    append(&it->logprobs, &event.logprobs);
    it->finish = event.finish;
    it->acceptance = event.acceptance;
    it->times = event.times;
    return;
  }
  backlog_.push_back(std::move(event));
}

void Emitter::flush() {
  while (!backlog_.empty() && outbox_->try_push(std::move(backlog_.front()))) backlog_.pop_front();
}

}  // namespace pf
