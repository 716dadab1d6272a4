#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "base/cpus.h"
#include "cli/commands.h"
#include "cli/load_text.h"
#include "model/int4_rows.h"
#include "model/lora.h"
#include "model/model.h"
#include "text/vocabulary_map.h"

namespace pf {
namespace {

void row(const char* what, const std::string& value) {
  std::printf("  %-24s %s\n", what, value.c_str());
}

std::string megabytes(int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MB", 1e-6 * static_cast<double>(bytes));
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%g", value);
  return text;
}

std::string shape_of(const Tensor& t) {
  std::string text;
  for (int64_t n : t.shape) text += (text.empty() ? "" : ", ") + std::to_string(n);
  return "[" + text + "]";
}

// What a head over hidden states reads.
void print_head(const Model& m) {
  row("drafts as", "eagle");
  if (m.head_kind == HeadKind::kEagle) {
    row("kind", m.embedding_norm.empty() ? "EAGLE: a head over the target's last hidden state"
                                         : "EAGLE with norms in front: a head over the target's "
                                           "last hidden state");
    return;
  }
  std::string layers;
  for (int32_t layer : m.config.tap_layers)
    layers += (layers.empty() ? "" : ", ") + std::to_string(layer);
  row("kind", "EAGLE-3: a head over hidden states of several of the target's layers");
  row("hidden states", std::to_string(m.hidden_width()) + " values in all, in front of layers " +
                           (layers.empty() ? "2, L / 2 and L - 3 of the target's L" : layers));
}

void print_medusa(const Model& m) {
  row("drafts as", "medusa");
  row("kind", "heads over the target's last hidden state, one for each position to come");
  row("heads", std::to_string(m.medusa.size()) + ", of " +
                   std::to_string(m.medusa[0].blocks.size()) + " blocks each");
  row("width", std::to_string(m.config.width));
  row("vocab_size", std::to_string(m.config.vocabulary_size));
}

void print_config(const std::string& path, const Model& m) {
  const ModelConfig& c = m.config;
  std::printf("%s\n", path.c_str());
  if (!m.medusa.empty()) return print_medusa(m);
  row("architecture", c.architecture);
  row("layers", std::to_string(c.n_layers));
  row("width", std::to_string(c.width));
  row("feed-forward width", std::to_string(c.ffn_width));
  row("heads", std::to_string(c.n_heads) + " (" + std::to_string(c.n_kv_heads) + " for KV), each " +
                   std::to_string(c.head_width) + " wide");
  row("vocab_size", std::to_string(c.vocabulary_size));
  row("max_position_embeddings", std::to_string(c.max_context));
  row("rope_theta", c.rope_theta > 0 ? number(c.rope_theta) : "missing");
  if (c.sliding_window > 0) row("sliding window", std::to_string(c.sliding_window));
  row("head", m.shares_head            ? "none: the target's is used"
              : !m.head_tokens.empty() ? "of a reduced vocabulary"
              : c.tied_head            ? "tied to the embedding"
                                       : "of its own");
  if (m.takes_hidden()) print_head(m);
  if (m.shares_embedding) row("embedding", "none: the target's is used");
  int64_t kv = c.n_layers * 2 * c.n_kv_heads * c.head_width * 2;
  row("KV per token (16 bit)", std::to_string(kv) + " bytes");
}

void print_tensors(const Model& m, bool all) {
  std::map<std::string, std::pair<int64_t, int64_t>> types;  // count and bytes by type
  int64_t bytes = 0;
  for (const Tensor* t : all_tensors(m)) {
    auto& [count, size] = types[std::string(type_name(t->type))];
    ++count;
    size += static_cast<int64_t>(t->data.size());
    bytes += static_cast<int64_t>(t->data.size());
    if (all)
      std::printf("  %-40s %-6s %s\n", t->name.c_str(), std::string(type_name(t->type)).c_str(),
                  shape_of(*t).c_str());
  }
  for (const auto& [type, sum] : types)
    row(type.c_str(), std::to_string(sum.first) + " tensors, " + megabytes(sum.second));
  row("weights", megabytes(bytes));
  if (m.config.int4_group != kInt4Group)
    row("4-bit groups", std::to_string(m.config.int4_group) + " weights to a scale");
}

void print_text(const Result<ModelText>& text) {
  if (!text.ok()) return row("tokenizer", "none: " + text.status().message());
  row("tokenizer", std::to_string(text->tokenizer.size()) + " tokens");
  row("chat template", text->chat ? std::string(text->chat->name()) : "none that is known");
}

bool compare_number(const char* what, double a, double b) {
  bool equal = a == b;
  row(what, number(a) + (equal ? " = " : " != ") + number(b) + (equal ? "" : "   <- differs"));
  return equal;
}

// Without a tokenizer of its own a draft is taken to speak the target's tokens, which takes as many
// of them.
bool compare_widths(const Model& draft, const Model& target) {
  bool named = draft.shares_embedding || !draft.head_tokens.empty();
  bool equal = named || draft.config.vocabulary_size == target.config.vocabulary_size;
  row("tokens", equal
                    ? "the target's: the draft has no tokenizer of its own"
                    : "no vocabulary map: the draft has no tokenizer of its own, and other widths");
  return equal;
}

bool compare_texts(const Model& draft_model, const Model& target_model,
                   const Result<ModelText>& draft, const Result<ModelText>& target) {
  if (!target.ok()) {
    row("tokens", "not compared: the target has no tokenizer");
    return false;
  }
  if (!draft.ok()) return compare_widths(draft_model, target_model);
  VocabularyMap map = map_vocabularies(draft->tokenizer, target->tokenizer);
  if (map.identity && map.covers_text) return row("tokens", "equal"), true;
  row("tokens", std::to_string(map.n_shared) + " shared, " + number(100 * map.draft_coverage) +
                    " % of the draft's");
  for (int32_t id : map.first_differences)
    row("  differs at", std::to_string(id) + ": " + excerpt(draft->tokenizer.bytes(id)) + " | " +
                            excerpt(target->tokenizer.bytes(id)));
  row("spelled", std::to_string(std::count(map.to_draft.begin(), map.to_draft.end(), -1)) +
                     " of the target's are fed as several of the draft's");
  Status useful = check_useful(map);
  if (!useful.ok()) row("tokens", useful.message());
  return useful.ok();
}

// Whether the first can draft for the second.
int compare(const Model& draft, const Model& target, const Result<ModelText>& draft_text,
            const Result<ModelText>& target_text) {
  std::printf("first as a draft of the second\n");
  compare_number("rope_theta", draft.config.rope_theta, target.config.rope_theta);
  compare_number("max_position_embeddings", static_cast<double>(draft.config.max_context),
                 static_cast<double>(target.config.max_context));
  compare_number("vocab_size", static_cast<double>(draft.config.vocabulary_size),
                 static_cast<double>(target.config.vocabulary_size));
  bool good = compare_texts(draft, target, draft_text, target_text);
  for (const Status& s : {check_stands_alone(target), check_fits(draft, target)}) {
    if (s.ok()) continue;
    row("does not fit", s.message());
    good = false;
  }
  if (good) row("verdict", "it can draft");
  return good ? kOk : kCheckSaidNo;
}

// Greedy text of the model, and in how many of its places an exit behind n layers says the same.
// Requires: the model stands alone.
int measure_exits(const std::string& path, const Model& model, const ModelText& text) {
  constexpr int32_t kTokens = kMaxTreeNodes;
  std::vector<int32_t> prompt = text.tokenizer.encode("The sky is blue because", {});
  ThreadPool pool(n_usable_cpus());
  CpuOptions o;
  o.max_context = static_cast<int64_t>(prompt.size()) + kTokens + 1;
  o.n_blocks = static_cast<int32_t>(o.max_context / o.block_tokens + 1);
  auto backend = make_cpu_backend(model, nullptr, o, pool);
  if (!backend.ok()) return fail(backend.status().within(path));
  std::vector<BlockId> blocks(static_cast<size_t>(o.n_blocks));
  std::iota(blocks.begin(), blocks.end(), 0);
  SamplingParams greedy;
  StopParams stop;
  ProposeJob job;
  job.committed = prompt;
  job.blocks = blocks;
  job.n_draft = kTokens;
  job.params = &greedy;
  job.stop = &stop;
  DraftTree said;
  (*backend)->propose({&job, 1}, {&said, 1});
  // Every place as a draft of its own over the keys and values of all tokens before it.
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), said.tokens.begin(), said.tokens.end());
  std::vector<ProposeJob> places;
  for (int32_t i = 0; i < said.size(); ++i) {
    job.base = static_cast<int64_t>(prompt.size()) - 1 + i;
    job.committed = std::span(all).subspan(static_cast<size_t>(job.base), 1);
    job.n_draft = 1;
    places.push_back(job);
  }
  std::vector<DraftTree> trees(places.size());
  std::printf("exit behind layer: share of %d greedy tokens that it says too\n", said.size());
  for (int32_t n = 1; n <= model.config.n_layers; ++n) {
    (*backend)->propose_early(n, places, trees);
    int32_t same = 0;
    for (size_t i = 0; i < trees.size(); ++i)
      same += trees[i].size() == 1 && trees[i].tokens[0] == said.tokens[i];
    row(std::to_string(n).c_str(), number(std::round(1000.0 * same / said.size()) / 1000));
  }
  return kOk;
}

