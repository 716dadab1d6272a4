// Truth: the metadata keys of llama.cpp and the tokenizer goldens of the real model.
#include "cli/load_text.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "cli/draft_tokens.h"
#include "model/model.h"
#include "text/byte_alphabet.h"
#include "text/smollm2.h"
#include "text/utf8.h"

namespace pf {
namespace {

namespace fs = std::filesystem;

const char* const kModel = PF_SOURCE_DIR "/models/SmolLM2-135M-Instruct.Q4_1.gguf";

TEST(LoadText, ReadsTheRealModelsTokenizerAndTemplate) {
  if (!fs::exists(kModel)) GTEST_SKIP() << kModel << " is missing: run scripts/get_model.sh";
  Result<ModelText> text = load_text(kModel);
  ASSERT_TRUE(text.ok()) << text.status().message();
  EXPECT_EQ(text->tokenizer.size(), 49152);
  ASSERT_TRUE(text->chat);
  EXPECT_EQ(text->chat->name(), "chatml");
  EXPECT_EQ(text->tokenizer.eos(), 2);
  int n = 0;
  for (const auto& c : goldens()["cases"]) {
    std::string prompt = c["text"];
    EncodeOptions options;
    options.parse_special = true;
    EXPECT_EQ(text->tokenizer.encode(prompt, options), c["ids"].get<std::vector<int32_t>>());
    ++n;
  }
  EXPECT_GT(n, 50);
}

class Folder {
 public:
  Folder() : path(fs::temp_directory_path() / ("load-text-" + std::to_string(getpid()))) {
    fs::create_directories(path);
    write("config.json",
          R"({"model_type":"llama","hidden_size":64,"intermediate_size":64,"num_hidden_layers":1,
              "num_attention_heads":1,"vocab_size":8,"max_position_embeddings":16,
              "rms_norm_eps":1e-5,"rope_theta":10000.0})");
  }
  ~Folder() { fs::remove_all(path); }
  void write(const char* name, const std::string& text) const {
    std::ofstream(path / name) << text;
  }
  const fs::path path;
};

const char* const kTokenizer =
    R"({"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"<s>":3},"merges":["a b"]},
        "added_tokens":[{"id":3,"content":"<s>","special":true}],
        "pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},
        "decoder":{"type":"ByteLevel"}})";

TEST(LoadText, ReadsAFolderAndTheFileInIt) {
  Folder folder;
  folder.write("tokenizer.json", kTokenizer);
  folder.write("model.safetensors", "not read for the text");
  folder.write("generation_config.json", R"({"temperature":0.6,"top_k":5,"eos_token_id":[3]})");
  folder.write("chat_template.jinja",
               "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\n' + m['content'] + "
               "'<|im_end|>' + '\n'}}{% endfor %}");
  for (const std::string& path :
       {folder.path.string(), (folder.path / "model.safetensors").string()}) {
    Result<ModelText> text = load_text(path);
    ASSERT_TRUE(text.ok()) << text.status().message();
    EXPECT_EQ(text->tokenizer.encode("ab"), std::vector<int32_t>{2});
    EXPECT_EQ(text->generation.temperature, 0.6f);
    EXPECT_EQ(text->generation.top_k, 5);
    ASSERT_TRUE(text->chat);
    EXPECT_EQ(text->chat->name(), "chatml");
  }
}

TEST(LoadText, SaysWhichFileIsMissingOrWrong) {
  Folder folder;
  EXPECT_NE(load_text(folder.path.string()).status().message().find("tokenizer.json"),
            std::string::npos);
  folder.write("tokenizer.json", "{");
  EXPECT_NE(load_text(folder.path.string()).status().message().find("tokenizer.json"),
            std::string::npos);
  folder.write("tokenizer.json", kTokenizer);
  folder.write("config.json", "{}");
  EXPECT_NE(load_text(folder.path.string()).status().message().find("config.json"),
            std::string::npos);
  EXPECT_NE(load_text("/nonexistent.gguf").status().message().find("/nonexistent.gguf"),
            std::string::npos);
}

