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

// The resident drafters, in the server's order of preference, and whom they may serve.
class DrafterChoice {
 public:
  static constexpr int32_t kNobody = -1;

  void add(std::unique_ptr<Drafter> drafter) { drafters_.push_back(std::move(drafter)); }
  int32_t size() const { return static_cast<int32_t>(drafters_.size()); }
  Drafter& operator[](int32_t i) { return *drafters_[static_cast<size_t>(i)]; }

  // Drafter::match_length of one that may serve the sequence: the request asks for it by itself, or
  // it is on the request's list and on that of `allow`, as far as there are such; and the context
  // is not too long for it. Else 0.
  int32_t match(const Sequence& sequence, int32_t drafter);

  // Only those whose names are listed serve from now on, and whom a request asks for by itself.
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
