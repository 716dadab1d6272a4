#include "bench/growth.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>

#include "base/philox.h"
#include "bench/byte_vocabulary.h"
#include "bench/measure.h"
#include "bench/scripted_backend.h"
#include "engine/step.h"
#include "kv/kv_cache.h"
#include "speculation/ngram_drafter.h"
#include "speculation/suffix_index.h"
#include "text/stop_matcher.h"
#include "text/text_stream.h"
#include "text/tokenizer.h"

namespace pf {
namespace {

constexpr int32_t kBlockTokens = 16;

// CPU seconds of one call, the least of three series.
double cost_of(const std::function<void()>& work) {
  double least = INFINITY;
  for (int series = 0; series < 3; ++series) {
    int64_t n = 0;
    double began = thread_cpu_s(), took = 0;
    do {
      work();
      ++n;
      took = thread_cpu_s() - began;
    } while (took < 0.002);
    least = std::min(least, took / static_cast<double>(n));
  }
  return least;
}

std::vector<int32_t> random_tokens(int64_t n, int32_t vocabulary = 50000, uint32_t seed = 1) {
  std::vector<int32_t> tokens(static_cast<size_t>(n));
  for (size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<int32_t>(philox(seed, {static_cast<uint32_t>(i), 0, 0, 0})[0] %
                                     static_cast<uint32_t>(vocabulary));
  return tokens;
}

// Texts of n tokens by turns, 131,072 tokens in all: a short one that comes again and again is
// learnt by heart by the branch predictor, which no text of a user is.
class Texts {
 public:
  Texts(int64_t n, int32_t vocabulary) {
    for (int64_t i = 0; i < std::max<int64_t>(1, (1 << 17) / n); ++i)
      texts_.push_back(random_tokens(n, vocabulary, static_cast<uint32_t>(i)));
  }
  const std::vector<int32_t>& next() { return texts_[n_taken_++ % texts_.size()]; }

 private:
  std::vector<std::vector<int32_t>> texts_;
  size_t n_taken_ = 0;
};

// A step over a device that takes no time, driven by hand.
class HostSteps {
 public:
  HostSteps(int32_t max_num_seqs, int32_t k, int64_t context, int32_t n_tables)
      : inbox_(1), outbox_(1 << 20) {
    StepParts parts;
    parts.kv = {n_tables * static_cast<int32_t>(context / kBlockTokens + 1), kBlockTokens, 1, true};
    parts.scheduler.max_num_seqs = max_num_seqs;
    parts.scheduler.max_num_batched_tokens = std::max(512, max_num_seqs * (k + 1));
    parts.target = std::make_unique<ScriptedBackend>(context);
    if (k > 0) parts.drafters.add(std::make_unique<NgramDrafter>(1));
    parts.max_context = context;
    parts.num_speculative_tokens = k;
    step_ = std::make_unique<Step>(std::move(parts), clock_, &inbox_, &outbox_);
  }

  void take() {
    auto r = std::make_unique<Request>();
    r->ticket = ++last_ticket_;
    // Prompts that share no block, then one period of what the target says.
    for (int32_t i = 0; i < 16; ++i) r->prompt.push_back(static_cast<int32_t>(r->ticket) * 32 + i);
    for (int32_t i = 0; i < 16; ++i) r->prompt.push_back(ScriptedBackend::token_at(16 + i));
    r->stop.max_new_tokens = 1 << 20;
    r->arrival_us = static_cast<int64_t>(r->ticket);
    step_->take(std::move(r));
  }
  // CPU seconds of one step, events taken away outside of it.
  double run() {
    clock_.advance_us(1000);
    double began = thread_cpu_s();
    step_->run();
    double took = thread_cpu_s() - began;
    while (outbox_.try_pop()) {
    }
    return took;
  }
  double median_of(int n_steps) {
    std::vector<double> times;
    for (int i = 0; i < n_steps; ++i) times.push_back(run());
    return spread_of(std::move(times)).median;
  }

 private:
  Clock clock_{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox_;
  BoundedQueue<Event> outbox_;
  std::unique_ptr<Step> step_;
  uint64_t last_ticket_ = 0;
};

// Seconds of a step in which n sequences decode.
double step_cost(int32_t n, int32_t k) {
  constexpr int kSteps = 41;
  int32_t n_prompt_steps = n * 32 / std::max(256, n) + 8;
  int64_t context = 32 + (kSteps + n_prompt_steps + 2) * (k + 1);
  HostSteps steps(n, k, context, n);
  for (int32_t i = 0; i < n; ++i) steps.take();
  for (int32_t i = 0; i < n_prompt_steps; ++i) steps.run();
  return steps.median_of(kSteps);
}

// What grows, and how: `cost` answers seconds at a size.
struct Growing {
  const char* id;
  const char* name;
  std::vector<int64_t> sizes;
  double most;  // the exponent asked for
  std::function<double(int64_t)> cost;
};

double admission_cost(int64_t n) {
  HostSteps steps(1, 0, 128, 2);
  steps.take();
  steps.run();
  double began = thread_cpu_s();
  for (int64_t i = 0; i < n; ++i) steps.take();
  return thread_cpu_s() - began;
}

double waiting_cost(int64_t n) {
  HostSteps steps(1, 0, 128, 2);
  for (int64_t i = 0; i < n; ++i) steps.take();
  steps.run();
  return steps.median_of(21);
}

double prefix_cost(int64_t n) {
  std::vector<int32_t> tokens = random_tokens(n);
  KvCache kv({static_cast<int32_t>(n / kBlockTokens + 1), kBlockTokens, 1, true});
  BlockTable table;
  kv.reserve(&table, n);
  kv.commit(&table, kTargetPlane, tokens, n, "");
  kv.release(&table);
  return cost_of([&] { check(kv.find_prefix(tokens, "", n).n_tokens == n, "the prefix is lost"); });
}

double blocks_cost(int64_t n) {
  KvCache kv({static_cast<int32_t>(n / kBlockTokens + 1), kBlockTokens, 1, false});
  return cost_of([&] {
    BlockTable table;
    check(kv.reserve(&table, n), "no blocks");
    kv.release(&table);
  });
}

double ngram_cost(int64_t n) {
  Texts texts(n, 50000);
  return cost_of([&] {
    const std::vector<int32_t>& tokens = texts.next();
    NgramIndex index;
    int64_t length = 0;
    for (size_t i = 1; i <= tokens.size(); ++i) {
      index.update(std::span(tokens).first(i));
      length += index.find(std::span(tokens).first(i)).length;
    }
    check(length >= 0, "a match has no length");
  });
}

constexpr int32_t kFewTokens = 64;  // repeat enough that a match is some tokens long

int64_t look_up(const SuffixIndex& index, std::span<const int32_t> context,
                std::vector<int32_t>* followers) {
  context = context.last(std::min<size_t>(context.size(), SuffixIndex::kMaxMatch));
  const int32_t length = index.match(context);
  if (length > 0) index.followers(context.last(static_cast<size_t>(length)), 1, followers);
  return length;
}

double suffix_cost(int64_t n) {
  Texts texts(n, kFewTokens);
  std::vector<int32_t> followers;
  return cost_of([&] {
    const std::vector<int32_t>& tokens = texts.next();
    SuffixIndex index;
    int64_t length = 0;
    for (size_t i = 0; i < tokens.size(); ++i) {
      index.append(tokens[i]);
      length += look_up(index, std::span(tokens).first(i + 1), &followers);
    }
    check(length > 0, "a text of few tokens never matches itself");
  });
}

// At 64 places of a context of n tokens.
double suffix_lookup_cost(int64_t n) {
  const std::vector<int32_t> tokens = random_tokens(n, kFewTokens);
  SuffixIndex index;
  for (int32_t t : tokens) index.append(t);
  std::vector<int32_t> followers;
  return cost_of([&] {
    for (int64_t i = 1; i <= 64; ++i)
      check(look_up(index, std::span(tokens).first(static_cast<size_t>(i * n / 65 + 1)),
                    &followers) > 0,
            "an earlier place is not found");
  });
}

// Every byte, and a^2, a^4, ... a^64: one letter without end is the longest piece to merge.
Result<Tokenizer> letter_tokenizer() {
  Vocabulary v = byte_vocabulary();
  for (std::string part = "a"; part.size() < 64; part += part) {
    v.merges.emplace_back(part, part);
    v.tokens.push_back(part + part);
  }
  return Tokenizer::create(std::move(v));
}

double stop_cost(int64_t n) {
  std::vector<std::string> strings;
  for (size_t i = 0; i < StopMatcher::kMaxStrings; ++i)
    strings.push_back(std::string(StopMatcher::kMaxBytes - 1 - i, 'a') + "b");
  Result<StopMatcher> stops = StopMatcher::create(std::move(strings));
  return cost_of([&] {
    StopMatcher::State state = StopMatcher::kStart;
    for (int64_t i = 0; i < n; ++i) state = stops->next(state, 'a');
    check(!stops->match(state), "a stop string that is not there was found");
  });
}

double stream_cost(const Tokenizer& tokenizer, int64_t n) {
  Result<StopMatcher> stops = StopMatcher::create({"aaaab"});
  return cost_of([&] {
    TextStream stream(tokenizer, *stops, {});
    size_t bytes = 0;
    for (int64_t i = 0; i < n; ++i) bytes += stream.push('a').text.size();
    check(bytes + stream.finish().size() == static_cast<size_t>(n), "bytes of a stream are lost");
  });
}

void judge(const Growing& g, Report* report) {
  std::vector<double> sizes, costs;
  for (int64_t n : g.sizes) {
    sizes.push_back(static_cast<double>(n));
    costs.push_back(g.cost(n));
    report->add("growth", {{"what", g.name}, {"n", n}, {"us", 1e6 * costs.back()}});
  }
  report->add(Goal{std::string("growth.") + g.id,
                   std::string("exponent of cost in size: ") + g.name,
                   growth_exponent(sizes, costs), g.most, false});
}

void bench_steps(bool quick, Report* report) {
  std::vector<int32_t> sizes = {1, 4, 16, 64, 256, 1024};
  if (quick) sizes = {1, 4, 16, 64};
  for (int32_t k : {0, 4}) {
    std::vector<double> n, us;
    for (int32_t b : sizes) {
      double cost = 1e6 * step_cost(b, k);
      report->add("step host time",
                  {{"sequences", b}, {"K", k}, {"us", cost}, {"us per sequence", cost / b}});
      if (b >= 16) n.push_back(b), us.push_back(cost);
      if (b == 64)
        report->add(Goal{"C8.k" + std::to_string(k),
                         "host CPU us of a step of 64 sequences, K = " + std::to_string(k), cost,
                         20 + 0.5 * 64, false});
    }
    report->add(
        Goal{"growth.step.k" + std::to_string(k),
             "exponent of a step's host time in sequences, from 16 on, K = " + std::to_string(k),
             growth_exponent(n, us), 1.1, false});
  }
}

}  // namespace

void bench_growth(bool quick, Report* report) {
  bench_steps(quick, report);
  auto sizes = [&](int64_t least, int64_t most) {
    std::vector<int64_t> s;
    if (quick) most = std::min(most, 4 * least);
    for (int64_t n = least; n <= most; n *= 4) s.push_back(n);
    return s;
  };
  Result<Tokenizer> tokenizer = letter_tokenizer();
  check(tokenizer.ok(), "the vocabulary of the growth tables is refused");
  // Linear work may cost a little more per item once it leaves the caches.
  const Growing all[] = {
      {"admission", "requests into a waiting line", sizes(256, 16384), 1.2, admission_cost},
      {"waiting", "a step beside a waiting line", sizes(256, 16384), 0.2, waiting_cost},
      {"prefix", "prefix lookup in a prompt's tokens", sizes(2048, 131072), 1.15, prefix_cost},
      {"blocks", "blocks taken and given back, in tokens", sizes(2048, 131072), 1.15, blocks_cost},
      {"ngram", "n-gram update and lookup, token by token", sizes(1024, 65536), 1.2, ngram_cost},
      {"suffix", "suffix update and lookup, token by token", sizes(1024, 65536), 1.2, suffix_cost},
      {"suffix.lookup", "64 suffix lookups in a context", sizes(1024, 65536), 0.2,
       suffix_lookup_cost},
      {"tokenise", "tokenising one letter n times", sizes(16384, 1048576), 1.2,
       [&](int64_t n) {
         std::string text(static_cast<size_t>(n), 'a');
         return cost_of([&] { check(!tokenizer->encode(text).empty(), "no tokens"); });
       }},
      {"stop", "search of 16 stop strings, in bytes", sizes(4096, 262144), 1.1, stop_cost},
      {"stream", "text of a stream, in tokens", sizes(1024, 65536), 1.1,
       [&](int64_t n) { return stream_cost(*tokenizer, n); }},
  };
  for (const Growing& g : all) judge(g, report);
}

}  // namespace pf
