#include "cli/arguments.h"

#include <algorithm>

namespace pf {

std::vector<std::string> arguments_backwards(int argc, const char* const* argv) {
  std::vector<std::string> out;
  for (int i = 1; i < argc; ++i) {
    std::string word = argv[i];
    bool is_empty = word.size() > 3 && word.starts_with("--") && word.find('=') == word.size() - 1;
    if (is_empty) word.pop_back();
    out.push_back(std::move(word));
    if (is_empty) out.emplace_back();
  }
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace pf
