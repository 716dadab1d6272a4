#include "cli/plan_flags.h"

#include <algorithm>

#include "cli/draft_tokens.h"
#include "cli/load_text.h"
#include "cli/option_table.h"
#include "cli/parse_value.h"
#include "engine/load.h"

namespace pf {
namespace {

Status set_flag(const std::string& name, const std::string& value, Settings* settings) {
  const std::vector<Option>& table = option_table();
  auto option = std::find_if(table.begin(), table.end(), [&](const Option& o) {
    return o.name == name && o.scope == Option::Scope::kEngine;
  });
  if (option == table.end())
    return invalid("flags must be engine options without dashes in front, such as max-model-len");
  if (!option->repeatable) return option->set(value, settings).within("flags: " + name);
  settings->engine.drafts.clear();  // the one that may be repeated
  for (const std::string& item : split_list(value))
    if (Status s = option->set(item, settings); !s.ok()) return s.within("flags: " + name);
  return {};
}

}  // namespace

Result<MemoryFigures> plan_with_flags(const Settings& settings,
                                      const std::map<std::string, std::string>& flags) {
  Settings changed = settings;
  for (const auto& [name, value] : flags)
    if (Status s = set_flag(name, value, &changed); !s.ok()) return s;
  EngineOptions& o = changed.engine;
  Result<ModelText> text = load_target_text(o.model);
  if (!text.ok()) return text.status();
  if (Status s = read_draft_tokens(text->tokenizer, &o); !s.ok()) return s;
  return plan_engine(o);
}

}  // namespace pf
