#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "speculation/drafter.h"

namespace pf {

// The resident drafters, in the server's order of preference, and who serves whom.
class DrafterChoice {
 public:
  static constexpr int32_t kNobody = -1;

  void add(std::unique_ptr<Drafter> drafter) { drafters_.push_back(std::move(drafter)); }
  int32_t size() const { return static_cast<int32_t>(drafters_.size()); }
  Drafter& operator[](int32_t i) { return *drafters_[static_cast<size_t>(i)]; }

  // The first drafter of the request's list (else of the server's) that has something to say now.
  int32_t choose(const Sequence& sequence);

  // Only those whose names are listed serve from now on.
  void allow(std::vector<std::string> names) { names_ = std::move(names); }

  void forget(const Sequence& sequence) {
    for (auto& d : drafters_) d->forget(sequence);
  }

 private:
  bool allowed(const Sequence& sequence, int32_t drafter) const;

  std::vector<std::unique_ptr<Drafter>> drafters_;
  std::optional<std::vector<std::string>> names_;  // nothing: all
};

}  // namespace pf