// An adapter, and with a second path whether it fits that model.
int inspect_lora(const std::vector<std::string>& paths, bool all) {
  Result<LoraAdapter> adapter = read_lora(paths[0]);
  if (!adapter.ok()) return fail(adapter.status());
  std::printf("%s\n", paths[0].c_str());
  row("kind", "LoRA adapter, for --draft-lora");
  if (!adapter->base.empty()) row("trained for", adapter->base);
  std::map<int64_t, int64_t> ranks;
  int64_t n_numbers = 0;
  for (const LoraAdapter::Matrix& m : adapter->matrices) {
    ++ranks[m.rank()];
    n_numbers += m.a.size() + m.b.size();
    if (all)
      std::printf("  %-40s rank %lld, times %s\n", m.name.c_str(), static_cast<long long>(m.rank()),
                  number(m.scale).c_str());
  }
  for (auto [rank, n] : ranks)
    row(("rank " + std::to_string(rank)).c_str(), std::to_string(n) + " matrices");
  row("numbers", std::to_string(n_numbers));
  for (const Tensor& t : adapter->whole) row("whole", t.name + " " + shape_of(t));
  if (paths.size() < 2) return kOk;
  Result<Model> model = load_model(paths[1], Role::kDraft);
  if (!model.ok()) return fail(model.status());
  Status fits = merge_lora(*adapter, Content::kShapes, &*model);
  row("fits", fits.ok() ? paths[1] : "no: " + fits.message());
  return fits.ok() ? kOk : kCheckSaidNo;
}

