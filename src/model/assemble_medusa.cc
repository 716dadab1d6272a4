#include "model/assemble_medusa.h"

#include <algorithm>
#include <charconv>

#include "model/json_file.h"
#include "model/pile.h"

namespace pf {
namespace {

constexpr size_t kMostConfigBytes = 1 << 20;
constexpr int64_t kMostHeads = 16, kMostBlocks = 16;
constexpr std::string_view kPrefix = "medusa_head.";

// The number in front of the next dot; -1: there is none that a head could have.
int64_t leading_number(std::string_view* name) {
  int64_t value = -1;
  auto [end, error] = std::from_chars(name->data(), name->data() + name->size(), value);
  if (error != std::errc() || value < 0 || value >= INT32_MAX) return -1;
  if (end == name->data() + name->size() || *end != '.') return -1;
  *name = name->substr(static_cast<size_t>(end - name->data()) + 1);
  return value;
}

struct Sizes {
  int64_t n_heads = 0, n_blocks = 0;
};

// Of the names alone.
Sizes sizes_in(const std::vector<Tensor>& tensors) {
  Sizes s;
  for (const Tensor& t : tensors) {
    std::string_view rest = t.name;
    int64_t head = leading_number(&rest), block = head < 0 ? -1 : leading_number(&rest);
    if (block < 0) continue;
    s.n_heads = std::max(s.n_heads, head + 1);
    if (rest == "linear.weight" || rest == "linear.bias")
      s.n_blocks = std::max(s.n_blocks, block + 1);
  }
  return s;
}

// Takes what heads are made of, and remembers what is wrong with it.
class Taker {
 public:
  explicit Taker(std::vector<Tensor> tensors) : pile_(std::move(tensors)) {}

  void take(const std::string& name, std::vector<int64_t> shape, Tensor* out) {
    const bool there = pile_.has(name);
    if (Status s = pile_.take_weight(name, std::move(shape), out); !s.ok())
      add(there ? &wrong_ : &missing_, there ? s.message() : name);
  }
  // What is missing, what is wrong, what nobody took.
  std::string verdict() const {
    std::string all;
    if (!missing_.empty()) all = "tensors are missing: " + missing_;
    if (!wrong_.empty()) all += (all.empty() ? "" : "; ") + wrong_;
    if (std::string extra = pile_.leftover(); all.empty() && !extra.empty())
      all = "tensor '" + extra + "' is no part of Medusa heads";
    return all;
  }

 private:
  static void add(std::string* list, const std::string& item) {
    constexpr size_t kMostListed = 1000;  // bytes
    if (list->size() < kMostListed) *list += (list->empty() ? "" : ", ") + item;
  }

  Pile pile_;
  std::string missing_, wrong_;
};

Status read_sizes(std::string_view config_json, Sizes* sizes) {
  if (!config_json.empty()) {
    auto config = parse_json(config_json, kMostConfigBytes);
    if (!config.ok()) return config.status().within("config.json");
    JsonKeys keys(*config);
    sizes->n_heads = std::max(sizes->n_heads, keys.integer("medusa_num_heads", 0));
    sizes->n_blocks = std::max(sizes->n_blocks, keys.integer("medusa_num_layers", 0));
    if (!keys.status().ok()) return keys.status().within("config.json");
  }
  if (sizes->n_heads >= 1 && sizes->n_heads <= kMostHeads && sizes->n_blocks >= 1 &&
      sizes->n_blocks <= kMostBlocks)
    return {};
  return invalid("Medusa heads: 1.." + std::to_string(kMostHeads) + " heads of 1.." +
                 std::to_string(kMostBlocks) + " blocks are served, the file has " +
                 std::to_string(sizes->n_heads) + " of " + std::to_string(sizes->n_blocks));
}

}  // namespace

bool is_medusa_config(std::string_view config_json) {
  auto config = parse_json(config_json, kMostConfigBytes);
  return config.ok() && config->is_object() && config->contains("medusa_num_heads");
}

Result<Model> assemble_medusa(std::vector<Tensor> tensors, std::string_view config_json,
                              ModelStorage storage) {
  for (Tensor& t : tensors)
    if (t.name.starts_with(kPrefix)) t.name = t.name.substr(kPrefix.size());
  Sizes sizes = sizes_in(tensors);
  if (Status s = read_sizes(config_json, &sizes); !s.ok()) return s;
  const std::string last = "." + std::to_string(sizes.n_blocks) + ".weight";
  Model m;
  m.head_kind = HeadKind::kMedusa;
  m.storage = std::move(storage);
  ModelConfig& c = m.config;
  c.architecture = "medusa";
  for (const Tensor& t : tensors) {  // of any head: the others must agree
    if (!t.name.ends_with(last) || t.shape.size() != 2) continue;
    c.vocabulary_size = c.n_tokens = t.rows();
    c.width = t.cols();
  }
  c.max_context = INT32_MAX;  // they see no positions
  Taker taker(std::move(tensors));
  for (int64_t i = 0; i < sizes.n_heads; ++i) {
    MedusaHead& head = m.medusa.emplace_back();
    const std::string name = std::to_string(i);
    for (int64_t j = 0; j < sizes.n_blocks; ++j) {
      MedusaBlock& block = head.blocks.emplace_back();
      const std::string linear = name + "." + std::to_string(j) + ".linear.";
      taker.take(linear + "weight", {c.width, c.width}, &block.w);
      taker.take(linear + "bias", {c.width}, &block.bias);
    }
    taker.take(name + last, {c.vocabulary_size, c.width}, &head.out);
  }
  if (std::string wrong = taker.verdict(); !wrong.empty()) return invalid(wrong);
  return m;
}

}  // namespace pf
