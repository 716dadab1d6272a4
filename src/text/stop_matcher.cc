#include "text/stop_matcher.h"

#include "text/utf8.h"

namespace pf {

Result<StopMatcher> StopMatcher::create(std::vector<std::string> strings) {
  if (strings.size() > kMaxStrings)
    return invalid("stop_strings: " + std::to_string(strings.size()) + " strings, the limit is " +
                   std::to_string(kMaxStrings));
  StopMatcher made;
  made.strings_ = std::move(strings);
  for (size_t i = 0; i < made.strings_.size(); ++i) {
    const std::string& s = made.strings_[i];
    const std::string where = "stop_strings[" + std::to_string(i) + "]";
    if (s.empty() || s.size() > kMaxBytes)
      return invalid(where + ": " + std::to_string(s.size()) + " bytes, the limits are 1 and " +
                     std::to_string(kMaxBytes));
    if (!is_valid_utf8(s)) return invalid(where + ": not valid UTF-8");
    State state = kStart;
    for (char byte : s) {
      State to = made.child(state, byte);
      if (to < 0) {
        to = static_cast<State>(made.nodes_.size());
        made.nodes_[state].children.emplace_back(byte, to);
        made.nodes_.emplace_back();
        made.nodes_.back().depth = made.nodes_[state].depth + 1;
      }
      state = to;
    }
    if (made.nodes_[state].match < 0) made.nodes_[state].match = static_cast<int>(i);
  }
  made.link();
  return made;
}

// Breadth first, so that a node's suffix is linked before the node.
void StopMatcher::link() {
  std::vector<State> order = {kStart};
  for (size_t i = 0; i < order.size(); ++i) {
    const State from = order[i];
    for (const auto& [byte, to] : nodes_[from].children) {
      if (from != kStart) nodes_[to].fail = next(nodes_[from].fail, byte);
      if (nodes_[to].match < 0) nodes_[to].match = nodes_[nodes_[to].fail].match;
      order.push_back(to);
    }
  }
}

StopMatcher::State StopMatcher::child(State state, char byte) const {
  for (const auto& [b, to] : nodes_[state].children)
    if (b == byte) return to;
  return -1;
}

StopMatcher::State StopMatcher::next(State state, char byte) const {
  for (;; state = nodes_[state].fail) {
    const State to = child(state, byte);
    if (to >= 0) return to;
    if (state == kStart) return kStart;
  }
}

std::optional<int> StopMatcher::match(State state) const {
  const int which = nodes_[state].match;
  return which < 0 ? std::nullopt : std::optional(which);
}

size_t StopMatcher::held_bytes(State state) const { return nodes_[state].depth; }

}  // namespace pf
