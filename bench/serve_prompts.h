#pragma once

#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "bench/serve.h"
#include "proto/pilotfish/v1/inference.pb.h"

namespace pf {

// A line of text and how many tokens the server makes of it.
struct CountedLine {
  std::string text;
  int n_tokens = 0;
};

// What a prompt of a poem's lines begins with.
inline constexpr const char* kSonnetTask = "Pick as many lines as you can from these poem lines:";

// The first line (the task), then others until the prompt has about `n_tokens`: the second one and
// those behind it as far as `n_prefix_tokens` go (the beginning that all prompts share), then any
// but the first. One line beside the task at least. Requires: two lines or more.
std::string sonnet_prompt(std::span<const CountedLine> lines, int n_prefix_tokens, int n_tokens,
                          std::mt19937_64* rng);

// Requests of one load, a function of its seed.
class ServePrompts {
 public:
  // What lines_of gave for the options; all outlive this. `run` names the load: prefixes are cached
  // within one load, never from one to the next.
  ServePrompts(const ServeOptions& o, const pilotfish::v1::ModelInfo& model,
               std::span<const CountedLine> lines, int run);

  pilotfish::v1::GenerateRequest make(int i, bool speculation);
  bool cancels() { return std::uniform_real_distribution<double>()(rng_) < o_.cancel_rate; }

 private:
  int fitting(int n) const;  // the context holds prompt and answer
  std::vector<uint32_t> random_ids(int n);

  const ServeOptions& o_;
  const pilotfish::v1::ModelInfo& model_;
  std::span<const CountedLine> lines_;
  std::string salt_;
  std::mt19937_64 rng_;
  std::vector<std::vector<uint32_t>> prefixes_;
};

// The lines of a text that are not empty; a file that cannot be read or has none is refused by the
// name of its flag.
Result<std::vector<std::string>> lines_of(const std::string& flag, const std::string& path);

}  // namespace pf
