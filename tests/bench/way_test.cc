// Truth: names as --help says them; sizes of trees by hand; Medusa's published format, read back by
// the loader.
#include "bench/way.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model.h"

namespace pf {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(Way, IsADrafterOrAListAndAShape) {
  const Way list = *Way::parse("ngram,eagle");
  EXPECT_THAT(list.drafters, ElementsAre("ngram", "eagle"));
  EXPECT_TRUE(list.widths.empty());
  const Way given = *Way::parse("model@3x2x1"), grown = *Way::parse("eagle@grow16");
  EXPECT_THAT(given.drafters, ElementsAre("model"));
  EXPECT_THAT(given.widths, ElementsAre(3, 2, 1));
  EXPECT_EQ(given.most_nodes(3, 10), 3 + 6 + 6);
  EXPECT_EQ(grown.tree_nodes, 16);
  EXPECT_EQ(grown.most_nodes(-1, 10), 16);
  EXPECT_EQ(list.most_nodes(4, 10), 4);
  EXPECT_EQ(list.most_nodes(-1, 10), 10);
}

TEST(Way, WhatIsNoShapeIsNamed) {
  for (const char* bad :
       {"eagle@", "eagle@3x", "eagle@0", "eagle@grow", "eagle@grow99", "eagle@8x8", "eagle@3,2",
        "eagle@x", "", "@3", "self,ngram", "predicted,ngram"})
    EXPECT_FALSE(Way::parse(bad).ok()) << bad;
  EXPECT_THAT(Way::parse("eagle@8x8").status().message(), HasSubstr("eagle@8x8"));
}

// A tree of three levels is asked for once, whatever K; three heads draft three tokens at most.
TEST(Way, LengthsThatMakeNoDifferenceAreLeftOut) {
  const std::vector<int> ks = {4, -1, 2};
  EXPECT_THAT(Way::parse("ngram")->lengths(ks), ElementsAre(4, -1, 2));
  EXPECT_THAT(Way::parse("model@3x2x1")->lengths(ks), ElementsAre(3, -1));
  EXPECT_THAT(Way::parse("medusa")->lengths({1, 2, 3, 4, 16}), ElementsAre(1, 2, 3));
  EXPECT_THAT(Way::parse("eagle@grow2")->lengths(ks), ElementsAre(2, -1));
}

TEST(Way, AllOfThemCanBeRead) {
  for (const std::string& name : Way::all_names()) EXPECT_TRUE(Way::parse(name).ok()) << name;
}

TEST(Way, BringsItsModels) {
  const WayModels models{"target", "small", "head", "heads", 5};
  EngineOptions o;
  set_way(*Way::parse("self"), models, &o);
  EXPECT_THAT(o.speculation, ElementsAre("model"));
  ASSERT_EQ(o.drafts.size(), 1u);
  EXPECT_EQ(o.drafts[0].path, "self");
  o = {};
  set_way(*Way::parse("ngram,early-exit,medusa"), models, &o);
  EXPECT_THAT(o.speculation, ElementsAre("ngram", "early-exit", "medusa"));
  ASSERT_EQ(o.drafts.size(), 1u);
  EXPECT_EQ(o.drafts[0].path, "heads");
  EXPECT_EQ(o.draft_layers, 5);
}

TEST(RandomHeads, AreReadBackAndGoWithTheirMaker) {
  std::string folder;
  {
    Result<RandomHeads> heads = RandomHeads::make("smollm2-135m", 1);
    ASSERT_TRUE(heads.ok()) << heads.status().message();
    RandomHeads moved = heads.take();
    folder = moved.folder();
    Result<Model> model = load_model(folder, Role::kDraft, Content::kShapes);
    ASSERT_TRUE(model.ok()) << model.status().message();
    EXPECT_EQ(model->head_kind, HeadKind::kMedusa);
    ASSERT_EQ(model->medusa.size(), 3u);
    EXPECT_EQ(model->config.width, 576);
    EXPECT_EQ(model->config.vocabulary_size, 49152);
    ASSERT_EQ(model->medusa[2].blocks.size(), 1u);
  }
  EXPECT_FALSE(std::filesystem::exists(folder));
}

TEST(RandomHeads, OfNoModelAreRefused) {
  EXPECT_THAT(RandomHeads::make("no/such.gguf", 1).status().message(), HasSubstr("no/such.gguf"));
}

}  // namespace
}  // namespace pf
