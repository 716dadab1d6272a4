// What K and V take beside the tokens that they belong to: blocks held over blocks needed while
// sequences grow, and what is copied when they fork, keep a draft or lose one.
#include "bench/kv_rows.h"

#include <algorithm>
#include <map>
#include <memory>

#include "bench/scripted_backend.h"
#include "engine/step.h"
#include "speculation/ngram_drafter.h"

namespace pf {
namespace {

constexpr int32_t kBlockTokens = 16, kSequences = 8;

struct KvCase {
  const char* what;
  int32_t n_siblings, k, n_prompt, n_new;
};

struct KvFigures {
  double held_over_needed = 0;  // blocks, over all steps
  double copied_per_sibling = 0;
  int64_t n_moved = 0;  // slots
};

// Blocks that requests need whose completions have so many tokens beside a prompt of n_prompt: its
// full blocks stand once, all else stands once per completion.
int64_t needed_blocks(std::span<const int64_t> n_output, int64_t n_prompt) {
  int64_t shared = n_output.size() > 1 ? (n_prompt - 1) / kBlockTokens : 0, n = shared;
  for (int64_t tokens : n_output)
    n += (n_prompt + tokens + kBlockTokens - 1) / kBlockTokens - shared;
  return n;
}

std::unique_ptr<Request> request_of(const KvCase& c, uint64_t ticket) {
  auto r = std::make_unique<Request>();
  r->ticket = ticket;
  // Prompts that share no block and end in what the target says.
  for (int32_t i = 0; i < c.n_prompt - 16; ++i)
    r->prompt.push_back(static_cast<int32_t>(ticket) * 8192 + i);
  for (int32_t i = c.n_prompt - 16; i < c.n_prompt; ++i)
    r->prompt.push_back(ScriptedBackend::token_at(i));
  r->stop.max_new_tokens = c.n_new;
  r->n = c.n_siblings;
  return r;
}

// Runs until the first completion ends. Of the drafts 0, 1, ... K nodes are kept by turns.
KvFigures run_case(const KvCase& c) {
  Clock clock{1'000'000};
  BoundedQueue<std::unique_ptr<Request>> inbox(1);
  BoundedQueue<Event> outbox(1 << 16);
  StepParts parts;
  int64_t context = c.n_prompt + c.n_new + c.k + 1;
  auto scripted = std::make_unique<ScriptedBackend>(context);
  ScriptedBackend& target = *scripted;
  parts.kv = {kSequences * c.n_siblings * static_cast<int32_t>(context / kBlockTokens + 1),
              kBlockTokens, 1, true};
  parts.scheduler.max_num_seqs = kSequences * c.n_siblings;
  parts.target = std::move(scripted);
  if (c.k > 0) parts.drafters.add(std::make_unique<NgramDrafter>(1));
  parts.max_context = context;
  parts.num_speculative_tokens = c.k;
  Step step(std::move(parts), clock, &inbox, &outbox);
  std::map<uint64_t, std::vector<int64_t>> n_output;  // by ticket and index
  for (uint64_t ticket = 1; ticket <= kSequences; ++ticket) {
    step.take(request_of(c, ticket));
    n_output[ticket].resize(static_cast<size_t>(c.n_siblings));
  }
  int64_t held = 0, needed = 0;
  for (bool over = false; !over;) {
    target.n_kept = target.n_kept < c.k ? target.n_kept + 1 : 0;
    clock.advance_us(1000);
    step.run();
    while (std::optional<Event> event = outbox.try_pop()) {
      n_output[event->ticket][static_cast<size_t>(event->index)] +=
          static_cast<int64_t>(event->tokens.size());
      over |= event->finish != FinishReason::kNone;
    }
    auto decodes = [](const auto& of) {
      return *std::min_element(of.second.begin(), of.second.end()) > 0;
    };
    if (over || !std::all_of(n_output.begin(), n_output.end(), decodes)) continue;
    held += step.kv().n_in_use();
    for (auto& [ticket, outputs] : n_output) needed += needed_blocks(outputs, c.n_prompt);
  }
  double n_followers = kSequences * (c.n_siblings - 1);
  return {static_cast<double>(held) / static_cast<double>(needed),
          n_followers > 0 ? static_cast<double>(target.n_copied_blocks) / n_followers : 0,
          target.n_moved_slots};
}

}  // namespace

void bench_kv(Report* report) {
  double most_held = 0, most_copied = 0, moved = 0;
  for (const KvCase& c : {KvCase{"plain", 1, 0, 512, 128},
                          {"chains", 1, 4, 512, 128},
                          {"short chains", 1, 4, 64, 64},
                          {"siblings", 4, 4, 515, 128}}) {
    KvFigures f = run_case(c);
    report->add("kv", {{"what", c.what},
                       {"completions", c.n_siblings},
                       {"K", c.k},
                       {"prompt", c.n_prompt},
                       {"tokens", c.n_new},
                       {"blocks held / needed", f.held_over_needed},
                       {"blocks copied / sibling", f.copied_per_sibling},
                       {"slots moved", f.n_moved}});
    most_held = std::max(most_held, f.held_over_needed);
    most_copied = std::max(most_copied, f.copied_per_sibling);
    moved += static_cast<double>(f.n_moved);
  }
  report->add(Goal{"C7.held", "KV blocks held over those of all tokens, the worst of the cases",
                   most_held, 1.02, false});
  report->add(Goal{"C7.fork", "KV blocks copied per sibling that forks", most_copied, 1, false});
  report->add(
      Goal{"C7.chain", "KV slots moved by commits and rollbacks of chains", moved, 0, false});
}

}  // namespace pf
