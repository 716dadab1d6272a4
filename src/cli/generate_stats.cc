#include "cli/generate_stats.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "cli/line.h"

namespace pf {
namespace {

// Tokens per second behind the first one.
double rate_of(const pilotfish::v1::Completion& c) {
  double seconds = 1e-6 * static_cast<double>(c.finish().timing().decode_us());
  return seconds > 0 && c.num_tokens() > 1 ? (c.num_tokens() - 1) / seconds : 0;
}

}  // namespace

GenerateStats stats_of(const pilotfish::v1::Completion& with,
                       const pilotfish::v1::Completion& without) {
  GenerateStats s;
  const pilotfish::v1::Finish& finish = with.finish();
  const pilotfish::v1::SpeculationStats& spec = finish.speculation();
  s.n_tokens = with.num_tokens();
  s.n_prompt = finish.num_prompt_tokens();
  s.tokens_per_s = rate_of(with);
  s.plain_tokens_per_s = rate_of(without);
  s.rounds = spec.rounds();
  s.drafted = spec.drafted_tokens();
  s.accepted = spec.accepted_tokens();
  s.drafted_at.assign(spec.drafted_per_position().begin(), spec.drafted_per_position().end());
  s.accepted_at.assign(spec.accepted_per_position().begin(), spec.accepted_per_position().end());
  for (const auto& [name, rounds] : spec.rounds_per_drafter())
    s.rounds_of.emplace_back(name, rounds);
  std::sort(s.rounds_of.begin(), s.rounds_of.end());
  s.same_text = with.text() == without.text();
  return s;
}

std::string plain_text(const GenerateStats& s) {
  std::string text;
  text += line("tokens           %u behind a prompt of %u\n", s.n_tokens, s.n_prompt);
  if (s.n_tokens > 1)
    text += line("speed            %.1f tokens/s, %.1f with K = 0\n", s.tokens_per_s,
                 s.plain_tokens_per_s);
  else
    text += "speed            none to tell: there is no token behind the first\n";
  if (s.has_speedup())
    text +=
        line("speed-up         %.2f, of one run of %u tokens each way\n", s.speedup(), s.n_tokens);
  else if (s.n_tokens > 1)
    text += "speed-up         none: nothing was drafted, so both ways did the same\n";
  text += line("accepted length  %.2f tokens per target pass (%u passes)\n", s.accepted_length(),
               s.rounds);
  text += line("acceptance       %.2f (%u of %u drafted tokens)\n", s.acceptance(), s.accepted,
               s.drafted);
  text += line("K chosen         %.2f in %u of %u passes\n", s.draft_length(), s.drafting_rounds(),
               s.rounds);
  text += "by position     ";
  for (size_t i = 0; i < s.drafted_at.size() && s.drafted_at[i] > 0; ++i)
    text +=
        line(" %.2f", i < s.accepted_at.size() ? double(s.accepted_at[i]) / s.drafted_at[i] : 0);
  text += "\nrounds by drafter";
  for (const auto& [name, rounds] : s.rounds_of) text += line(" %s %u", name.c_str(), rounds);
  text += line("\ntext             %s that of K = 0\n", s.same_text ? "equal to" : "differs from");
  return text;
}

std::string json_text(const GenerateStats& s) {
  nlohmann::json j = {{"num_tokens", s.n_tokens},
                      {"num_prompt_tokens", s.n_prompt},
                      {"tokens_per_s", s.tokens_per_s},
                      {"plain_tokens_per_s", s.plain_tokens_per_s},
                      {"speedup", s.has_speedup() ? nlohmann::json(s.speedup()) : nullptr},
                      {"runs_each_way", 1},
                      {"accepted_length", s.accepted_length()},
                      {"acceptance", s.acceptance()},
                      {"rounds", s.rounds},
                      {"draft_length", s.draft_length()},
                      {"drafted_per_position", s.drafted_at},
                      {"accepted_per_position", s.accepted_at},
                      {"same_text", s.same_text}};
  for (const auto& [name, rounds] : s.rounds_of) j["rounds_per_drafter"][name] = rounds;
  return j.dump();
}

}  // namespace pf
