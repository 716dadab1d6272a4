#pragma once

#include <cmath>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "base/philox.h"
#include "batch/request.h"
#include "sampling/distribution.h"

namespace pf {

// A language model without weights: the logits behind a text are a hash of the whole text. Any key
// that is read from a wrong slot, missing, or stale changes every logit, so token equality with
// the plain loop below proves block tables, masks, lengths, copies and moves.
struct HashModel {
  int32_t vocabulary = 32;
  uint64_t salt = 1;
  // Of 64 texts, so many on which a draft with this figure thinks as the target does.
  int32_t agreement = 64;
  int32_t hard_agreement = -1;  // the same of texts that begin with an odd token; < 0: as of all
  float spread = 3;             // of the logits
  int32_t memory = 0;           // how many of the last tokens a text's logits follow from; 0: all
  // A vocabulary of its own: what its tokens are to the model that it agrees with; -1: strangers.
  // Empty: the same. Outlives the model.
  std::span<const int32_t> known_as = {};

  static uint64_t extend(uint64_t h, int32_t token) {
    PhiloxBlock b = philox(h, {static_cast<uint32_t>(token), 0, 0, 0});
    return static_cast<uint64_t>(b[0]) << 32 | b[1];
  }
  int32_t known(int32_t token) const {
    if (known_as.empty()) return token;
    int32_t as = known_as[static_cast<size_t>(token)];
    return as >= 0 ? as : 1000 + token;
  }
  // Logits [V] behind the text whose hash is h.
  void logits(uint64_t h, std::span<float> out) const { logits(h, out, agreement); }
  void logits(uint64_t h, std::span<float> out, int32_t agreement_here) const {
    bool agrees = static_cast<int32_t>(h >> 7 & 63) < agreement_here;
    for (int32_t t = 0; t < vocabulary; ++t) {
      auto lane = static_cast<uint32_t>(known(t));
      PhiloxBlock b = philox(h, {lane, 7, agrees ? 0u : 1u, static_cast<uint32_t>(salt)});
      out[static_cast<size_t>(t)] = spread * (uniform(b[0]) + uniform(b[1]) + uniform(b[2]) - 1.5f);
    }
  }
  uint64_t hash(std::span<const int32_t> text) const {
    uint64_t h = salt;
    if (memory > 0 && text.size() > static_cast<size_t>(memory))
      text = text.last(static_cast<size_t>(memory));
    for (int32_t t : text) h = extend(h, known(t));
    return h;
  }
};

// HashModel behind the contract of Backend, with a paged plane that holds what was fed where. Its
// hidden state of a row is the hash of the text up to there, as floats. As a head it lives on those
// of its target: a slot holds a token and the hash before it, and every row that is computed checks
// that the hashes of all slots it sees follow from each other.
class HashBackend final : public Backend {
 public:
  HashBackend(HashModel model, int32_t n_blocks, int32_t block_tokens, int64_t max_context);

  const BackendInfo& info() const override { return info_; }
  void forward(const Batch& batch) override;
  void accept(std::span<const AcceptJob> jobs, std::span<AcceptResult> results) override;
  void score(std::span<const ScoreJob> jobs, std::span<TokenLogprob> results) override;
  void read_logits(int32_t first, int32_t n, View<float, 2> out) override;
  HiddenStates hidden_states() const override { return {hidden_.data(), kMaxRows, kHidden}; }
  void keep_hidden(std::span<const HiddenKeep> keeps) override {
    for (HiddenKeep k : keeps)
      kept_[static_cast<size_t>(k.block)] = hash_at({HiddenRef::In::kForward, k.row});
  }
  void propose(std::span<const ProposeJob> jobs, std::span<DraftTree> trees) override;
  // With n "layers" it agrees with itself on n of 64 texts.
  void propose_early(int32_t n_layers, std::span<const ProposeJob> jobs,
                     std::span<DraftTree> trees) override {
    std::swap(model_.agreement, n_layers);
    propose(jobs, trees);
    std::swap(model_.agreement, n_layers);
  }
  void copy_blocks(std::span<const BlockCopy> copies) override;
  void move_slots(std::span<const SlotMove> moves) override;

  int64_t n_rows_run = 0, n_forwards = 0, n_blocks_copied = 0, n_slots_moved = 0;
  int32_t max_rows_seen = 0;
  const Batch& last_batch() const { return batch_; }
  // Called by every pass: a forward, or one level of a proposal for all its jobs together, as a
  // device would run it.
  std::function<void(int32_t n_rows)> on_pass;
  // Called with the logits of each row that is looked at and the text that they follow.
  std::function<void(std::span<const int32_t> text, std::span<float> logits)> spoil;
  bool is_head = false;  // over these hidden states of another one
  HiddenStates hidden_of;
  bool keeps_hidden = false;
  int32_t n_medusa_heads = 0;  // > 0: so many heads over hidden_of, and no plane
  static constexpr int64_t kMaxRows = 4096;
  static constexpr int64_t kHidden = 4;  // floats that hold a hash, 16 bits each

 private:
  struct Slot {
    int32_t token = -1, position = -1;
    uint64_t before = 0;  // of a head: the hash of the text before the token
  };
  Slot& slot(const Segment& s, int64_t logical) {
    auto p = static_cast<int64_t>(block_tokens_);
    return plane_[static_cast<size_t>(s.blocks[static_cast<size_t>(logical / p)] * p +
                                      logical % p)];
  }
  uint64_t hash_of_row(int32_t row);
  uint64_t hash_at(HiddenRef ref) const;
  void propose_one(const ProposeJob& job, DraftTree* tree);
  void propose_as_medusa(std::span<const ProposeJob> jobs, std::span<DraftTree> trees);
  void propose_grown(const ProposeJob& job, DraftTree* tree);
  void feed(const ProposeJob& job, const DraftTree& tree, size_t level);
  int32_t agreement_on_text() const;

  HashModel model_;
  int32_t block_tokens_;
  BackendInfo info_;
  std::vector<Slot> plane_;
  Batch batch_;  // of the last forward
  std::vector<float> logits_;
  std::vector<int32_t> text_;     // that the present row sees
  std::vector<float> hidden_;     // [kMaxRows, kHidden], rows of the last forward first
  std::vector<uint64_t> kept_;    // of a head: by block
  std::vector<uint64_t> before_;  // of a head: by row of the forward to come
  bool proposing_ = false;
  std::vector<int32_t> level_rows_;  // of the present proposal
};

// What the target says without a server, a cache, a draft or neighbours: one token after another.
struct PlainRun {
  std::vector<int32_t> tokens;  // generated
  std::vector<float> logprobs;
};
PlainRun plain_run(const HashModel& model, const Request& request, int32_t index,
                   int64_t max_context);

}  // namespace pf
