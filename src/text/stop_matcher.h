#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"

namespace pf {

// Finds any of up to 16 stop strings in text that comes byte by byte (Aho and Corasick, 1975):
// every byte costs constant time on average, whatever the strings are. Immutable; a place in the
// text is a State of the caller's, so that sibling streams share one matcher.
//
// Which match: the one that ends first; of those that end at the same byte the one that starts
// first (the longest). So the answer does not depend on how the text was cut into tokens.
class StopMatcher {
 public:
  static constexpr size_t kMaxStrings = 16;
  static constexpr size_t kMaxBytes = 256;
  using State = int32_t;
  static constexpr State kStart = 0;

  // INVALID_ARGUMENT names stop_strings[i] and the limit: more than 16 strings, an empty one, one
  // of more than 256 bytes, one that is not UTF-8. No strings at all is fine: nothing matches.
  static Result<StopMatcher> create(std::vector<std::string> strings);

  State next(State state, char byte) const;

  // The string that ends here, if one does.
  std::optional<int> match(State state) const;

  // How many of the bytes so far may belong to a match that is not complete yet.
  size_t held_bytes(State state) const;

  const std::string& string(int which) const { return strings_[which]; }

 private:
  struct Node {
    std::vector<std::pair<char, State>> children;  // at most one per string
    State fail = kStart;                           // the longest proper suffix that is a prefix
    size_t depth = 0;
    int match = -1;  // the longest string that ends here
  };
  State child(State state, char byte) const;
  void link();

  std::vector<std::string> strings_;
  std::vector<Node> nodes_ = std::vector<Node>(1);
};

}  // namespace pf