// Each was told to put a tokenizer.json there, whatever it was.
TEST(LoadText, FindsTheFilesThatTheWeightsAreLoadedFrom) {
  Folder folder;
  auto says = [](const fs::path& path) { return load_text(path.string()).status().message(); };
  EXPECT_EQ(says("nope"), "nope: No such file or directory");
  folder.write("notes.txt", "no model");
  EXPECT_EQ(says(folder.path / "notes.txt"),
            load_model(folder.path / "notes.txt").status().message());
  EXPECT_EQ(says(folder.path / "notes.txt").find("tokenizer"), std::string::npos);
  fs::create_directory(folder.path / "two");
  std::ofstream(folder.path / "two/a.gguf") << "GGUF";
  std::ofstream(folder.path / "two/b.gguf") << "GGUF";
  EXPECT_EQ(says(folder.path / "two"),
            (folder.path / "two").string() + ": several .gguf files; name one of them");
  fs::create_directory(folder.path / "none");
  EXPECT_EQ(says(folder.path / "none"), load_model(folder.path / "none").status().message());
  if (!fs::exists(kModel)) GTEST_SKIP() << kModel << " is missing: run scripts/get_model.sh";
  fs::create_symlink(kModel, folder.path / "without-suffix");
  EXPECT_TRUE(load_text((folder.path / "without-suffix").string()).ok());
  EXPECT_TRUE(has_text((folder.path / "without-suffix").string()));
}

// The shipped drafts name the target's tokens and have no tokenizer; a folder may be one GGUF file.
TEST(LoadText, AFolderOfOneGgufIsThatFile) {
  if (!fs::exists(kModel)) GTEST_SKIP() << kModel << " is missing: run scripts/get_model.sh";
  EXPECT_TRUE(has_text(kModel));
  EXPECT_FALSE(has_text(PF_SOURCE_DIR "/models/drafts/smollm2-3l"));
  EXPECT_FALSE(has_text("no/such/model.gguf"));
  Folder folder;
  fs::create_symlink(kModel, folder.path / "model.gguf");
  EXPECT_TRUE(has_text(folder.path.string()));
  ASSERT_TRUE(load_text(folder.path.string()).ok());
  folder.write("tokenizer.json", kTokenizer);
  ASSERT_TRUE(load_text(folder.path.string()).ok());
  EXPECT_EQ(load_text(folder.path.string())->tokenizer.size(), 4)
      << "the file beside it goes first";
}

Tokenizer byte_tokenizer(int32_t n_more) {
  Vocabulary v;
  v.pre = "gpt-2";
  for (int byte = 0; byte < 256; ++byte)
    append_utf8(letter_of_byte(static_cast<uint8_t>(byte)), &v.tokens.emplace_back());
  for (int32_t i = 0; i < n_more; ++i) v.tokens.push_back("word" + std::to_string(i));
  return Tokenizer::create(std::move(v)).take();
}

TEST(DraftTokens, WhatADraftsTokensAreToTheTargets) {
  if (!fs::exists(kModel)) GTEST_SKIP() << kModel << " is missing: run scripts/get_model.sh";
  using Tokens = DraftOption::Tokens;
  DraftOption same{"", kModel}, self{"", "self"},
      none{"", PF_SOURCE_DIR "/models/drafts/smollm2-3l"};
  auto text = load_text(kModel);
  const Tokenizer& target = text->tokenizer;
  for (DraftOption* d : {&same, &self, &none}) ASSERT_TRUE(read_draft_tokens(target, d).ok());
  EXPECT_EQ(same.tokens, Tokens::kEqual);
  EXPECT_EQ(self.tokens, Tokens::kUnknown);
  EXPECT_EQ(none.tokens, Tokens::kUnknown);
  DraftOption foreign{"", kModel};
  ASSERT_TRUE(read_draft_tokens(byte_tokenizer(40), &foreign).ok());
  EXPECT_EQ(foreign.tokens, Tokens::kForeign);
  EXPECT_NE(foreign.why_foreign.find("of 49152"), std::string::npos) << foreign.why_foreign;
  Folder folder;
  folder.write("tokenizer.json", "{");
  DraftOption broken{"", folder.path.string()};
  EXPECT_FALSE(read_draft_tokens(target, &broken).ok());
}

}  // namespace
}  // namespace pf
