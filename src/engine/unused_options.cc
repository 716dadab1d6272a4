#include "engine/unused_options.h"

#include <algorithm>

#include "engine/drafter_names.h"

namespace pf {
namespace {

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ",") + word;
  return text.empty() ? "off" : text;
}

// Of draft models and heads, where none drafts.
void add_draft_options(const EngineOptions& o, std::vector<std::string>* out) {
  const EngineOptions otherwise;
  const std::string why =
      needs_drafts(o) ? ": no --draft is given"
                      : ": --speculation " + joined(o.speculation) + " has no use for a draft";
  if (!needs_drafts(o))
    for (const DraftOption& d : o.drafts)
      out->push_back("--draft " + d.path + why + "; it is not opened");
  if (needs_drafts(o) && !o.drafts.empty()) return;
  auto add = [&](bool is_set, const std::string& flag) {
    if (is_set) out->push_back(flag + why);
  };
  add(o.draft_device != otherwise.draft_device, "--draft-device " + o.draft_device);
  add(o.draft_quantization != otherwise.draft_quantization,
      "--draft-quantization " + o.draft_quantization);
  add(o.draft_rope_theta > 0, "--draft-rope-theta");
  add(!o.draft_lora.empty(), "--draft-lora " + o.draft_lora);
  add(o.max_prefix_len != otherwise.max_prefix_len,
      "--max-prefix-len " + std::to_string(o.max_prefix_len));
}

}  // namespace

std::vector<std::string> unused_options(const EngineOptions& o) {
  std::vector<std::string> out;
  add_draft_options(o, &out);
  const bool self = needs_drafts(o) && std::any_of(o.drafts.begin(), o.drafts.end(),
                                                   [](auto& d) { return d.path == "self"; });
  if (o.draft_layers > 0 && !wants(o, "early-exit") && !self)
    out.push_back("--draft-layers " + std::to_string(o.draft_layers) +
                  ": it is of --speculation early-exit and of --draft self");
  if (is_off(o) || o.num_speculative_tokens == 0) {
    const std::string why = is_off(o) ? ": --speculation off drafts nothing"
                                      : ": --num-speculative-tokens 0 drafts nothing";
    if (!o.speculation_tree.empty()) out.push_back("--speculation-tree" + why);
    if (o.speculation_tree_nodes > 0) out.push_back("--speculation-tree-nodes" + why);
    if (o.num_speculative_tokens > 0) out.push_back("--num-speculative-tokens" + why);
  }
  const bool plain_draft = needs_drafts(o) && !o.drafts.empty() && o.draft_quantization == "none";
  if (o.dtype == "fp32" && o.quantization != "none" && !plain_draft)
    out.push_back("--dtype fp32: --quantization " + o.quantization +
                  " is how the weights are held, and the CPU computes with them as they are");
  return out;
}

}  // namespace pf
