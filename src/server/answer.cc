#include "server/answer.h"

#include "base/check.h"

namespace pf {

Answer::Answer(const Tokenizer& tokenizer, AnswerOptions options)
    : options_(std::move(options)), n_open_(options_.n) {
  for (int32_t i = 0; i < options_.n; ++i)
    streams_.push_back(std::make_unique<CompletionStream>(tokenizer, options_, i));
}

void Answer::push(Event event, int64_t now_us, std::vector<wire::GenerateChunk>* out) {
  check(event.index >= 0 && event.index < options_.n, "an event of no completion");
  CompletionStream& stream = *streams_[static_cast<size_t>(event.index)];
  if (!prompt_sent_) {
    prompt_sent_ = true;
    fill_prompt(event, out->emplace_back().mutable_prompt());
    out->back().set_index(static_cast<uint32_t>(event.index));
  }
  std::optional<wire::GenerateChunk> chunk = stream.push(std::move(event), now_us);
  if (chunk) {
    // The prompt rides on the first chunk of text.
    if (!out->empty() && out->back().index() == chunk->index() && !out->back().has_finish())
      append_chunk(std::move(*chunk), &out->back());
    else
      out->push_back(std::move(*chunk));
  }
  if (!stream.finished()) return;
  --n_open_;
  if (failure_ == FinishReason::kNone) failure_ = stream.failure();
}

void Answer::fill_prompt(const Event& event, wire::PromptInfo* prompt) {
  n_cached_tokens_ = event.n_cached_tokens;
  prompt->set_request_id(options_.request_id);
  prompt->set_num_prompt_tokens(static_cast<uint32_t>(options_.n_prompt));
  prompt->set_num_cached_tokens(static_cast<uint32_t>(n_cached_tokens_));
  for (size_t i = 0; i < event.prompt_logprobs.size() && i + 1 < options_.prompt.size(); ++i)
    fill_logprob(options_.prompt[i + 1], event.prompt_logprobs[i], prompt->add_prompt_logprobs());
}

uint32_t Answer::stopped() const {
  uint32_t bits = 0;
  for (size_t i = 0; i < streams_.size(); ++i)
    if (streams_[i]->stopped()) bits |= 1u << i;
  return bits;
}

int64_t Answer::n_tokens() const {
  int64_t n = 0;
  for (const auto& stream : streams_) n += stream->n_tokens();
  return n;
}

}  // namespace pf
