#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/event.h"
#include "proto/pilotfish/v1/inference.pb.h"
#include "server/answer_options.h"
#include "text/text_stream.h"

namespace pf {

namespace wire = pilotfish::v1;

// One completion: the engine's events in, the client's chunks out. The joined text of the chunks is
// the same bytes however the tokens were grouped. Knows nothing of the network.
class CompletionStream {
 public:
  // Both must outlive this stream.
  CompletionStream(const Tokenizer& tokenizer, const AnswerOptions& options, int32_t index);

  // Takes the next event of this completion; nothing to send yet: nullopt. Tokens behind a stop
  // string are dropped and not counted. The chunk with `finish` is the last one. An event that ends
  // without an answer (kCancelled, kDeadline, kCorrupted) gives no finish; see failure().
  std::optional<wire::GenerateChunk> push(Event event, int64_t now_us);

  // A stop string ended the text: the engine's work on this completion is of no use any more.
  bool stopped() const { return stopped_by_ >= 0; }
  bool finished() const { return finished_; }
  // Why it ended without an answer; kNone: it did not.
  FinishReason failure() const { return failure_; }
  int64_t n_tokens() const { return n_tokens_; }
  // Of the rounds up to the one that a stop string ended.
  const SpeculationCounts& speculation() const { return speculation_; }
  bool ended_by_eos() const;  // or, where an end token came, by a stop token

 private:
  struct Piece {
    std::string text;
    int32_t token;
    Origin origin;
    TokenLogprob logprob;
  };

  void take_tokens(Event* event, int64_t now_us);
  void count(const Event& event, int64_t n_taken);
  size_t n_ready(int64_t now_us) const;
  void release(size_t n, wire::GenerateChunk* chunk);
  void fill_finish(const Event& event, wire::Finish* finish) const;
  void fill_reason(const Event& event, wire::Finish* finish) const;

  const AnswerOptions& options_;
  const int32_t index_;
  TextStream text_;
  std::vector<Piece> pending_;    // held back by min_chunk
  int64_t pending_since_us_ = 0;  // when the first of them came
  int64_t n_tokens_ = 0;
  SpeculationCounts speculation_;
  int32_t end_token_ = -1;
  int stopped_by_ = -1;
  bool finished_ = false;
  FinishReason failure_ = FinishReason::kNone;
};

// On the wire: token_id, its log-probability and the most likely ones.
void fill_logprob(int32_t token, const TokenLogprob& from, wire::TokenLogprob* to);

}  // namespace pf
