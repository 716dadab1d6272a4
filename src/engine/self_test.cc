#include "engine/self_test.h"

#include <algorithm>

namespace pf {
namespace {

constexpr int32_t kPrompt = 19;           // a block of 16 and a little more
constexpr int32_t kGenerated = 6;         // tokens of the plain run
constexpr int64_t kMeasure_us = 250'000;  // for wider passes
constexpr int32_t kChain = 15;            // nodes of each sequence in those

Status wrong(const char* what) {
  return Status(Code::kInternal,
                std::string("self-test: ") + what +
                    "; this build computes wrongly on this machine: please report it, and try "
                    "another --device or --dtype");
}

DraftTree chain(std::span<const int32_t> tokens) {
  DraftTree tree;
  for (int32_t t : tokens) tree.add_one_hot(t, tree.size() - 1);
  return tree;
}

// One sequence with its own blocks, fed by hand.
struct Feeder {
  std::vector<BlockId> blocks;
  std::vector<int32_t> tokens;  // committed
  int64_t kv_len = 0;
};

class SelfTest {
 public:
  SelfTest(const SelfTestInput& in, const Clock& clock) : in_(in), clock_(clock) {
    n_blocks_each_ = (kPrompt + kGenerated + kChain + in.block_tokens) / in.block_tokens;
  }

  Result<SelfTestReport> run() {
    report_.skipped = what_is_too_small();
    if (!report_.skipped.empty()) return report_;
    if (Status s = check(); !s.ok()) return s;
    measure_wide();
    for (Backend* draft : in_.drafts) measure_draft(*draft);
    return report_;
  }

 private:
  // With the flag that makes it larger; empty: nothing is.
  std::string what_is_too_small() const {
    auto less = [](const char* flag, int64_t has, int64_t needs) {
      return std::string(flag) + " " + std::to_string(has) + " is less than the " +
             std::to_string(needs) + " that it needs";
    };
    constexpr int64_t kContext = kPrompt + kGenerated + kChain + 1;
    constexpr int32_t kRows = kPrompt + kChain + 1;
    if (in_.max_context < kContext) return less("--max-model-len", in_.max_context, kContext);
    if (in_.max_rows < kRows) return less("--max-num-batched-tokens", in_.max_rows, kRows);
    if (in_.n_blocks < 3 * n_blocks_each_)
      return less("--kv-blocks", in_.n_blocks, 3 * n_blocks_each_);
    return "";
  }
  Feeder feeder(int32_t place) const {
    Feeder f;
    for (int32_t i = 0; i < n_blocks_each_; ++i) f.blocks.push_back(place * n_blocks_each_ + i);
    return f;
  }
  std::vector<int32_t> prompt(int32_t n) const {
    auto v = static_cast<int32_t>(std::min<int64_t>(in_.target->info().vocabulary_size, 1 << 20));
    std::vector<int32_t> tokens;
    for (int32_t i = 0; i < n; ++i) tokens.push_back((7919 * (i + 1)) % v);
    return tokens;
  }

  // One pass over the feeders' pending tokens and a chain behind each; what the target keeps.
  std::vector<AcceptResult> step(std::vector<Feeder*> feeders,
                                 const std::vector<DraftTree>& trees) {
    int64_t began_us = clock_.now_us();
    Batch batch;
    std::vector<AcceptJob> jobs;
    for (size_t i = 0; i < feeders.size(); ++i) {
      Feeder& f = *feeders[i];
      auto pending = std::span(f.tokens).subspan(static_cast<size_t>(f.kv_len));
      batch.add(pending, f.kv_len, &trees[i], f.blocks, Batch::Logits::kLast);
      AcceptJob job;
      job.segment = static_cast<int32_t>(i);
      job.input.tree = &trees[i];
      job.input.params = &greedy_;
      job.input.stop = &stop_;
      job.input.position = static_cast<int64_t>(f.tokens.size());
      job.input.max_tokens = kMaxTreeNodes + 1;
      jobs.push_back(job);
    }
    std::vector<AcceptResult> results(jobs.size());
    in_.target->forward(batch);
    in_.target->accept(jobs, results);
    for (Feeder* f : feeders) f->kv_len = static_cast<int64_t>(f->tokens.size());
    double seconds = 1e-6 * static_cast<double>(clock_.now_us() - began_us);
    report_.target_passes.push_back({batch.n_rows(), seconds});
    return results;
  }

  // Feeds the last committed token again and a chain behind it.
  AcceptResult verify(Feeder* f, std::span<const int32_t> draft) {
    f->kv_len = static_cast<int64_t>(f->tokens.size()) - 1;
    return step({f}, {chain(draft)})[0];
  }