int inspect(const std::vector<std::string>& paths, bool all, bool exits) {
  if (is_lora_folder(paths[0])) return inspect_lora(paths, all);
  if (exits && paths.size() > 1)
    return fail(invalid("--exit-layers measures one model; leave " + paths[1] + " away"));
  std::vector<Model> models;
  std::vector<Result<ModelText>> texts;
  for (const std::string& path : paths) {
    Result<Model> model = load_model(path, Role::kDraft);
    if (!model.ok()) {
      const bool named = model.status().message().find(path) != std::string::npos;
      return fail(named ? model.status() : model.status().within(path));
    }
    if (Status s = exits ? check_stands_alone(*model) : Status(); !s.ok())
      return fail(s.within("--exit-layers: " + path));
    models.push_back(model.take());
    texts.push_back(load_text(path));
    if (exits && !texts.back().ok()) return fail(texts.back().status());
    print_config(path, models.back());
    print_text(texts.back());
    print_tensors(models.back(), all);
  }
  if (exits) return measure_exits(paths[0], models[0], *texts[0]);
  return paths.size() < 2 ? kOk : compare(models[0], models[1], texts[0], texts[1]);
}

}  // namespace

void declare_inspect(CLI::App* app, Run* run) {
  CLI::App* command = app->add_subcommand(
      "inspect",
      "Show what is in a model's files; with two, whether the first can draft for the "
      "second (exit 1 when it cannot)");
  auto paths = std::make_shared<std::vector<std::string>>();
  auto all = std::make_shared<bool>(false), exits = std::make_shared<bool>(false);
  command
      ->add_option("path", *paths,
                   "A .gguf file, a .safetensors file, a model folder or a LoRA adapter's folder")
      ->type_name("PATH [PATH2]")
      ->required()
      ->expected(1, 2);
  command->add_flag("--tensors", *all, "List every tensor");
  command->add_flag("--exit-layers", *exits,
                    "Measure how often each layer's early exit says what the whole model says");
  command->callback([=] { *run = [=] { return inspect(*paths, *all, *exits); }; });
}

}  // namespace pf
