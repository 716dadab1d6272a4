#include "server/model_calls.h"

#include "server/make_request.h"
#include "text/detokenizer.h"
#include "text/utf8.h"

namespace pf {

Status tokenize(const wire::TokenizeRequest& r, const ServedModel& model,
                wire::TokenizeResponse* response) {
  if (r.input_case() == wire::TokenizeRequest::INPUT_NOT_SET)
    return invalid("input is missing: set one of text, messages");
  if (r.has_messages()) {
    wire::GenerateRequest as_prompt;
    *as_prompt.mutable_messages() = r.messages();
    as_prompt.set_truncate_prompt_tokens(1);  // what does not fit may be counted
    if (Status s = check_request(as_prompt, model); !s.ok()) return s;
  }
  Result<std::vector<int32_t>> ids =
      r.has_messages()
          ? tokens_of_messages(r.messages(), model)
          : tokens_of_text(r.text(), !r.has_add_special_tokens() || r.add_special_tokens(),
                           r.parse_special_tokens(), model);
  if (!ids.ok()) return ids.status();
  response->set_max_context(static_cast<uint32_t>(model.info.max_context));
  for (int32_t id : *ids) {
    response->add_ids(static_cast<uint32_t>(id));
    // A piece may be part of a code point: what is no text is shown as U+FFFD.
    response->add_pieces(to_valid_utf8(model.tokenizer.bytes(id)));
  }
  return {};
}

Status detokenize(const wire::DetokenizeRequest& r, const ServedModel& model,
                  wire::DetokenizeResponse* response) {
  int64_t width = model.info.vocabulary_size;
  for (uint32_t id : r.ids())
    if (id >= width)
      return invalid("ids must be below " + std::to_string(width) + ", the width of the logits");
  Detokenizer detokenizer(model.tokenizer,
                          {.skip_special = r.skip_special_tokens(), .at_text_start = true});
  std::string text;
  for (uint32_t id : r.ids()) detokenizer.append(static_cast<int32_t>(id), &text);
  text += detokenizer.flush(Detokenizer::Cut::kDrop);
  response->set_text(std::move(text));
  return {};
}

void describe(const ServedModel& model, wire::ModelInfo* out) {
  const EngineInfo& info = model.info;
  out->set_model(model.name);
  out->set_architecture(info.architecture);
  out->set_vocabulary_size(static_cast<uint32_t>(model.tokenizer.size()));
  out->set_logits_width(static_cast<uint32_t>(info.vocabulary_size));
  out->set_max_context(static_cast<uint32_t>(info.max_context));
  for (int32_t id : info.eos_ids) out->add_eos_token_ids(static_cast<uint32_t>(id));
  out->set_default_max_new_tokens(static_cast<uint32_t>(model.default_max_new_tokens()));
  out->set_max_request_bytes(kMaxRequestBytes);
  out->set_dtype(info.dtype);
  out->set_device(info.device);
  if (model.chat) out->set_chat_template(std::string(model.chat->name()));
  for (const DrafterDescription& d : info.drafters) {
    wire::DrafterInfo* drafter = out->add_drafters();
    drafter->set_name(d.name);
    drafter->set_kind(d.kind);
    drafter->set_quantization(d.quantization);
    drafter->set_max_context(static_cast<uint32_t>(d.max_context));
    drafter->set_step_cost_ratio(d.step_cost_ratio);
  }
  wire::Limits* limits = out->mutable_limits();
  limits->set_max_num_seqs(static_cast<uint32_t>(model.max_num_seqs));
  limits->set_max_num_batched_tokens(static_cast<uint32_t>(model.max_num_batched_tokens));
  limits->set_max_queue(static_cast<uint32_t>(model.max_queue));
  limits->set_max_stop_strings(kMaxStopStrings);
  limits->set_max_stop_token_ids(kMaxStopTokenIds);
  limits->set_max_logit_bias(kMaxLogitBias);
  limits->set_max_n(kMaxN);
  limits->set_max_top_logprobs(kMaxTopLogprobs);
  limits->set_max_draft_tokens(kMaxDraftTokens);
  limits->set_max_tree_nodes(static_cast<uint32_t>(model.max_tree_nodes()));
}

}  // namespace pf
