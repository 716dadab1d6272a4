// Truth: the makers' own counts of weights, worked by hand; and the model whose weights are there.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "model/model.h"
#include "tests/model/files.h"

namespace pf {
namespace {

using test::Folder;
using testing::HasSubstr;

int64_t n_weights(const Model& m) {
  int64_t n = 0;
  for (const Tensor* t : all_tensors(m)) n += t->size();
  return n;
}

TEST(KnownShapes, HaveTheNumberOfWeightsThatTheirMakersSay) {
  // 8,030,261,248: 2 x 128256 x 4096 for embedding and head; a layer 2 x 4096^2 (q, o) +
  // 2 x 1024 x 4096 (k, v) + 3 x 14336 x 4096 + 2 x 4096, 32 times; and 4096.
  EXPECT_EQ(n_weights(*known_shape("llama-3.1-8b")), 8'030'261'248);
  EXPECT_EQ(n_weights(*known_shape("llama-3.2-1b")), 1'235'814'400);
  EXPECT_EQ(n_weights(*known_shape("tinyllama-1.1b")), 1'100'048'384);
  EXPECT_EQ(n_weights(*known_shape("qwen2.5-7b")), 7'615'616'512);
  EXPECT_EQ(n_weights(*known_shape("qwen2.5-0.5b")), 494'032'768);
  EXPECT_EQ(n_weights(*known_shape("mistral-7b")), 7'248'023'552);
}

TEST(KnownShapes, AllAreModelsThatStandAlone) {
  for (const std::string& name : known_shape_names()) {
    Result<Model> m = load_model(name, Role::kTarget, Content::kShapes);
    ASSERT_TRUE(m.ok()) << m.status().message();
    EXPECT_TRUE(check_stands_alone(*m).ok()) << name;
    EXPECT_TRUE(check_fits(*m, *m).ok()) << name;
  }
}

TEST(KnownShapes, AnUnknownNameIsRefusedWithTheList) {
  Result<Model> m = load_model("llama-9b", Role::kTarget, Content::kShapes);
  ASSERT_FALSE(m.ok());
  EXPECT_THAT(m.status().message(), HasSubstr("llama-9b: no such file or folder"));
  EXPECT_THAT(m.status().message(), HasSubstr("llama-3.1-8b"));
  EXPECT_FALSE(load_model("llama-3.1-8b").ok());  // weights do not come from a name
}

TEST(Shapes, OfAConfigAloneAreThoseOfItsWeights) {
  Folder folder;
  folder.put("config.json", test::tiny_config("qwen2", ""));
  Result<Model> bare = load_model(folder.path(), Role::kTarget, Content::kShapes);
  ASSERT_TRUE(bare.ok()) << bare.status().message();
  EXPECT_FALSE(load_model(folder.path()).ok());
  folder.put("model.safetensors", test::safetensors(test::tiny_tensors(true, false)));
  Result<Model> whole = load_model(folder.path());
  ASSERT_TRUE(whole.ok()) << whole.status().message();
  std::vector<const Tensor*> a = all_tensors(*bare), b = all_tensors(*whole);
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i]->name, b[i]->name);
    EXPECT_EQ(a[i]->shape, b[i]->shape) << a[i]->name;
  }
}

}  // namespace
}  // namespace pf
