#pragma once

#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace pf {

// Strings with ids, for finding the longest one that begins at a place.
class TokenTrie {
 public:
  // Requires: text is not empty.
  void add(std::string_view text, int32_t id) {
    uint32_t node = 0;
    for (char c : text) {
      const auto [edge, fresh] = edges_.try_emplace(key(node, c), n_nodes_);
      if (fresh) ++n_nodes_;
      node = edge->second;
    }
    ids_.try_emplace(node, id);
  }

  // {id, length} of the longest string that `accept(id)` allows at the start of text; length 0:
  // none.
  template <class Accept>
  std::pair<int32_t, size_t> longest(std::string_view text, const Accept& accept) const {
    std::pair<int32_t, size_t> best = {-1, 0};
    uint32_t node = 0;
    for (size_t i = 0; i < text.size(); ++i) {
      const auto edge = edges_.find(key(node, text[i]));
      if (edge == edges_.end()) break;
      node = edge->second;
      const auto id = ids_.find(node);
      if (id != ids_.end() && accept(id->second)) best = {id->second, i + 1};
    }
    return best;
  }

 private:
  static uint64_t key(uint32_t node, char c) {
    return static_cast<uint64_t>(node) << 8 | static_cast<uint8_t>(c);
  }

  std::unordered_map<uint64_t, uint32_t> edges_;
  std::unordered_map<uint32_t, int32_t> ids_;
  uint32_t n_nodes_ = 1;
};

}  // namespace pf
