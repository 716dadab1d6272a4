#include "bench/way.h"

#include <stdlib.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <random>
#include <sstream>

#include "batch/draft_shape.h"
#include "bench/report.h"
#include "cli/parse_value.h"
#include "model/model.h"

namespace pf {
namespace {

const std::vector<std::string> kAll = {
    "ngram",        "suffix",      "lookahead",    "early-exit", "eagle",       "eagle@3x2x1",
    "eagle@grow16", "medusa",      "medusa@3x2x2", "model",      "model@3x2x1", "cascade",
    "predicted",    "ngram,eagle", "suffix,eagle", "ngram,model"};

// "3x2x1" or "grow16"; false: neither.
bool read_shape(const std::string& text, Way* way) {
  constexpr const char* kGrow = "grow";
  if (text.starts_with(kGrow)) {
    Result<int64_t> n = parse_integer(text.substr(std::strlen(kGrow)));
    if (!n.ok() || *n < 1 || *n > Way::kMostNodes) return false;
    way->tree_nodes = static_cast<int32_t>(*n);
    return true;
  }
  if (text.ends_with('x')) return false;
  std::istringstream in(text);
  for (std::string width; std::getline(in, width, 'x');) {
    Result<int64_t> n = parse_integer(width);
    if (!n.ok() || *n < 1 || *n > Way::kMostNodes) return false;
    way->widths.push_back(static_cast<int32_t>(*n));
    if (DraftShape{way->widths}.nodes(static_cast<int32_t>(way->widths.size())) > Way::kMostNodes)
      return false;
  }
  return !way->widths.empty();
}

// Weights of either sign and of magnitude 1/64 to 1/32, as BF16.
void write_random(int64_t n, std::mt19937_64* bits, std::ofstream* out) {
  std::vector<uint64_t> piece(1 << 16);
  for (int64_t bytes = 2 * n; bytes > 0;) {
    for (uint64_t& four : piece) four = ((*bits)() & 0x807F807F807F807Fu) | 0x3C803C803C803C80u;
    const int64_t now = std::min<int64_t>(bytes, static_cast<int64_t>(piece.size()) * 8);
    out->write(reinterpret_cast<const char*>(piece.data()), now);
    bytes -= now;
  }
}

// A head: a block [E, E] with its bias, and [V, E].
Status write_heads(const std::filesystem::path& folder, int64_t E, int64_t V, uint64_t seed) {
  Json header;
  int64_t at = 0;
  std::vector<int64_t> sizes;
  auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
    int64_t n = 1;
    for (int64_t d : shape) n *= d;
    header[name] = {{"dtype", "BF16"}, {"shape", shape}, {"data_offsets", {at, at + 2 * n}}};
    at += 2 * n;
    sizes.push_back(n);
  };
  for (int h = 0; h < RandomHeads::kHeads; ++h) {
    const std::string head = std::to_string(h);
    add(head + ".0.linear.weight", {E, E});
    add(head + ".0.linear.bias", {E});
    add(head + ".1.weight", {V, E});
  }
  std::ofstream config(folder / "config.json");
  config << Json{{"medusa_num_heads", RandomHeads::kHeads}, {"medusa_num_layers", 1}}.dump();
  std::ofstream out(folder / "medusa_lm_head.safetensors", std::ios::binary);
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  out.write(reinterpret_cast<const char*>(&length), sizeof(length));
  out << text;
  std::mt19937_64 bits(seed);
  for (int64_t n : sizes) write_random(n, &bits, &out);
  if (!config.flush() || !out.flush())
    return invalid(folder.string() + ": random Medusa heads cannot be written there");
  return {};
}

}  // namespace

bool Way::has(const std::string& drafter) const {
  return std::find(drafters.begin(), drafters.end(), drafter) != drafters.end();
}

int32_t Way::most_nodes(int k, int server_most) const {
  if (tree_nodes > 0) return tree_nodes;
  if (!widths.empty()) return DraftShape{widths}.nodes(static_cast<int32_t>(widths.size()));
  return k < 0 ? server_most : k;
}

std::vector<int> Way::lengths(const std::vector<int>& ks) const {
  std::vector<int> out;
  for (int k : ks) {
    if (k > 0 && !widths.empty()) k = static_cast<int>(widths.size());
    if (has("medusa")) k = std::min(k, RandomHeads::kHeads);
    if (tree_nodes > 0) k = std::min(k, tree_nodes);
    if (std::find(out.begin(), out.end(), k) == out.end()) out.push_back(k);
  }
  return out;
}

Result<Way> Way::parse(const std::string& text) {
  Way way;
  way.name = text;
  const size_t at = text.find('@');
  way.drafters = split_list(text.substr(0, at));
  if (at != std::string::npos && !read_shape(text.substr(at + 1), &way))
    return invalid("--drafters " + text + ": behind @ stand the widths of a tree, such as 3x2x1, " +
                   "or grow16; " + std::to_string(kMostNodes) + " nodes at most");
  if (way.drafters.empty()) return invalid("--drafters: a name is empty");
  if (way.drafters.size() > 1 && (way.has("self") || way.has("predicted")))
    return invalid("--drafters " + text + ": self and predicted draft alone here");
  return way;
}

std::vector<std::string> Way::all_names() { return kAll; }

void set_way(const Way& way, const WayModels& models, EngineOptions* e) {
  e->speculation = way.drafters;
  if (way.has("self")) {
    e->speculation = {"model"};
    e->drafts.push_back({"", "self"});
  }
  // Drafts where the request brings its text, whoever else is named; it names nobody else.
  if (way.has("predicted")) e->speculation = {"ngram"};
  if (way.has("model") || way.has("cascade")) e->drafts.push_back({"", models.draft});
  if (way.has("eagle")) e->drafts.push_back({"", models.head});
  if (way.has("medusa")) e->drafts.push_back({"", models.medusa});
  if (way.has("early-exit")) e->draft_layers = models.draft_layers;
}

Result<RandomHeads> RandomHeads::make(const std::string& path, uint64_t seed) {
  Result<Model> model = load_model(path, Role::kTarget, Content::kShapes);
  if (!model.ok()) return model.status();
  std::error_code failed;
  std::string folder =
      (std::filesystem::temp_directory_path(failed) / "pilotfish-heads-XXXXXX").string();
  if (failed || ::mkdtemp(folder.data()) == nullptr)
    return invalid("no folder for random Medusa heads can be made (" + folder +
                   "); set TMPDIR to one that can be written");
  RandomHeads heads{std::filesystem::path(folder)};
  if (Status s = write_heads(folder, model->config.width, model->config.vocabulary_size, seed);
      !s.ok())
    return s;
  return heads;
}

RandomHeads::~RandomHeads() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

}  // namespace pf
