#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <utility>

#include "batch/request.h"

namespace pf {

// When requests must end, so that a step looks at those whose time has come and at nobody else.
// Single-threaded.
class Deadlines {
 public:
  // O(log n); kNever is not kept.
  void add(uint64_t ticket, int64_t at_us) {
    if (at_us != kNever) times_.emplace(at_us, ticket);
  }
  // The request has ended. Both as they were added; one that is not there any more does no harm.
  void remove(uint64_t ticket, int64_t at_us) { times_.erase({at_us, ticket}); }

  // Takes out the earliest request whose time is now_us or before. O(1) when there is none.
  std::optional<uint64_t> pop_due(int64_t now_us) {
    if (times_.empty() || times_.begin()->first > now_us) return std::nullopt;
    uint64_t ticket = times_.begin()->second;
    times_.erase(times_.begin());
    return ticket;
  }

  size_t size() const { return times_.size(); }

 private:
  std::set<std::pair<int64_t, uint64_t>> times_;
};

}  // namespace pf
