#include "bench/serve_prompts.h"

#include <algorithm>
#include <sstream>

#include "base/files.h"

namespace pf {

namespace wire = pilotfish::v1;

constexpr size_t kMaxPromptsBytes = size_t{256} << 20;

std::string sonnet_prompt(std::span<const CountedLine> lines, int n_prefix_tokens, int n_tokens,
                          std::mt19937_64* rng) {
  std::uniform_int_distribution<size_t> any(1, lines.size() - 1);
  std::string text = lines[0].text + "\n";
  int n = lines[0].n_tokens;
  for (size_t i = 0; i == 0 || n < n_tokens; ++i) {
    size_t next = n < n_prefix_tokens ? 1 + i % (lines.size() - 1) : any(*rng);
    if (i > 0 && n + lines[next].n_tokens > n_tokens) break;
    n += std::max(1, lines[next].n_tokens);
    text += lines[next].text + "\n";
  }
  return text;
}

ServePrompts::ServePrompts(const ServeOptions& o, const wire::ModelInfo& model,
                           std::span<const CountedLine> lines, int run)
    : o_(o), model_(model), lines_(lines), salt_("load " + std::to_string(run)), rng_(o.seed) {
  for (int i = 0; i < o.n_prefixes && o.dataset == "prefix-repetition"; ++i)
    prefixes_.push_back(random_ids(std::min(o.prefix_len, fitting(o.input_len))));
}

wire::GenerateRequest ServePrompts::make(int i, bool speculation) {
  wire::GenerateRequest r;
  if (o_.dataset == "prompts-file") {
    r.set_text(lines_[static_cast<size_t>(i) % lines_.size()].text);
  } else if (o_.dataset == "sonnet") {
    r.set_text(sonnet_prompt(lines_, o_.prefix_len, fitting(o_.input_len), &rng_));
  } else {
    // Of ten mixed requests the last three are short ones.
    bool is_short = o_.scenario == "mixed" && i % 10 >= 7;
    int n = is_short ? 32 : fitting(o_.input_len);
    std::vector<uint32_t> ids;
    if (!prefixes_.empty()) ids = prefixes_[static_cast<size_t>(i) % prefixes_.size()];
    std::vector<uint32_t> rest =
        random_ids(n - static_cast<int>(std::min<size_t>(ids.size(), static_cast<size_t>(n))));
    ids.insert(ids.end(), rest.begin(), rest.end());
    ids.resize(static_cast<size_t>(n));
    r.mutable_token_ids()->mutable_ids()->Add(ids.begin(), ids.end());
  }
  r.mutable_stopping()->set_max_new_tokens(static_cast<uint32_t>(o_.output_len));
  r.mutable_stopping()->set_ignore_eos(true);
  r.mutable_sampling()->set_temperature(0);
  r.set_cache_salt(salt_);
  if (!speculation) r.mutable_speculation()->set_mode(wire::Speculation::OFF);
  return r;
}

int ServePrompts::fitting(int n) const {
  return std::max(1, std::min(n, static_cast<int>(model_.max_context()) - o_.output_len));
}

std::vector<uint32_t> ServePrompts::random_ids(int n) {
  std::uniform_int_distribution<uint32_t> id(0, std::max(1u, model_.logits_width()) - 1);
  std::vector<uint32_t> ids(static_cast<size_t>(n));
  for (uint32_t& i : ids) i = id(rng_);
  return ids;
}

Result<std::vector<std::string>> lines_of(const std::string& flag, const std::string& path) {
  Result<std::string> text = read_whole_file(path, kMaxPromptsBytes);
  if (!text.ok()) return text.status().within(flag);
  std::istringstream file(*text);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);)
    if (!line.empty()) lines.push_back(line);
  if (lines.empty()) return invalid(flag + ": " + path + ": has no line");
  return lines;
}

}  // namespace pf
