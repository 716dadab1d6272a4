#include "server/completion_stream.h"

#include <algorithm>

#include "base/check.h"

namespace pf {
namespace {

bool is_failure(FinishReason reason) {
  return reason == FinishReason::kCancelled || reason == FinishReason::kDeadline ||
         reason == FinishReason::kCorrupted;
}

wire::Origin wire_origin(Origin origin) { return static_cast<wire::Origin>(origin); }
static_assert(static_cast<int>(Origin::kTarget) == wire::TARGET);
static_assert(static_cast<int>(Origin::kDraft) == wire::DRAFT);
static_assert(static_cast<int>(Origin::kCorrected) == wire::CORRECTED);
static_assert(static_cast<int>(Origin::kBonus) == wire::BONUS);

wire::Speculation::Acceptance wire_rule(Acceptance rule) {
  switch (rule) {
    case Acceptance::kRejection:
      return wire::Speculation::REJECTION;
    case Acceptance::kCoupled:
      return wire::Speculation::COUPLED;
    case Acceptance::kThreshold:
      return wire::Speculation::THRESHOLD;
    case Acceptance::kThresholdLiteral:
      return wire::Speculation::THRESHOLD_LITERAL;
    case Acceptance::kTypical:
      return wire::Speculation::TYPICAL;
  }
  die("no such accept rule");
}

uint64_t between(int64_t from_us, int64_t to_us) {
  return from_us < 0 || to_us < from_us ? 0 : static_cast<uint64_t>(to_us - from_us);
}

// A phase that was never reached ends where the request ended.
void fill_timing(const PhaseTimes& t, wire::Timing* timing) {
  int64_t scheduled = t.first_scheduled_us < 0 ? t.end_us : t.first_scheduled_us;
  int64_t first = t.first_token_us < 0 ? t.end_us : t.first_token_us;
  timing->set_queue_us(between(t.arrival_us, scheduled));
  timing->set_prefill_us(between(scheduled, first));
  timing->set_ttft_us(between(t.arrival_us, first));
  timing->set_decode_us(between(first, t.end_us));
  timing->set_total_us(between(t.arrival_us, t.end_us));
}

void fill_speculation(const SpeculationCounts& c, const std::vector<std::string>& names,
                      wire::SpeculationStats* stats) {
  stats->set_rounds(static_cast<uint32_t>(c.rounds));
  stats->set_drafted_tokens(static_cast<uint32_t>(c.drafted));
  stats->set_accepted_tokens(static_cast<uint32_t>(c.accepted));
  stats->mutable_drafted_per_position()->Assign(c.drafted_at.begin(), c.drafted_at.end());
  stats->mutable_accepted_per_position()->Assign(c.accepted_at.begin(), c.accepted_at.end());
  for (size_t i = 0; i < c.rounds_per_drafter.size() && i < names.size(); ++i)
    if (c.rounds_per_drafter[i] > 0)
      (*stats->mutable_rounds_per_drafter())[names[i]] =
          static_cast<uint32_t>(c.rounds_per_drafter[i]);
  stats->set_last_alpha(c.last_alpha);
  stats->set_loss(static_cast<float>(c.loss));
}

}  // namespace

void fill_logprob(int32_t token, const TokenLogprob& from, wire::TokenLogprob* to) {
  to->set_token_id(static_cast<uint32_t>(token));
  to->set_logprob(from.logprob);
  for (const TopLogprob& t : from.top) {
    wire::TopLogprob* top = to->add_top();
    top->set_token_id(static_cast<uint32_t>(t.token));
    top->set_logprob(t.logprob);
  }
}

CompletionStream::CompletionStream(const Tokenizer& tokenizer, const AnswerOptions& options,
                                   int32_t index)
    : options_(options),
      index_(index),
      text_(tokenizer, options.stops, {.include_stop_string = options.include_stop_string}) {}

std::optional<wire::GenerateChunk> CompletionStream::push(Event event, int64_t now_us) {
  check(!finished_, "an event came behind the last one");
  take_tokens(&event, now_us);
  bool ends = event.finish != FinishReason::kNone;
  finished_ = ends;
  if (ends && !stopped() && is_failure(event.finish)) {
    failure_ = event.finish;
    return std::nullopt;
  }
  std::string rest = ends ? text_.finish() : "";
  size_t n = ends || stopped() ? pending_.size() : n_ready(now_us);
  if (n == 0 && !ends) return std::nullopt;
  wire::GenerateChunk chunk;
  chunk.set_index(static_cast<uint32_t>(index_));
  release(n, &chunk);
  chunk.mutable_text()->append(rest);
  if (ends) fill_finish(event, chunk.mutable_finish());
  return chunk;
}

void CompletionStream::take_tokens(Event* event, int64_t now_us) {
  int64_t n_before = n_tokens_;
  for (size_t i = 0; i < event->tokens.size() && !stopped(); ++i) {
    int32_t token = event->tokens[i];
    Piece piece{"", token, event->origins[i], {}};
    if (options_.logprobs) piece.logprob = std::move(event->logprobs[i]);
    ++n_tokens_;
    if (event->finish == FinishReason::kEndToken && i + 1 == event->tokens.size()) {
      end_token_ = token;
      piece.text = text_.push_stop_token(token);
    } else {
      TextStream::Delta delta = text_.push(token, n_tokens_ >= options_.min_new_tokens);
      piece.text = std::move(delta.text);
      stopped_by_ = delta.stopped_by;
    }
    if (pending_.empty()) pending_since_us_ = now_us;
    pending_.push_back(std::move(piece));
  }
  count(*event, n_tokens_ - n_before);
}

// Of what the engine says it did, the rounds and losses of the tokens that are taken.
void CompletionStream::count(const Event& event, int64_t n_taken) {
  for (const VerifiedRound& round : event.rounds)
    if (round.first_token < n_taken) speculation_.add(round);
  for (size_t i = 0; i < event.losses.size() && static_cast<int64_t>(i) < n_taken; ++i)
    speculation_.loss += event.losses[i];
}

// min_chunk_tokens gives whole multiples, so that the size of a chunk tells nothing of a round.
size_t CompletionStream::n_ready(int64_t now_us) const {
  size_t m = static_cast<size_t>(options_.min_chunk_tokens);
  if (m == 0 && options_.min_chunk_us == 0) return pending_.size();
  if (options_.min_chunk_us > 0 && now_us - pending_since_us_ >= options_.min_chunk_us)
    return pending_.size();
  return m == 0 ? 0 : pending_.size() / m * m;
}

void CompletionStream::release(size_t n, wire::GenerateChunk* chunk) {
  for (size_t i = 0; i < n; ++i) {
    const Piece& p = pending_[i];
    chunk->mutable_text()->append(p.text);
    if (options_.token_ids) chunk->add_token_ids(static_cast<uint32_t>(p.token));
    if (options_.token_origins) chunk->add_origins(wire_origin(p.origin));
    if (options_.logprobs) fill_logprob(p.token, p.logprob, chunk->add_logprobs());
  }
  chunk->set_num_tokens(static_cast<uint32_t>(n));
  pending_.erase(pending_.begin(), pending_.begin() + static_cast<std::ptrdiff_t>(n));
}

bool CompletionStream::ended_by_eos() const {
  const std::vector<int32_t>& eos = options_.eos_ids;
  return std::find(eos.begin(), eos.end(), end_token_) != eos.end();
}

void CompletionStream::fill_finish(const Event& event, wire::Finish* finish) const {
  fill_reason(event, finish);
  finish->set_num_prompt_tokens(static_cast<uint32_t>(options_.n_prompt));
  finish->set_num_generated_tokens(static_cast<uint32_t>(n_tokens_));
  finish->set_seed(options_.seed);
  if (options_.timing) fill_timing(event.times, finish->mutable_timing());
  fill_speculation(speculation_, options_.drafter_names, finish->mutable_speculation());
  finish->mutable_speculation()->set_acceptance(wire_rule(event.acceptance));
}

void CompletionStream::fill_reason(const Event& event, wire::Finish* finish) const {
  if (stopped()) {
    finish->set_reason(wire::Finish::STOP_STRING);
    finish->set_stop_string(options_.stops.string(stopped_by_));
    return;
  }
  switch (event.finish) {
    case FinishReason::kLength:
      return finish->set_reason(wire::Finish::LENGTH);
    case FinishReason::kContextFull:
      return finish->set_reason(wire::Finish::CONTEXT_FULL);
    case FinishReason::kTimeLimit:
      return finish->set_reason(wire::Finish::TIME_LIMIT);
    case FinishReason::kAborted:
      return finish->set_reason(wire::Finish::ABORTED);
    case FinishReason::kShutdown:
      return finish->set_reason(wire::Finish::SHUTDOWN);
    case FinishReason::kEndToken:
      finish->set_stop_token_id(static_cast<uint32_t>(end_token_));
      return finish->set_reason(ended_by_eos() ? wire::Finish::EOS : wire::Finish::STOP_TOKEN);
    default:
      die("a completion ended for no reason of an answer");
  }
}

}  // namespace pf
