// Where requests come in, and what ends them from outside: cancels, deadlines and the end of all.
#include <algorithm>

#include "base/check.h"
#include "engine/step.h"

namespace pf {
namespace {

uint32_t cancel_bits(const Request& r) {
  return r.cancel ? r.cancel->load(std::memory_order_relaxed) : 0;
}

}  // namespace

void Step::admit(int64_t now_us) {
  emitter_.flush();
  while (auto request = inbox_->try_pop()) take(std::move(*request));
  check_limits(now_us);
}

void Step::take(std::unique_ptr<Request> request) {
  const Request& r = *request;
  auto [it, is_new] = live_.try_emplace(r.ticket);
  check(is_new, "two requests with one ticket");
  Live& live = it->second;
  live.request = std::move(request);
  live.n_open = r.n;
  live.forked = r.n == 1;
  for (int32_t i = 0; i < r.n; ++i) {
    auto s = std::make_unique<Sequence>();
    s->request = live.request.get();
    s->index = i;
    s->order = next_order_++;
    s->tokens = r.prompt;
    s->waits_for_leader = i > 0;
    if (r.sampling.has_penalties()) {
      s->counts = std::make_unique<TokenCounts>();
      s->counts->add_prompt(r.prompt);
    }
    s->drafts.resize(static_cast<size_t>(parts_.drafters.size()));
    s->draft_high.resize(static_cast<size_t>(kv_.n_planes()), 0);
    live.sequences.push_back(std::move(s));
    scheduler_.add(live.sequences.back().get());
  }
  deadlines_.add(r.ticket, std::min(r.deadline_us, r.time_limit_us));
  // Whoever raised the flag before may have said so when the request was not here yet.
  if (cancel_bits(r) != 0) cancels_.raise(r.ticket);
}

// Whoever runs is looked at in every step. Who waits is not: the cancels say whose flag was raised,
// the deadlines whose time has come.
void Step::check_limits(int64_t now_us) {
  ended_.clear();
  for (Sequence* s : scheduler_.running())
    if (cancel_bits(*s->request) >> s->index & 1) ended_.emplace_back(s, FinishReason::kCancelled);
  for (auto [s, reason] : ended_) end(s, reason, {});
  cancels_.take(&cancelled_);
  for (uint64_t ticket : cancelled_) {
    auto it = live_.find(ticket);
    if (it != live_.end())
      end_all(it->second, cancel_bits(*it->second.request), FinishReason::kCancelled);
  }
  while (std::optional<uint64_t> ticket = deadlines_.pop_due(now_us)) {
    const Live& live = live_.at(*ticket);
    bool late = now_us >= live.request->deadline_us;
    end_all(live, ~0u, late ? FinishReason::kDeadline : FinishReason::kTimeLimit);
  }
}

// Those completions of a request that `bits` name.
void Step::end_all(const Live& live, uint32_t bits, FinishReason reason) {
  ended_.clear();
  for (const auto& s : live.sequences)
    if (s != nullptr && bits >> s->index & 1) ended_.emplace_back(s.get(), reason);
  for (auto [s, why] : ended_) end(s, why, {});
}

void Step::finish_everything(FinishReason reason) {
  ended_.clear();
  for (auto& [ticket, live] : live_)
    for (auto& s : live.sequences)
      if (s != nullptr) ended_.emplace_back(s.get(), reason);
  for (auto [s, why] : ended_) end(s, why, {});
  publish(false);
}

}  // namespace pf
