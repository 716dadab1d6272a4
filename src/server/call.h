#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <vector>

#include "server/answer.h"

namespace pf {

// What the dispatcher hands to a call's reply: new chunks, and with `last` the end. Neither: a tick
// every 100 ms, to look at the time.
struct Delivery {
  std::vector<wire::GenerateChunk> chunks;
  bool last = false;
  FinishReason failure = FinishReason::kNone;  // with last: the answer could not be given
};

// One request on its way through the engine. Lives until both the engine's last event and the
// client's connection are done with it.
struct Call {
  Call(const Tokenizer& tokenizer, AnswerOptions options) : answer(tokenizer, std::move(options)) {}

  uint64_t ticket = 0;
  std::atomic<uint32_t> cancel_bits{0};  // see Request::cancel
  std::atomic<bool> aborted{false};      // by an operator: what there is, status OK
  std::atomic<int64_t> cancelled_us{0};  // when a client or a limit cancelled it; 0: not
  // The rest belongs to the dispatcher's thread once the call is submitted.
  Answer answer;
  std::function<void(Delivery)> deliver;
  int64_t last_tokens_us = 0;  // when tokens came last; 0: none yet
  int64_t n_drafted = 0, n_accepted = 0;
};

}  // namespace pf
