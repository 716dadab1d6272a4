#include "server/check_request.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <string>

#include "server/text_size.h"
#include "text/stop_matcher.h"
#include "text/utf8.h"

namespace pf {
namespace {

// Remembers the first thing that is wrong. Comparisons are written so that NaN fails them.
class Border {
 public:
  explicit Border(const ServedModel& model) : model_(model) {}

  void require(bool ok, std::string_view field, const std::string& limit,
               Code code = Code::kInvalidArgument) {
    if (ok || !status_.ok()) return;
    status_ = Status(code, std::string(field) + " " + limit);
  }
  void in_range(double v, double low, double high, std::string_view field, const char* limit) {
    require(v >= low && v <= high, field, std::string("must be in ") + limit);
  }
  void token(uint32_t id, std::string_view field) {
    int64_t width = model_.info.vocabulary_size;
    require(id < width, field,
            "must be below " + std::to_string(width) + ", the width of the logits");
  }
  void take(const Status& status) {
    if (status_.ok()) status_ = status;
  }
  const ServedModel& model() const { return model_; }
  const Status& status() const { return status_; }

 private:
  const ServedModel& model_;
  Status status_;
};

bool is_role(std::string_view role) {
  return !role.empty() && role.size() <= 32 && std::all_of(role.begin(), role.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || c == '_';
  });
}

// A text that cannot fit, however well it tokenises, costs no tokenising.
void check_size(int64_t n_bytes, std::string_view field, const char* cure, Border* b) {
  const int64_t per_token = b->model().token_bytes.most, context = b->model().info.max_context;
  if (per_token == 0) return;
  b->require(n_bytes <= context * per_token, field,
             "has " + std::to_string(n_bytes) + " bytes, the context of " +
                 std::to_string(context) + " tokens of at most " + std::to_string(per_token) +
                 " bytes each cannot hold it; " + cure);
}

void check_prompt(const wire::GenerateRequest& r, Border* b) {
  using R = wire::GenerateRequest;
  b->require(r.prompt_case() != R::PROMPT_NOT_SET, "prompt",
             "is missing: set one of text, token_ids, messages");
  if (r.has_text()) b->require(!r.text().empty(), "text", "must not be empty");
  b->require(r.has_text() || !r.parse_special_tokens(), "parse_special_tokens",
             "goes with `text` only");
  if (r.has_token_ids()) {
    b->require(r.token_ids().ids_size() > 0, "token_ids.ids", "must have at least one id");
    b->require(r.add_special_tokens() == false || !r.has_add_special_tokens(), "add_special_tokens",
               "goes with `text`, not with token_ids");
    for (uint32_t id : r.token_ids().ids()) b->token(id, "token_ids.ids");
  }
  if (r.truncate_prompt_tokens() == 0)
    check_size(b->model().token_bytes.counted_in_prompt(r), r.has_messages() ? "messages" : "text",
               "shorten it or set truncate_prompt_tokens", b);
  if (!r.has_messages()) return;
  b->require(b->model().chat.has_value(), "messages",
             "cannot be used: the model has no chat template that this server knows; use text",
             Code::kFailedPrecondition);
  b->require(r.messages().messages_size() > 0, "messages.messages",
             "must have at least one message");
  for (const wire::Message& m : r.messages().messages())
    b->require(is_role(m.role()), "messages.role", "must be 1..32 of [a-z_]");
}

void check_sampling(const wire::Sampling& s, Border* b) {
  if (s.has_temperature()) b->in_range(s.temperature(), 0, 100, "sampling.temperature", "[0, 100]");
  if (s.has_top_k()) b->require(s.top_k() >= -1, "sampling.top_k", "must be >= -1 (0 and -1: off)");
  if (s.has_top_p())
    b->require(s.top_p() > 0 && s.top_p() <= 1, "sampling.top_p", "must be in (0, 1]");
  if (s.has_min_p())
    b->require(s.min_p() >= 0 && s.min_p() < 1, "sampling.min_p", "must be in [0, 1)");
  if (s.has_presence_penalty())
    b->in_range(s.presence_penalty(), -2, 2, "sampling.presence_penalty", "[-2, 2]");
  if (s.has_frequency_penalty())
    b->in_range(s.frequency_penalty(), -2, 2, "sampling.frequency_penalty", "[-2, 2]");
  if (s.has_repetition_penalty())
    b->in_range(s.repetition_penalty(), 0.01F, 2, "sampling.repetition_penalty", "[0.01, 2]");
  b->require(s.logit_bias_size() <= kMaxLogitBias, "sampling.logit_bias",
             "must have at most 300 entries");
  for (const auto& [id, bias] : s.logit_bias()) {
    b->token(id, "sampling.logit_bias");
    b->in_range(bias, -100, 100, "sampling.logit_bias", "[-100, 100]");
  }
}

void check_stopping(const wire::Stopping& s, Border* b) {
  uint32_t most = s.has_max_new_tokens()
                      ? s.max_new_tokens()
                      : static_cast<uint32_t>(b->model().default_max_new_tokens());
  b->require(s.min_new_tokens() <= most, "stopping.min_new_tokens",
             "must be <= max_new_tokens (" + std::to_string(most) + ")");
  b->require(s.stop_token_ids_size() <= kMaxStopTokenIds, "stopping.stop_token_ids",
             "must have at most 64 ids");
  for (uint32_t id : s.stop_token_ids()) b->token(id, "stopping.stop_token_ids");
  b->require(s.stop_strings_size() <= kMaxStopStrings, "stopping.stop_strings",
             "must have at most 16 strings");
  for (const std::string& stop : s.stop_strings())
    b->require(!stop.empty() && stop.size() <= kMaxStopStringBytes, "stopping.stop_strings",
               "must each have 1..256 bytes");
  if (s.has_time_limit_ms())
    b->require(s.time_limit_ms() >= 1, "stopping.time_limit_ms", "must be >= 1");
}

void check_output(const wire::Output& o, Border* b) {
  b->require(o.top_logprobs() <= kMaxTopLogprobs, "output.top_logprobs", "must be in 0..20");
  b->require(o.min_chunk_tokens() <= kMaxMinChunkTokens, "output.min_chunk_tokens",
             "must be in 0..1024");
  b->require(o.min_chunk_ms() <= kMaxMinChunkMs, "output.min_chunk_ms", "must be in 0..10000");
}

bool fits_tree(const wire::Speculation& s, int32_t max_nodes) {
  uint64_t level = 1, nodes = 0;
  for (uint32_t width : s.tree()) {
    if (width < 1 || width > static_cast<uint32_t>(kMaxTreeNodes)) return false;
    level *= width;
    nodes += level;
    if (nodes > static_cast<uint64_t>(max_nodes)) return false;
  }
  return true;
}

void check_tree(const wire::Speculation& s, Border* b) {
  const int32_t most = b->model().max_tree_nodes();
  const std::string limit = std::to_string(most) + " nodes (a row's mask has " +
                            std::to_string(kMaxTreeNodes) + ", and a step " +
                            std::to_string(b->model().max_num_batched_tokens) + " rows)";
  b->require(fits_tree(s, most), "speculation.tree",
             "must have widths >= 1, w1 + w1 w2 + ... at most " + limit);
  b->require(s.tree_size() <= kMaxDraftTokens, "speculation.tree", "must be at most 16 deep");
  b->require(s.tree_nodes() <= static_cast<uint32_t>(most), "speculation.tree_nodes",
             "must be at most " + limit);
  b->require(s.tree_nodes() == 0 || s.tree_size() == 0, "speculation.tree_nodes",
             "goes without speculation.tree");
}

bool is_resident(std::string_view drafter, const ServedModel& model) {
  const auto& known = model.info.drafters;
  return std::any_of(known.begin(), known.end(), [&](auto& d) { return d.name == drafter; });
}

void check_drafters(const wire::Speculation& s, Border* b) {
  const auto& known = b->model().info.drafters;
  for (const std::string& name : s.drafters())
    b->require(is_resident(name, b->model()), "speculation.drafters",
               "must be names that GetModelInfo lists");
  b->require(std::set(s.drafters().begin(), s.drafters().end()).size() ==
                 static_cast<size_t>(s.drafters_size()),
             "speculation.drafters", "must be named once each");
  const bool predicts =
      std::find(s.drafters().begin(), s.drafters().end(), "predicted") != s.drafters().end();
  b->require(!predicts || !s.predicted_text().empty(), "speculation.predicted_text",
             "is needed with the drafter predicted");
  bool fixed = s.mode() == wire::Speculation::FIXED;
  bool shaped = s.has_num_draft_tokens() || s.tree_size() > 0;
  b->require(!fixed || shaped, "speculation.num_draft_tokens",
             "is needed with mode FIXED (0..16), or a tree of given widths");
  bool drafts = s.tree_size() > 0 || s.num_draft_tokens() > 0;
  b->require(!(fixed && drafts) || !known.empty(), "speculation.mode",
             "FIXED cannot be honoured: this server runs without a drafter");
}

void check_speculation(const wire::Speculation& s, Border* b) {
  b->require(wire::Speculation::Mode_IsValid(s.mode()), "speculation.mode", "is unknown");
  b->require(wire::Speculation::Acceptance_IsValid(s.acceptance()), "speculation.acceptance",
             "is unknown");
  if (s.has_num_draft_tokens())
    b->require(s.num_draft_tokens() <= kMaxDraftTokens, "speculation.num_draft_tokens",
               "must be in 0..16");
  check_tree(s, b);
  check_drafters(s, b);
  const bool drafts =
      s.num_draft_tokens() > 0 || s.drafters_size() > 0 || s.tree_size() > 0 || s.tree_nodes() > 0;
  b->require(s.mode() != wire::Speculation::OFF || !drafts, "speculation.mode",
             "OFF goes without drafters, num_draft_tokens, tree and tree_nodes");
  bool threshold = s.acceptance() == wire::Speculation::THRESHOLD ||
                   s.acceptance() == wire::Speculation::THRESHOLD_LITERAL;
  if (s.has_alpha()) {
    b->require(s.alpha() > 0 && s.alpha() <= 1, "speculation.alpha", "must be in (0, 1]");
    b->require(threshold, "speculation.alpha",
               "goes with acceptance THRESHOLD or THRESHOLD_LITERAL only");
  }
  b->require(!s.dynamic_alpha() || threshold, "speculation.dynamic_alpha",
             "goes with acceptance THRESHOLD or THRESHOLD_LITERAL only");
  if (s.has_loss_budget()) {
    b->require(std::isfinite(s.loss_budget()) && s.loss_budget() >= 0, "speculation.loss_budget",
               "must be >= 0 and finite; without a limit leave it out");
    b->require(s.acceptance() == wire::Speculation::THRESHOLD, "speculation.loss_budget",
               "goes with acceptance THRESHOLD only");
  }
  if (s.predicted_text().empty()) return;
  check_size(b->model().token_bytes.counted_in(s.predicted_text()), "speculation.predicted_text",
             "shorten it", b);
  bool off =
      s.mode() == wire::Speculation::OFF || (s.has_num_draft_tokens() && s.num_draft_tokens() == 0);
  b->require(!off, "speculation.predicted_text",
             "needs drafting, which mode OFF or num_draft_tokens 0 switches off");
  b->require(is_resident("predicted", b->model()), "speculation.predicted_text",
             "cannot be honoured: this server runs without a drafter; leave it out",
             Code::kUnimplemented);
}

}  // namespace

bool is_request_id(std::string_view id) {
  return id.size() <= kMaxRequestIdBytes && std::all_of(id.begin(), id.end(), [](char c) {
           return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == ':' || c == '-';
         });
}

Status check_model_name(std::string_view name, const ServedModel& model) {
  if (name.empty() || name == model.name) return {};
  return Status(Code::kNotFound, "model: no such model here; the served one is " + model.name);
}

Status check_request(const wire::GenerateRequest& r, const ServedModel& model) {
  if (Status s = check_model_name(r.model(), model); !s.ok()) return s;
  Border b(model);
  b.require(is_request_id(r.request_id()), "request_id", "must be at most 128 of [A-Za-z0-9._:-]");
  check_prompt(r, &b);
  check_sampling(r.sampling(), &b);
  check_stopping(r.stopping(), &b);
  check_output(r.output(), &b);
  check_speculation(r.speculation(), &b);
  if (r.has_n()) b.in_range(r.n(), 1, kMaxN, "n", "1..16");
  b.in_range(r.priority(), -1000, 1000, "priority", "-1000..1000");
  b.require(r.cache_salt().size() <= kMaxCacheSaltBytes, "cache_salt", "must be at most 64 bytes");
  return b.status();
}

}  // namespace pf
