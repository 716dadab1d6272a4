// Truth: a std::map model of what every sequence has written (level 5). The device is simulated:
// each slot of each plane holds the name of what was last written there, and a name stands for a
// salt and all tokens up to that slot. A sequence must read the names of its own tokens, whoever
// wrote them, through any order of admissions, rounds, forks, preemptions and evictions.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "kv/kv_cache.h"

namespace pf {
namespace {

using Name = uint64_t;
constexpr Name kGarbage = 1;

Name follow(Name before, int32_t token) {
  return (before ^ static_cast<uint32_t>(token)) * 0x9e3779b97f4a7c15 + (before >> 29);
}

struct Text {
  std::string salt;
  std::vector<int32_t> tokens;
  std::vector<Name> names;  // one per token

  void push(int32_t token) {
    Name before = names.empty() ? std::hash<std::string>()(salt) | 2 : names.back();
    tokens.push_back(token);
    names.push_back(follow(before, token));
  }
  int64_t size() const { return static_cast<int64_t>(tokens.size()); }
};

struct Live {
  Text text;
  BlockTable table;
};

struct Case {
  int32_t n_blocks, block_tokens, n_planes, n_live;
  bool exact;  // roomy and one plane: every prefix that was ever full must be found
};

class Model {
 public:
  Model(const Case& c, uint64_t seed)
      : case_(c),
        kv_({c.n_blocks, c.block_tokens, c.n_planes, true}),
        device_(static_cast<size_t>(c.n_planes),
                std::vector<Name>(static_cast<size_t>(c.n_blocks * c.block_tokens), kGarbage)),
        random_(seed) {}

  void operate() {
    int32_t what = below(100);
    if (live_.empty() || (what < 12 && static_cast<int32_t>(live_.size()) < case_.n_live))
      return admit();
    auto at = std::next(live_.begin(), below(static_cast<int32_t>(live_.size())));
    Live& s = at->second;
    if (what < 60) return round(&s);
    if (what < 75) return catch_up(&s);
    if (what < 80) return fork(s);
    if (what < 84) return kv_.trim(&s.table, std::max(s.text.size(), target(s)));
    if (what < 90) return preempt(&s);
    if (what < 93 || s.text.size() > 90) {
      kv_.release(&s.table);
      live_.erase(at);
    }
  }

  void check() {
    std::vector<const BlockTable*> tables;
    for (auto& [id, s] : live_) {
      read_all(s);
      tables.push_back(&s.table);
    }
    kv_.check_integrity(tables);
  }

  void end() {
    for (auto& [id, s] : live_) kv_.release(&s.table);
    live_.clear();
    check();
    EXPECT_EQ(kv_.n_in_use(), 0);
  }

  const KvCache& kv() const { return kv_; }
  int64_t n_rounds = 0, n_refused = 0, n_forks = 0, n_hits = 0, n_changed = 0, n_drafted_along = 0;

 private:
  int32_t below(int32_t n) { return static_cast<int32_t>(random_() % static_cast<uint64_t>(n)); }
  static int64_t target(const Live& s) { return s.table.filled[kTargetPlane]; }

  Name& at(const Live& s, int32_t plane, int64_t slot) {
    int64_t block = s.table.blocks[static_cast<size_t>(slot / case_.block_tokens)];
    return device_[static_cast<size_t>(plane)]
                  [static_cast<size_t>(block * case_.block_tokens + slot % case_.block_tokens)];
  }

  void read_all(const Live& s) {
    for (int32_t plane = 0; plane < static_cast<int32_t>(s.table.filled.size()); ++plane)
      for (int64_t slot = 0; slot < s.table.filled[static_cast<size_t>(plane)]; ++slot)
        ASSERT_EQ(at(s, plane, slot), s.text.names[static_cast<size_t>(slot)])
            << "plane " << plane << " slot " << slot;
  }

  void write(const Live& s, int32_t plane, int64_t from, int64_t to) {
    for (int64_t slot = from; slot < to; ++slot)
      at(s, plane, slot) = s.text.names[static_cast<size_t>(slot)];
  }

  void start(Live* s) {
    const Text& t = s->text;
    int64_t limit = t.size() - 1;
    KvCache::PrefixHit hit = kv_.find_prefix(t.tokens, t.salt, limit);
    int32_t before = kv_.n_available();
    ASSERT_EQ(kv_.acquire_prefix(&s->table, t.tokens, t.salt, limit), hit.n_tokens);
    ASSERT_EQ(before - kv_.n_available(), hit.n_cached);
    n_hits += hit.n_tokens > 0;
    if (case_.exact) {
      int64_t longest = 0, p = case_.block_tokens;
      while (longest + p <= limit && full_.count(t.names[static_cast<size_t>(longest + p - 1)]))
        longest += p;
      ASSERT_EQ(hit.n_tokens, longest);
    }
    read_all(*s);
  }

  // A prompt: the beginning of something known, then a few tokens of a small alphabet.
  void admit() {
    Live s;
    s.text.salt = std::string(static_cast<size_t>(below(3)), 's');
    if (!live_.empty() && below(4) > 0) {
      const Text& old =
          std::next(live_.begin(), below(static_cast<int32_t>(live_.size())))->second.text;
      for (int32_t i = 0, n = below(static_cast<int32_t>(old.size())); i < n; ++i)
        s.text.push(old.tokens[static_cast<size_t>(i)]);
    }
    for (int32_t n = 1 + below(12); n > 0; --n) s.text.push(below(2));
    start(&s);
    live_[next_id_++] = std::move(s);
  }

