#pragma once

#include <memory>
#include <vector>

#include "server/completion_stream.h"

namespace pf {

// The answer to one request: all of its completions, in the order in which clients see them. The
// first chunk has `prompt`. Knows nothing of the network; one thread at a time.
class Answer {
 public:
  // `tokenizer` must outlive this answer.
  Answer(const Tokenizer& tokenizer, AnswerOptions options);
  Answer(const Answer&) = delete;
  Answer& operator=(const Answer&) = delete;

  // Takes the next event of the request and appends what is to be sent now.
  void push(Event event, int64_t now_us, std::vector<wire::GenerateChunk>* out);

  const CompletionStream& stream(size_t index) const { return *streams_[index]; }
  const AnswerOptions& options() const { return options_; }
  // Bit i: a stop string ended completion i, and the engine should let it go.
  uint32_t stopped() const;
  bool finished() const { return n_open_ == 0; }
  // Of the first completion that ended without an answer; kNone: all is well.
  FinishReason failure() const { return failure_; }
  int64_t n_tokens() const;
  int64_t n_cached_tokens() const { return n_cached_tokens_; }

 private:
  void fill_prompt(const Event& event, wire::PromptInfo* prompt);

  AnswerOptions options_;
  std::vector<std::unique_ptr<CompletionStream>> streams_;  // by index
  int32_t n_open_;
  int64_t n_cached_tokens_ = 0;
  bool prompt_sent_ = false;
  FinishReason failure_ = FinishReason::kNone;
};

// Appends a later chunk of the same index to an earlier chunk or to the unary completion: text,
// tokens and all lists grow, `finish` moves over. `T` is GenerateChunk or Completion.
template <class T>
void append_chunk(wire::GenerateChunk&& chunk, T* to) {
  to->mutable_text()->append(chunk.text());
  to->set_num_tokens(to->num_tokens() + chunk.num_tokens());
  to->mutable_token_ids()->MergeFrom(chunk.token_ids());
  to->mutable_logprobs()->MergeFrom(chunk.logprobs());
  to->mutable_origins()->MergeFrom(chunk.origins());
  if (chunk.has_finish()) *to->mutable_finish() = std::move(*chunk.mutable_finish());
}

}  // namespace pf
