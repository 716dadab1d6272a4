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
    append(&it->tokens, &event.tokens);
    append(&it->origins, &event.origins);
    append(&it->logprobs, &event.logprobs);
    it->finish = event.finish;
    it->speculation = std::move(event.speculation);
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
