#include "bench/speculation_prompts.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include "base/files.h"
#include "bench/bench_model.h"
#include "bench/report.h"
#include "cli/load_text.h"

namespace pf {
namespace {

std::vector<int32_t> ids_of(const std::string& text, const ModelText* model) {
  if (model == nullptr) return std::vector<int32_t>(text.begin(), text.end());
  if (model->chat) {
    ChatMessage message{"user", text};
    if (auto ids = model->chat->render({&message, 1}, model->tokenizer, true); ids.ok())
      return ids.take();
  }
  return model->tokenizer.encode(text);
}

std::vector<int32_t> code_ids(const std::string& prompt, const ModelText* model) {
  constexpr std::string_view kFence = "```\n";
  const size_t begin = prompt.find(kFence), end = prompt.rfind("```");
  if (begin == std::string::npos || end <= begin) return {};
  const size_t first = begin + kFence.size();
  const std::string code = prompt.substr(first, end - first);
  if (model == nullptr) return std::vector<int32_t>(code.begin(), code.end());
  return model->tokenizer.encode(code);
}

std::vector<int32_t> end_ids_of(const ModelText& model) {
  std::vector<int32_t> ids = model.generation.eos_token_ids;
  for (std::optional<int32_t> id : {model.tokenizer.eos(), model.tokenizer.eot()})
    if (id) ids.push_back(*id);
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

Result<Json> read_json(const std::string& file) {
  Result<std::string> text = read_whole_file(file, size_t{256} << 20);
  if (!text.ok())
    return invalid(text.status().message() + "; give --prompts-file, or run from the clone");
  Json json = Json::parse(*text, nullptr, false);
  if (!json.is_object() || json.empty())
    return invalid(file + " is no JSON object of lists of prompts");
  return json;
}

}  // namespace

Result<PromptSet> read_prompts(const std::string& file, const std::string& model,
                               const std::vector<std::string>& kinds, int n) {
  Result<Json> json = read_json(file);
  if (!json.ok()) return json.status();
  std::optional<ModelText> text;
  std::vector<std::string> synthetic = synthetic_names();
  if (std::find(synthetic.begin(), synthetic.end(), model) == synthetic.end()) {
    Result<ModelText> loaded = load_text(model);
    if (!loaded.ok()) return loaded.status();
    text = loaded.take();
  }
  for (const std::string& kind : kinds)
    if (!json->contains(kind)) return invalid(file + " has no prompts of the kind '" + kind + "'");
  PromptSet set;
  if (text) set.end_ids = end_ids_of(*text);
  for (const auto& [kind, prompts] : json->items()) {
    if (!kinds.empty() && std::find(kinds.begin(), kinds.end(), kind) == kinds.end()) continue;
    PromptKind& out = set.kinds.emplace_back();
    out.name = kind;
    for (const Json& prompt : prompts) {
      if (!prompt.is_string() || prompt.get_ref<const std::string&>().empty())
        return invalid(file + ": '" + kind + "' holds something that is no prompt");
      if (static_cast<int>(out.prompts.size()) == n) break;
      out.prompts.push_back(ids_of(prompt, text ? &*text : nullptr));
      out.predicted.push_back(code_ids(prompt, text ? &*text : nullptr));
    }
    if (out.prompts.empty()) return invalid(file + ": '" + kind + "' has no prompts");
  }
  return set;
}

}  // namespace pf
