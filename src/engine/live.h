#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <unordered_map>
#include <vector>

#include "base/bounded_queue.h"
#include "batch/sequence.h"
#include "engine/event.h"

namespace pf {

// One request that the engine works on, with its completions. Sequences have stable addresses.
struct Live {
  std::unique_ptr<Request> request;
  std::vector<std::unique_ptr<Sequence>> sequences;  // by index; null once finished
  int32_t n_open = 0;
  bool prompt_reported = false;
  bool forked = false;                        // the siblings no longer wait for sequence 0
  std::vector<TokenLogprob> prompt_logprobs;  // of prompt tokens 1, 2, ... as far as known

  bool wants_prompt_scores() const {
    return request->output.prompt_logprobs && prompt_logprobs.size() + 1 < request->prompt.size();
  }
};

// Events on their way out. The queue may be full at any time: then events wait here and those of
// one completion grow together, so a consumer that is late costs no more than its tokens.
class Emitter {
 public:
  explicit Emitter(BoundedQueue<Event>* outbox) : outbox_(outbox) {}
  void emit(Event event);
  void flush();
  bool empty() const { return backlog_.empty(); }

 private:
  BoundedQueue<Event>* outbox_;
  std::deque<Event> backlog_;
};

}  // namespace pf