  Status check() {
    Feeder a = feeder(0), b = feeder(1), c = feeder(2);
    a.tokens = prompt(kPrompt);
    std::vector<int32_t> text;
    for (int32_t i = 0; i < kGenerated; ++i) {
      AcceptResult r = step({&a}, {{}})[0];
      if (!r.finite || r.tokens.empty()) return wrong("the logits are not finite");
      text.push_back(r.tokens[0]);
      a.tokens.push_back(r.tokens[0]);
    }
    report_.target_passes.erase(report_.target_passes.begin());  // the prompt, and a cold start
    a.tokens.resize(kPrompt + 1);
    std::vector<int32_t> draft(text.begin() + 1, text.end());
    auto keeps_all = [&](const AcceptResult& r) {
      return r.n_accepted == kGenerated - 1 &&
             std::equal(draft.begin(), draft.end(), r.tokens.begin());
    };
    if (!keeps_all(verify(&a, draft))) return wrong("a draft that is the target is not kept");

    std::vector<int32_t> bad = draft;
    for (int32_t& t : bad) t = t == 0 ? 1 : 0;
    AcceptResult r = verify(&a, bad);
    if (r.n_accepted != 0 || r.tokens[0] != draft[0]) return wrong("a wrong draft is not refused");
    if (!keeps_all(verify(&a, draft))) return wrong("a refused draft leaves something behind");

    b.tokens = a.tokens;
    b.kv_len = std::min<int64_t>(kPrompt - 1, in_.block_tokens);
    b.blocks[0] = a.blocks[0];
    if (!keeps_all(step({&b}, {chain(draft)})[0]))
      return wrong("a prefix of another sequence is not one's own");

    c.tokens = prompt(5);
    int32_t alone = step({&c}, {{}})[0].tokens[0];
    a.kv_len = b.kv_len = kPrompt, c.kv_len = 2;
    std::vector<AcceptResult> all = step({&a, &c, &b}, {chain(draft), {}, chain(draft)});
    if (!keeps_all(all[0]) || !keeps_all(all[2]) || all[1].tokens[0] != alone)
      return wrong("neighbours in a batch change an answer");
    return {};
  }

  // Passes of 16, 32, 64, ... rows as they occur with drafts, while time lasts.
  void measure_wide() {
    int64_t end_us = clock_.now_us() + kMeasure_us;
    std::vector<int32_t> tokens = prompt(kChain);
    for (int32_t n = 1; n <= 8 && n * (kChain + 1) <= in_.max_rows; n *= 2) {
      if (n * n_blocks_each_ > in_.n_blocks) return;
      std::vector<Feeder> feeders;
      std::vector<Feeder*> pointers;
      for (int32_t i = 0; i < n; ++i) feeders.push_back(feeder(i));
      for (Feeder& f : feeders) f.tokens = prompt(1), pointers.push_back(&f);
      int64_t began_us = clock_.now_us();
      step(pointers, std::vector<DraftTree>(feeders.size(), chain(tokens)));
      int64_t now_us = clock_.now_us();
      if (now_us + 2 * (now_us - began_us) > end_us) return;
    }
  }

  void measure_draft(Backend& draft) {
    Feeder f = feeder(0);
    f.tokens = prompt(kPrompt);
    for (int32_t& t : f.tokens) t %= static_cast<int32_t>(draft.info().vocabulary_size);
    ProposeJob job;
    job.committed = f.tokens;
    job.blocks = f.blocks;
    job.params = &greedy_;
    job.stop = &stop_;
    std::vector<DraftTree> trees(1);
    draft.propose({&job, 1}, trees);  // feeds its plane
    job.base = kPrompt - 1;
    job.committed = std::span(f.tokens).last(1);
    double least[2] = {1e9, 1e9};  // of one token and of five: a busy machine only adds
    for (int32_t repeat = 0; repeat < 4; ++repeat)
      for (size_t deep : {0, 1}) {
        job.n_draft = deep ? 5 : 1;
        int64_t began_us = clock_.now_us();
        draft.propose({&job, 1}, trees);
        double seconds = 1e-6 * static_cast<double>(clock_.now_us() - began_us);
        least[deep] = std::min(least[deep], seconds);
      }
    report_.draft_seconds.push_back(std::max(0.0, (least[1] - least[0]) / 4));
  }

  const SelfTestInput& in_;
  const Clock& clock_;
  int32_t n_blocks_each_ = 0;
  SamplingParams greedy_;
  StopParams stop_;
  SelfTestReport report_;
};

}  // namespace

double SelfTestReport::target_step_seconds() const {
  double least = 0;
  for (const Pass& p : target_passes)
    if (p.n_rows == 1 && p.seconds > 0 && (least == 0 || p.seconds < least)) least = p.seconds;
  return least;
}

Result<SelfTestReport> self_test(const SelfTestInput& input, const Clock& clock) {
  return SelfTest(input, clock).run();
}

}  // namespace pf
