// Truth: the README's table of drafters, and what each flag's help says that it is of.
#include "engine/unused_options.h"

#include <gtest/gtest.h>

namespace pf {
namespace {

// The flags that are named, in order.
std::vector<std::string> flags(const EngineOptions& o) {
  std::vector<std::string> out;
  for (const std::string& line : unused_options(o)) {
    out.push_back(line.substr(0, line.find_first_of(" :")));
    EXPECT_EQ(line.find('\n'), std::string::npos);
  }
  return out;
}

using Flags = std::vector<std::string>;

TEST(UnusedOptions, NothingIsSaidOfTheDefaultsOrOfWhatIsUsed) {
  EngineOptions o;
  EXPECT_EQ(flags(o), Flags{});
  o.drafts = {{"", "d.gguf"}};
  o.draft_device = "cpu";
  o.draft_quantization = "none";
  o.max_prefix_len = 4096;
  o.quantization = "int8";
  o.dtype = "fp32";  // the draft's
  for (std::vector<std::string> names :
       {Flags{"auto"}, Flags{"model"}, Flags{"ngram", "eagle"}, Flags{"cascade"}}) {
    o.speculation = names;
    EXPECT_EQ(flags(o), Flags{});
  }
  EngineOptions exits;
  exits.speculation = {"early-exit"};
  exits.draft_layers = 8;
  exits.speculation_tree = {3, 2};
  EXPECT_EQ(flags(exits), Flags{});
  EngineOptions self;
  self.drafts = {{"", "self"}};
  self.draft_layers = 8;
  EXPECT_EQ(flags(self), Flags{});
}

TEST(UnusedOptions, ADraftThatNoDrafterUsesIsNamed) {
  EngineOptions o;
  o.drafts = {{"", "nope"}};
  o.draft_device = "cuda";
  for (std::vector<std::string> names : {Flags{"ngram"}, Flags{"off"}, Flags{"suffix", "ngram"}}) {
    o.speculation = names;
    EXPECT_EQ(flags(o), (Flags{"--draft", "--draft-device"}));
  }
  o.speculation = {"ngram"};
  EXPECT_EQ(unused_options(o)[0],
            "--draft nope: --speculation ngram has no use for a draft; it is not opened");
}

TEST(UnusedOptions, WhatIsOfADraftNeedsOne) {
  EngineOptions o;
  o.draft_device = "cuda";
  o.draft_quantization = "int8";
  o.draft_rope_theta = 10000;
  o.draft_lora = "adapter";
  o.max_prefix_len = 100;
  o.draft_layers = 8;
  EXPECT_EQ(flags(o), (Flags{"--draft-device", "--draft-quantization", "--draft-rope-theta",
                             "--draft-lora", "--max-prefix-len", "--draft-layers"}));
}

TEST(UnusedOptions, WithoutDraftingThereAreNoTrees) {
  EngineOptions o;
  o.speculation_tree = {3, 2, 1};
  o.num_speculative_tokens = 0;
  EXPECT_EQ(flags(o), Flags{"--speculation-tree"});
  o.speculation_tree.clear();
  o.speculation_tree_nodes = 24;
  EXPECT_EQ(flags(o), Flags{"--speculation-tree-nodes"});
  o.num_speculative_tokens = 5;
  EXPECT_EQ(flags(o), Flags{});
  o.speculation = {"off"};
  EXPECT_EQ(flags(o), (Flags{"--speculation-tree-nodes", "--num-speculative-tokens"}));
}

TEST(UnusedOptions, QuantisedWeightsHaveNoOtherType) {
  EngineOptions o;
  o.dtype = "fp32";
  EXPECT_EQ(flags(o), Flags{});
  o.quantization = "int8";
  EXPECT_EQ(flags(o), Flags{"--dtype"});
}

}  // namespace
}  // namespace pf
