#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "cli/commands.h"
#include "cli/draft_tokens.h"
#include "cli/load_text.h"
#include "cli/settings.h"

namespace pf {
namespace {

std::string name_of(const Settings& settings) {
  if (!settings.served_model_name.empty()) return settings.served_model_name;
  std::filesystem::path path(settings.engine.model);
  if (path.filename().empty()) path = path.parent_path();  // a folder with a slash behind it
  return path.extension() == ".gguf" ? path.stem().string() : path.filename().string();
}

// Ids that end an answer: the model's EOS, and the end of a turn where the tokenizer has one.
std::vector<int32_t> end_ids(const EngineInfo& info, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids = info.eos_ids;
  if (ids.empty() && tokenizer.eos()) ids.push_back(*tokenizer.eos());
  if (tokenizer.eot()) ids.push_back(*tokenizer.eot());
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  std::erase_if(ids, [&](int32_t id) { return id < 0 || id >= info.vocabulary_size; });
  return ids;
}

}  // namespace

int fail(const Status& status) {
  std::fprintf(stderr, "pilotfish: %s\n", status.message().c_str());
  return kUsage;
}

Result<Loaded> load_engine_and_text(const Settings& settings, const Clock& clock,
                                    Progress* progress) {
  const EngineOptions& o = settings.engine;
  if (o.model.empty())
    return invalid("--model is not set; give a .gguf file or a folder with config.json");
  // The text is small: a bad tokenizer is found before gigabytes are read.
  Result<ModelText> text = load_target_text(o.model);
  if (!text.ok()) return text.status();
  EngineOptions with_tokens = o;
  if (Status s = read_draft_tokens(text->tokenizer, &with_tokens); !s.ok()) return s;
  Result<std::unique_ptr<Engine>> engine = Engine::create(with_tokens, clock, progress);
  if (!engine.ok()) return engine.status();
  const EngineInfo& info = (*engine)->info();
  if (text->tokenizer.size() > info.vocabulary_size)
    return invalid(o.model + ": the tokenizer has " + std::to_string(text->tokenizer.size()) +
                   " tokens, but the model knows " + std::to_string(info.vocabulary_size));
  const GenerationDefaults& g = text->generation;
  ServedModel model{.name = name_of(settings),
                    .info = info,
                    .tokenizer = std::move(text->tokenizer),
                    .chat = std::move(text->chat),
                    .defaults = {g.temperature, g.top_p, g.min_p, g.repetition_penalty, g.top_k,
                                 g.max_new_tokens},
                    .seed = o.seed,
                    .max_num_seqs = o.max_num_seqs,
                    .max_num_batched_tokens = o.max_num_batched_tokens,
                    .max_queue = o.max_queue};
  model.info.eos_ids = end_ids(info, model.tokenizer);
  return Loaded{engine.take(), std::move(model)};
}

}  // namespace pf
