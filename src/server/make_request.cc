#include "server/make_request.h"

#include <algorithm>
#include <random>

namespace pf {
namespace {

Result<std::vector<int32_t>> prompt_of(const wire::GenerateRequest& r, const ServedModel& model) {
  if (r.has_token_ids())
    return std::vector<int32_t>(r.token_ids().ids().begin(), r.token_ids().ids().end());
  if (r.has_messages()) return tokens_of_messages(r.messages(), model);
  return tokens_of_text(r.text(), !r.has_add_special_tokens() || r.add_special_tokens(),
                        r.parse_special_tokens(), model);
}

// Cuts the prompt from the left where the client allows it; refuses it where it does not fit.
Status fit(const wire::GenerateRequest& r, const ServedModel& model, std::vector<int32_t>* prompt) {
  if (prompt->empty()) return invalid("prompt: no token of it is in the model's vocabulary");
  size_t keep = r.truncate_prompt_tokens();
  if (keep > 0 && prompt->size() > keep)
    prompt->erase(prompt->begin(), prompt->end() - static_cast<std::ptrdiff_t>(keep));
  if (static_cast<int64_t>(prompt->size()) <= model.info.max_context) return {};
  return invalid("prompt has " + std::to_string(prompt->size()) + " tokens, the context is " +
                 std::to_string(model.info.max_context) +
                 "; shorten it or set truncate_prompt_tokens");
}

template <class T, class U>
T pick(bool set, U value, const std::optional<T>& advised, T otherwise) {
  return set ? static_cast<T>(value) : advised.value_or(otherwise);
}

SamplingParams sampling_of(const wire::Sampling& s, const SamplingDefaults& d) {
  SamplingParams p;
  p.temperature = pick(s.has_temperature(), s.temperature(), d.temperature, 0.0f);
  p.top_k = pick(s.has_top_k(), s.top_k(), d.top_k, 0);
  p.top_p = pick(s.has_top_p(), s.top_p(), d.top_p, 1.0f);
  p.min_p = pick(s.has_min_p(), s.min_p(), d.min_p, 0.0f);
  p.presence_penalty = s.presence_penalty();
  p.frequency_penalty = s.frequency_penalty();
  p.repetition_penalty =
      pick(s.has_repetition_penalty(), s.repetition_penalty(), d.repetition_penalty, 1.0f);
  for (const auto& [id, bias] : s.logit_bias())
    p.logit_bias.emplace_back(static_cast<int32_t>(id), bias);
  std::sort(p.logit_bias.begin(), p.logit_bias.end());
  return p;
}

int32_t clamp_count(uint32_t n) { return static_cast<int32_t>(std::min<uint32_t>(n, INT32_MAX)); }

StopParams stop_of(const wire::Stopping& s, const ServedModel& model) {
  StopParams p;
  p.max_new_tokens =
      s.has_max_new_tokens() ? clamp_count(s.max_new_tokens()) : model.default_max_new_tokens();
  p.min_new_tokens = clamp_count(s.min_new_tokens());
  if (!s.ignore_eos()) p.end_ids = model.info.eos_ids;
  p.end_ids.insert(p.end_ids.end(), s.stop_token_ids().begin(), s.stop_token_ids().end());
  std::sort(p.end_ids.begin(), p.end_ids.end());
  p.end_ids.erase(std::unique(p.end_ids.begin(), p.end_ids.end()), p.end_ids.end());
  return p;
}

Acceptance rule_of(wire::Speculation::Acceptance acceptance) {
  switch (acceptance) {
    case wire::Speculation::COUPLED:
      return Acceptance::kCoupled;
    case wire::Speculation::THRESHOLD:
      return Acceptance::kThreshold;
    case wire::Speculation::THRESHOLD_LITERAL:
      return Acceptance::kThresholdLiteral;
    case wire::Speculation::TYPICAL:
      return Acceptance::kTypical;
    default:
      return Acceptance::kRejection;
  }
}

SpeculationParams speculation_of(const wire::Speculation& s) {
  using Mode = SpeculationParams::Mode;
  using Rule = SpeculationParams::Rule;
  SpeculationParams p;
  p.mode = s.mode() == wire::Speculation::AUTO    ? Mode::kAuto
           : s.mode() == wire::Speculation::OFF   ? Mode::kOff
           : s.mode() == wire::Speculation::FIXED ? Mode::kFixed
                                                  : Mode::kServer;
  p.drafters.assign(s.drafters().begin(), s.drafters().end());
  if (s.has_num_draft_tokens()) p.n_draft_tokens = static_cast<int32_t>(s.num_draft_tokens());
  if (p.n_draft_tokens == 0) p.mode = Mode::kOff;
  p.tree.assign(s.tree().begin(), s.tree().end());
  p.tree_nodes = static_cast<int32_t>(s.tree_nodes());
  p.rule = s.acceptance() == wire::Speculation::ACCEPTANCE_UNSPECIFIED ? Rule::kServer
           : s.acceptance() == wire::Speculation::ACCEPT_AUTO          ? Rule::kAuto
                                                                       : Rule::kNamed;
  p.policy.rule = rule_of(s.acceptance());
  p.has_alpha = s.has_alpha();
  if (s.has_alpha()) p.policy.alpha = s.alpha();
  p.dynamic_alpha = s.dynamic_alpha();
  if (s.has_loss_budget()) p.policy.loss_budget = s.loss_budget();
  return p;
}

// The tokens of the predicted text. A beginning of the answer stands there, so no special ones.
Result<std::vector<int32_t>> predicted_of(const std::string& text, const ServedModel& model) {
  Result<std::vector<int32_t>> tokens = tokens_of_text(text, false, false, model);
  if (!tokens.ok()) return tokens.status().within("speculation.predicted_text");
  int64_t n = static_cast<int64_t>(tokens->size());
  if (n <= model.info.max_context) return tokens;
  return invalid("speculation.predicted_text has " + std::to_string(n) +
                 " tokens, the context is " + std::to_string(model.info.max_context) +
                 "; shorten it");
}

uint64_t random_seed() {
  std::random_device device;
  return static_cast<uint64_t>(device()) << 32 | device();
}

void seed_request(const wire::Sampling& s, const ServedModel& model, Request* r) {
  r->has_seed = s.has_seed() || model.seed != 0;
  r->seed = s.has_seed() ? s.seed() : model.seed != 0 ? model.seed : random_seed();
}

AnswerOptions answer_of(const wire::GenerateRequest& r, const ServedModel& model,
                        const Request& request, StopMatcher stops) {
  const wire::Output& o = r.output();
  AnswerOptions a;
  a.stops = std::move(stops);
  a.n_prompt = static_cast<int64_t>(request.prompt.size());
  if (o.prompt_logprobs()) a.prompt = request.prompt;
  a.n = request.n;
  a.seed = request.seed;
  a.include_stop_string = r.stopping().include_stop_string();
  a.min_new_tokens = request.stop.min_new_tokens;
  if (!r.stopping().ignore_eos()) a.eos_ids = model.info.eos_ids;
  a.token_ids = o.token_ids();
  a.logprobs = request.output.logprobs;
  a.token_origins = o.token_origins();
  a.timing = o.timing();
  a.min_chunk_tokens = static_cast<int32_t>(o.min_chunk_tokens());
  a.min_chunk_us = int64_t{o.min_chunk_ms()} * 1000;
  for (const DrafterDescription& d : model.info.drafters) a.drafter_names.push_back(d.name);
  return a;
}

}  // namespace

Result<std::vector<int32_t>> tokens_of_text(const std::string& text, bool add_special,
                                            bool parse_special, const ServedModel& model) {
  EncodeOptions options;
  options.add_special = add_special;
  options.parse_special = parse_special;
  return model.tokenizer.encode(text, options);
}

Result<std::vector<int32_t>> tokens_of_messages(const wire::Messages& messages,
                                                const ServedModel& model) {
  std::vector<ChatMessage> chat;
  for (const wire::Message& m : messages.messages()) chat.push_back({m.role(), m.content()});
  return model.chat->render(chat, model.tokenizer, true);
}

Result<PreparedRequest> make_request(const wire::GenerateRequest& r, const ServedModel& model,
                                     int64_t arrival_us) {
  const auto& strings = r.stopping().stop_strings();
  Result<StopMatcher> stops = StopMatcher::create({strings.begin(), strings.end()});
  if (!stops.ok()) return stops.status().within("stopping");
  Result<std::vector<int32_t>> prompt = prompt_of(r, model);
  if (!prompt.ok()) return prompt.status();
  if (Status s = fit(r, model, &*prompt); !s.ok()) return s;

  auto request = std::make_unique<Request>();
  request->prompt = prompt.take();
  request->sampling = sampling_of(r.sampling(), model.defaults);
  request->stop = stop_of(r.stopping(), model);
  request->speculation = speculation_of(r.speculation());
  if (const std::string& text = r.speculation().predicted_text(); !text.empty()) {
    Result<std::vector<int32_t>> predicted = predicted_of(text, model);
    if (!predicted.ok()) return predicted.status();
    request->speculation.predicted = predicted.take();
  }
  const wire::Output& o = r.output();
  request->output = {o.logprobs() || o.top_logprobs() > 0, static_cast<int32_t>(o.top_logprobs()),
                     o.prompt_logprobs()};
  request->n = r.has_n() ? static_cast<int32_t>(r.n()) : 1;
  seed_request(r.sampling(), model, request.get());
  request->priority = r.priority();
  request->arrival_us = arrival_us;
  if (r.stopping().has_time_limit_ms())
    request->time_limit_us = arrival_us + int64_t{r.stopping().time_limit_ms()} * 1000;
  request->cache_salt = r.cache_salt();
  AnswerOptions answer = answer_of(r, model, *request, stops.take());
  return PreparedRequest{std::move(request), std::move(answer)};
}

}  // namespace pf
