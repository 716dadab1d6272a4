#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/status.h"
#include "engine/options.h"

namespace pf {

// One way to draft, as --drafters names it: a drafter as --speculation calls it, "self" (the target
// itself in INT4 as a draft model) or "predicted" (a text that the request brings), or a list to
// choose among; behind "@" the shape of trees: widths such as @3x2x1, or @grow16 for as many nodes
// that grow where they are likeliest kept.
struct Way {
  std::string name;                   // as given
  std::vector<std::string> drafters;  // of it
  std::vector<int32_t> widths = {};   // of given trees
  int32_t tree_nodes = 0;             // of grown ones

  static constexpr int32_t kMostNodes = 32;  // of a tree

  bool has(const std::string& drafter) const;
  // Drafted tokens of one round with k levels; k < 0: of the server's choice, at most.
  int32_t most_nodes(int k, int server_most) const;
  // Of the lengths asked for, those that differ: a tree of given widths has its own.
  std::vector<int> lengths(const std::vector<int>& ks) const;

  static Result<Way> parse(const std::string& text);
  static std::vector<std::string> all_names();
};

// Models that ways draft with.
struct WayModels {
  std::string model, draft, head;
  std::string medusa;  // a folder of heads
  int draft_layers = 8;
};
// Adds to the options what a way needs.
void set_way(const Way& way, const WayModels& models, EngineOptions* options);

// Medusa heads of random weights in the published format, in a folder of their own that goes with
// it: what such heads cost and that they change no text, while next to nothing of what they say is
// kept. None are shipped.
class RandomHeads {
 public:
  static constexpr int kHeads = 3;

  // For this model; a function of the seed. Errors: the model cannot be read, or no file written.
  static Result<RandomHeads> make(const std::string& model, uint64_t seed);
  RandomHeads(RandomHeads&& other) noexcept : folder_(std::move(other.folder_)) {
    other.folder_.clear();
  }
  RandomHeads& operator=(RandomHeads&&) = delete;
  ~RandomHeads();

  std::string folder() const { return folder_.string(); }

 private:
  explicit RandomHeads(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_;  // empty: moved from
};

}  // namespace pf