  // Pending tokens and a chain of drafts run; some drafts are accepted, then one token more.
  void round(Live* s) {
    int64_t begin = target(*s), end = s->text.size();
    int64_t n_rows = std::min<int64_t>(end - begin, 1 + below(8));
    int64_t n_draft = begin + n_rows == end ? below(6) : 0;
    if (!kv_.reserve(&s->table, begin + n_rows + n_draft)) {
      ++n_refused;
      return preempt(s);
    }
    read_all(*s);
    write(*s, kTargetPlane, begin, begin + n_rows);
    int64_t n_kept = begin + n_rows;
    if (n_kept == end) {
      int64_t n_accepted = below(static_cast<int32_t>(n_draft) + 1);
      for (int64_t i = 0; i <= n_accepted; ++i) s->text.push(below(2));
      n_kept += n_accepted;
      write(*s, kTargetPlane, end, n_kept);
      for (int64_t slot = n_kept; slot < end + n_draft; ++slot)
        at(*s, kTargetPlane, slot) = kGarbage;  // rejected
      draft_along(s, end, n_kept);
    }
    commit(s, kTargetPlane, n_kept);
    ++n_rounds;
  }

  // The last plane, when it was complete, has drafted what was accepted: its commit comes first.
  void draft_along(Live* s, int64_t begin, int64_t end) {
    int32_t plane = case_.n_planes - 1;
    if (plane == 0 || s->table.filled.back() != begin) return;
    write(*s, plane, begin, end);
    commit(s, plane, end);
    ++n_drafted_along;
  }

  // A draft plane is fed some of what it lacks, and drafts into the slots behind.
  void catch_up(Live* s) {
    if (case_.n_planes == 1) return;
    int32_t plane = 1 + below(case_.n_planes - 1);
    int64_t filled = s->table.filled[static_cast<size_t>(plane)];
    int64_t end = std::min<int64_t>(filled + 1 + below(20), s->text.size());
    bool drafts = end == s->text.size();
    if (!kv_.reserve(&s->table, s->text.size() + (drafts ? 4 : 0))) return;
    write(*s, plane, filled, end);
    if (drafts)
      for (int64_t slot = end; slot < end + 4; ++slot) at(*s, plane, slot) = kGarbage;
    commit(s, plane, end);
  }

  void commit(Live* s, int32_t plane, int64_t n_tokens) {
    std::vector<BlockId> before = s->table.blocks;
    std::vector<int64_t> filled = s->table.filled;
    kv_.commit(&s->table, plane, s->text.tokens, n_tokens, s->text.salt);
    n_changed += before != s->table.blocks;
    ASSERT_GE(s->table.filled[static_cast<size_t>(plane)], n_tokens);
    for (size_t i = 0; i < filled.size(); ++i) ASSERT_GE(s->table.filled[i], filled[i]);
    ASSERT_EQ(target(*s), std::max(filled[kTargetPlane], plane == kTargetPlane ? n_tokens : 0));
    for (int64_t n = case_.block_tokens; n <= target(*s); n += case_.block_tokens)
      full_.insert(s->text.names[static_cast<size_t>(n - 1)]);
    read_all(*s);
  }

  void fork(const Live& from) {
    if (target(from) == 0 || static_cast<int32_t>(live_.size()) >= case_.n_live) return;
    int64_t n = 1 + below(static_cast<int32_t>(target(from)));
    Live to;
    KvCache::Fork fork = kv_.fork(from.table, n, &to.table);
    if (!fork.ok) return;
    ++n_forks;
    to.text.salt = from.text.salt;
    for (int64_t i = 0; i < n; ++i) to.text.push(from.text.tokens[static_cast<size_t>(i)]);
    to.text.push(below(2));
    for (auto& plane : device_)
      for (int32_t i = 0; fork.has_copy && i < case_.block_tokens; ++i)
        plane[static_cast<size_t>(fork.copy.to * case_.block_tokens + i)] =
            plane[static_cast<size_t>(fork.copy.from * case_.block_tokens + i)];
    read_all(to);
    live_[next_id_++] = std::move(to);
  }

  void preempt(Live* s) {
    kv_.release(&s->table);
    start(s);
  }

  Case case_;
  KvCache kv_;
  std::vector<std::vector<Name>> device_;  // [planes][N * P]
  std::mt19937_64 random_;
  std::map<int32_t, Live> live_;
  std::set<Name> full_;  // last names of blocks that were full at some time
  int32_t next_id_ = 0;
};

class KvModel : public testing::TestWithParam<Case> {};

TEST_P(KvModel, EverySequenceReadsItsOwnTokens) {
  constexpr int kOperations = 200'000;
  Model model(GetParam(), 20240229);
  for (int i = 0; i < kOperations && !testing::Test::HasFatalFailure(); ++i) {
    model.operate();
    if (i % 500 == 0) model.check();
  }
  model.end();
  EXPECT_GT(model.n_rounds, kOperations / 4);
  EXPECT_GT(model.n_hits, kOperations / 50);
  EXPECT_GT(model.n_forks, 100);
  EXPECT_GT(model.n_changed, 100) << "tables that changed over to an equal block";
  EXPECT_EQ(model.kv().prefix_stats().n_evicted_blocks > 100, !GetParam().exact);
  EXPECT_EQ(model.n_drafted_along > 1000, !GetParam().exact);
  EXPECT_EQ(model.n_refused > 20, !GetParam().exact);
}

INSTANTIATE_TEST_SUITE_P(All, KvModel,
                         testing::Values(Case{150000, 4, 1, 24, true}, Case{96, 4, 2, 12, false},
                                         Case{100, 3, 3, 10, false}));

}  // namespace
}  // namespace pf
