#include "server/admin_policy.h"

#include <algorithm>
#include <utility>

#include "server/served_model.h"

namespace pf {
namespace {

constexpr std::pair<const char*, LengthRule> kRules[] = {{"adaptive", LengthRule::kAdaptive},
                                                         {"window", LengthRule::kWindow},
                                                         {"rate", LengthRule::kRate},
                                                         {"fixed", LengthRule::kFixed}};

Status set_drafters(const pilotfish::v1::Policy& wanted, const EngineInfo& info,
                    EnginePolicy* policy) {
  if (wanted.drafters().empty()) return {};
  policy->drafters.clear();
  for (const std::string& name : wanted.drafters()) {
    bool known = std::any_of(info.drafters.begin(), info.drafters.end(),
                             [&](const DrafterDescription& d) { return d.name == name; });
    if (!known) return invalid("drafters must be names that GetModelInfo lists");
    if (std::find(policy->drafters.begin(), policy->drafters.end(), name) != policy->drafters.end())
      return invalid("drafters must be named once each");
    policy->drafters.push_back(name);
  }
  return {};
}

}  // namespace

Status change_policy(const pilotfish::v1::Policy& wanted, const EngineInfo& info,
                     EnginePolicy* policy) {
  EnginePolicy next = *policy;
  if (wanted.has_alpha()) {
    if (!(wanted.alpha() > 0 && wanted.alpha() <= 1)) return invalid("alpha must be in (0, 1]");
    if (wanted.dynamic_alpha())
      return invalid("alpha and dynamic_alpha exclude each other; set one of them");
    next.pinned_alpha = wanted.alpha();
  } else if (wanted.has_dynamic_alpha()) {
    next.pinned_alpha.reset();
    next.dynamic_alpha = wanted.dynamic_alpha();
  }
  if (wanted.has_draft_length()) {
    auto rule = std::find_if(std::begin(kRules), std::end(kRules),
                             [&](auto& r) { return wanted.draft_length() == r.first; });
    if (rule == std::end(kRules))
      return invalid("draft_length must be one of adaptive, window, rate, fixed");
    next.draft_length = rule->second;
  }
  if (wanted.has_num_draft_tokens()) {
    if (wanted.num_draft_tokens() > static_cast<uint32_t>(kMaxDraftTokens))
      return invalid("num_draft_tokens must be in 0.." + std::to_string(kMaxDraftTokens));
    next.num_draft_tokens = static_cast<int32_t>(wanted.num_draft_tokens());
  }
  if (wanted.has_speculation()) next.speculation = wanted.speculation();
  if (Status s = set_drafters(wanted, info, &next); !s.ok()) return s;
  *policy = std::move(next);
  return {};
}

void describe(const EnginePolicy& policy, pilotfish::v1::Policy* out) {
  bool pinned = policy.pinned_alpha.has_value();
  out->set_dynamic_alpha(!pinned && policy.dynamic_alpha);
  if (!out->dynamic_alpha()) out->set_alpha(pinned ? *policy.pinned_alpha : policy.alpha);
  for (auto [name, rule] : kRules)
    if (rule == policy.draft_length) out->set_draft_length(name);
  out->set_num_draft_tokens(static_cast<uint32_t>(policy.num_draft_tokens));
  for (const std::string& name : policy.drafters) out->add_drafters(name);
  out->set_speculation(policy.speculation);
}

}  // namespace pf
