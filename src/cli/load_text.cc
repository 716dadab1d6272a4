#include "cli/load_text.h"

#include <filesystem>

#include "base/mapped_file.h"
#include "model/families.h"
#include "model/gguf.h"
#include "model/json_file.h"
#include "model/model.h"
#include "model/model_files.h"

namespace pf {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxJsonBytes = 64 << 20;

std::optional<int32_t> token_id(const GgufFile& file, const std::string& key) {
  return file.find<int32_t>("tokenizer.ggml." + key + "_token_id");
}

Status read_tokens(const GgufFile& file, Vocabulary* v) {
  auto tokens = file.find_strings("tokenizer.ggml.tokens");
  if (!tokens) return invalid("tokenizer.ggml.tokens is missing: the file has no tokenizer");
  v->tokens.assign(tokens->begin(), tokens->end());
  if (auto types = file.find_integers("tokenizer.ggml.token_type")) {
    for (int64_t type : *types) {
      if (type < 1 || type > 6) return invalid("tokenizer.ggml.token_type has an unknown type");
      v->types.push_back(static_cast<TokenType>(type));
    }
  }
  if (auto scores = file.find_floats("tokenizer.ggml.scores")) v->scores = std::move(*scores);
  auto merges = file.find_strings("tokenizer.ggml.merges");
  for (std::string_view merge : merges.value_or(std::vector<std::string_view>{})) {
    size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos)
      return invalid("tokenizer.ggml.merges has an entry that is no pair");
    v->merges.emplace_back(merge.substr(0, space), merge.substr(space + 1));
  }
  return {};
}

// The keys of llama.cpp, with the defaults that it gives to missing ones.
Result<Vocabulary> vocabulary_of(const GgufFile& file) {
  Vocabulary v;
  std::string kind(file.find<std::string_view>("tokenizer.ggml.model").value_or(""));
  if (kind != "gpt2" && kind != "llama")
    return Status(Code::kUnimplemented, "tokenizer.ggml.model is " +
                                            (kind.empty() ? "missing" : excerpt(kind)) +
                                            "; gpt2 and llama are known");
  bool pieces = kind == "llama";
  v.kind = pieces ? VocabularyKind::kSentencePieceBpe : VocabularyKind::kByteLevelBpe;
  if (Status s = read_tokens(file, &v); !s.ok()) return s;
  v.pre = file.find<std::string_view>("tokenizer.ggml.pre").value_or(pieces ? "" : "default");
  v.ignore_merges = v.pre == "llama-bpe";
  v.bos = token_id(file, "bos");
  v.eos = token_id(file, "eos");
  v.eot = token_id(file, "eot");
  v.unk = token_id(file, "unknown");
  v.pad = token_id(file, "padding");
  if (pieces) {
    if (!v.bos) v.bos = 1;
    if (!v.eos) v.eos = 2;
    if (!v.unk) v.unk = 0;
  }
  bool adds_bos = pieces || v.pre == "llama-bpe";
  v.add_bos = file.find<bool>("tokenizer.ggml.add_bos_token").value_or(adds_bos && v.bos);
  v.add_eos = file.find<bool>("tokenizer.ggml.add_eos_token").value_or(false);
  v.add_space_prefix = file.find<bool>("tokenizer.ggml.add_space_prefix").value_or(pieces);
  v.remove_extra_spaces =
      file.find<bool>("tokenizer.ggml.remove_extra_whitespaces").value_or(false);
  v.chat_template = file.find<std::string_view>("tokenizer.chat_template").value_or("");
  return v;
}

Result<ModelText> make_text(Vocabulary vocabulary, GenerationDefaults generation) {
  std::optional<ChatTemplate> chat;
  if (!vocabulary.chat_template.empty()) chat = ChatTemplate::recognise(vocabulary.chat_template);
  Result<Tokenizer> tokenizer = Tokenizer::create(std::move(vocabulary));
  if (!tokenizer.ok()) return tokenizer.status();
  return ModelText{tokenizer.take(), std::move(chat), std::move(generation)};
}

Result<ModelText> text_of_gguf(const std::string& path) {
  Result<GgufFile> file = GgufFile::open(path);
  if (!file.ok()) return file.status();
  Result<ModelConfig> config = config_of_gguf(*file);
  if (!config.ok()) return config.status().within(path);
  Result<Vocabulary> vocabulary = vocabulary_of(*file);
  if (!vocabulary.ok()) return vocabulary.status().within(path);
  Result<ModelText> text = make_text(vocabulary.take(), config->generation);
  if (!text.ok()) return text.status().within(path);
  return text;
}

// The file as text; empty when there is none.
Result<std::string> read_if_there(const fs::path& path) {
  std::error_code error;
  if (!fs::exists(path, error)) return std::string();
  Result<MappedFile> file = MappedFile::open(path.string());
  if (!file.ok()) return file.status();
  if (file->bytes().size() > kMaxJsonBytes) return invalid(path.string() + " is larger than 64 MB");
  return std::string(reinterpret_cast<const char*>(file->bytes().data()), file->bytes().size());
}

Result<Vocabulary> vocabulary_in(const fs::path& folder) {
  Result<std::string> json = read_if_there(folder / "tokenizer.json");
  if (!json.ok()) return json.status();
  Result<std::string> config = read_if_there(folder / "tokenizer_config.json");
  if (!config.ok()) return config.status();
  if (!json->empty()) {
    Result<Vocabulary> v = read_tokenizer_json(*json, *config);
    return v.ok() ? std::move(v) : v.status().within((folder / "tokenizer.json").string());
  }
  fs::path pieces = folder / "tokenizer.model";
  std::error_code error;
  if (!fs::exists(pieces, error))
    return invalid(folder.string() +
                   " has no tokenizer.json and no tokenizer.model; put one there");
  Result<MappedFile> file = MappedFile::open(pieces.string());
  if (!file.ok()) return file.status();
  Result<Vocabulary> v = read_sentencepiece(file->bytes());
  return v.ok() ? std::move(v) : v.status().within(pieces.string());
}

// chat_template.jinja, or the key of tokenizer_config.json where no tokenizer.json took it over.
Result<ModelText> text_of_folder(const fs::path& folder) {
  Result<Vocabulary> vocabulary = vocabulary_in(folder);
  if (!vocabulary.ok()) return vocabulary.status();
  Result<std::string> jinja = read_if_there(folder / "chat_template.jinja");
  if (!jinja.ok()) return jinja.status();
  if (!jinja->empty()) vocabulary->chat_template = *jinja;
  if (vocabulary->chat_template.empty()) {
    Result<std::string> config = read_if_there(folder / "tokenizer_config.json");
    if (!config.ok()) return config.status();
    Result<nlohmann::json> parsed = parse_json(*config, kMaxJsonBytes);
    if (parsed.ok() && parsed->is_object() && parsed->contains("chat_template") &&
        (*parsed)["chat_template"].is_string())
      vocabulary->chat_template = (*parsed)["chat_template"].get<std::string>();
  }
  Result<std::string> config = read_if_there(folder / "config.json");
  if (!config.ok()) return config.status();
  Result<std::string> generation = read_if_there(folder / "generation_config.json");
  if (!generation.ok()) return generation.status();
  Result<ModelConfig> parsed = config_of_json(*config, *generation);
  if (!parsed.ok()) return parsed.status().within((folder / "config.json").string());
  Result<ModelText> text = make_text(vocabulary.take(), parsed->generation);
  if (!text.ok()) return text.status().within(folder.string());
  return text;
}

bool has_tokenizer_file(const fs::path& folder) {
  std::error_code error;
  return fs::exists(folder / "tokenizer.json", error) ||
         fs::exists(folder / "tokenizer.model", error);
}

// Whether the text is in the GGUF: it is named itself, or no tokenizer's file lies beside it.
bool is_in_gguf(const std::string& path, const ModelFiles& files) {
  std::error_code error;
  return files.form == ModelFiles::Form::kGguf &&
         !(fs::is_directory(path, error) && has_tokenizer_file(files.folder));
}

}  // namespace

Result<ModelText> load_text(const std::string& model_path) {
  Result<ModelFiles> files = find_model_files(model_path);
  if (!files.ok()) return files.status();
  return is_in_gguf(model_path, *files) ? text_of_gguf(files->weights)
                                        : text_of_folder(files->folder);
}

Result<ModelText> load_target_text(const std::string& model_path) {
  Result<ModelText> text = load_text(model_path);
  if (text.ok()) return text;
  Result<Model> model = load_model(model_path, Role::kDraft, Content::kShapes);
  Status alone = model.ok() ? check_stands_alone(*model) : Status();
  return alone.ok() ? text.status() : alone.within(model_path);
}

bool has_text(const std::string& model_path) {
  Result<ModelFiles> files = find_model_files(model_path);
  if (!files.ok()) return false;
  if (!is_in_gguf(model_path, *files)) return has_tokenizer_file(files->folder);
  Result<GgufFile> file = GgufFile::open(files->weights);
  return file.ok() && file->find_strings("tokenizer.ggml.tokens").has_value();
}

}  // namespace pf
