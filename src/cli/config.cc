#include "cli/config.h"

#include <toml++/toml.h>

#include <algorithm>
#include <sstream>

#include "base/files.h"
#include "cli/parse_value.h"

namespace pf {
namespace {

constexpr std::string_view kPrefix = "PILOTFISH_";

// ..._PORT_50051_TCP and what may follow it.
bool is_kubernetes_port(std::string_view name) {
  size_t at = name.find("_PORT_");
  if (at == std::string_view::npos) return false;
  std::string_view rest = name.substr(at + 6);
  size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  if (digits == 0) return false;
  rest.remove_prefix(digits);
  for (std::string_view protocol : {"_TCP", "_UDP", "_SCTP"})
    for (std::string_view end : {"", "_ADDR", "_PORT", "_PROTO"})
      if (rest == std::string(protocol).append(end)) return true;
  return false;
}

// Kubernetes puts such variables into every container beside a Service called pilotfish or
// pilotfish-something.
bool is_kubernetes_variable(std::string_view name, std::string_view value) {
  return name.ends_with("_SERVICE_HOST") || name.ends_with("_SERVICE_PORT") ||
         name.find("_SERVICE_PORT_") != std::string_view::npos || is_kubernetes_port(name) ||
         (name.ends_with("_PORT") && value.find("://") != std::string_view::npos);
}

std::string toml_quoted(const std::string& s) {
  std::ostringstream out;
  out << toml::value<std::string>(s);
  return out.str();
}

std::vector<std::string> split_values(const std::string& printed) {
  std::vector<std::string> values;
  std::istringstream in(printed);
  for (std::string value; std::getline(in, value, kBetweenValues);) values.push_back(value);
  return values;
}

std::string toml_value(const Option& option, const std::string& value) {
  if (option.kind == Option::Kind::kNumber || option.kind == Option::Kind::kSwitch) return value;
  if (option.kind == Option::Kind::kText) return toml_quoted(value);
  std::string list;
  for (const std::string& item : option.repeatable ? split_values(value) : split_list(value))
    list += (list.empty() ? "" : ", ") + toml_quoted(item);
  return "[" + list + "]";
}

// A scalar as the flag would be written; nothing for a table, a date and the like.
std::optional<std::string> scalar_text(const toml::node& node) {
  if (auto text = node.value_exact<std::string>()) return *text;
  if (auto on = node.value_exact<bool>()) return *on ? "true" : "false";
  if (auto n = node.value_exact<int64_t>()) return std::to_string(*n);
  if (auto x = node.value_exact<double>()) return print_number(*x);
  return std::nullopt;
}

std::optional<std::vector<std::string>> file_values(const Option& option, const toml::node& node) {
  std::vector<std::string> values;
  if (const toml::array* array = node.as_array(); array != nullptr) {
    if (option.kind != Option::Kind::kList) return std::nullopt;
    for (const toml::node& item : *array) {
      std::optional<std::string> text = scalar_text(item);
      if (!text) return std::nullopt;
      values.push_back(*text);
    }
    if (!option.repeatable) values = {join_list(values)};
    return values;
  }
  std::optional<std::string> text = scalar_text(node);
  if (!text) return std::nullopt;
  values.push_back(*text);
  return values;
}

}  // namespace

void Config::declare(CLI::App* command, Option::Scope scope) {
  scope_ = scope;
  help_ = "pilotfish " + (command->get_name().empty() ? "serve" : command->get_name()) + " --help";
  for (const Option& o : option_table()) {
    if (o.scope == Option::Scope::kServe && scope != Option::Scope::kServe) continue;
    std::string help = o.help;
    std::string otherwise = o.get(Settings());
    if (!otherwise.empty()) help += " [" + otherwise + "]";
    CLI::Option* declared;
    if (o.kind == Option::Kind::kSwitch) {
      declared = command->add_flag_callback(
          "--" + o.name, [this, &o] { switches_[o.name] = true; }, help);
      command
          ->add_flag_callback(
              "--no-" + o.name, [this, &o] { switches_[o.name] = false; }, "The opposite")
          ->group(o.group);
    } else {
      std::string names = "--" + o.name + (o.name == "draft" ? ",--draft-model" : "");
      declared = command->add_option(names, flags_[o.name], help)
                     ->expected(1)
                     ->allow_extra_args(false)
                     ->type_name(o.values)
                     ->multi_option_policy(o.repeatable ? CLI::MultiOptionPolicy::TakeAll
                                                        : CLI::MultiOptionPolicy::TakeLast);
    }
    declared->group(o.group);
  }
  command->add_option("--config", file_, "A TOML file with the same keys")
      ->type_name("FILE")
      ->group("Configuration");
  command->add_flag("--print-config", print_, "Print each value and where it came from, and end")
      ->group("Configuration");
}

const Option* Config::find(const std::string& name) const {
  for (const Option& o : option_table())
    if (o.name == name || (name == "draft-model" && o.name == "draft")) return &o;
  return nullptr;
}

Status Config::resolve(const char* const* environment) {
  std::string file = file_, named_by = "--config";
  for (const char* const* e = environment; *e != nullptr && file.empty(); ++e)
    if (std::string_view(*e).starts_with("PILOTFISH_CONFIG=")) {
      file = std::string(*e).substr(17);
      named_by = "PILOTFISH_CONFIG";
    }
  // From the lowest rank up: what comes later replaces what came before.
  if (!file.empty())
    if (Status s = read_file(file); !s.ok()) return s.within(named_by);
  if (Status s = read_environment(environment); !s.ok()) return s;
  for (const auto& [name, values] : flags_)
    if (!values.empty()) given_[name] = {values, "flag", "--" + name};
  for (const auto& [name, on] : switches_)
    given_[name] = {{on ? "true" : "false"}, "flag", "--" + name};
  for (const Option& o : option_table()) {
    auto it = given_.find(o.name);
    if (it == given_.end()) continue;
    for (const std::string& value : it->second.values)
      if (Status s = o.set(value, &settings_); !s.ok()) return s.within(it->second.where);
  }
  return {};
}

Status Config::read_environment(const char* const* environment) {
  for (const char* const* e = environment; *e != nullptr; ++e) {
    std::string text = *e;
    size_t equals = text.find('=');
    if (!text.starts_with(kPrefix) || equals == std::string::npos) continue;
    std::string variable = text.substr(0, equals), value = text.substr(equals + 1);
    if (variable == "PILOTFISH_CONFIG") continue;
    std::string name;
    for (char c : variable.substr(kPrefix.size()))
      name += c == '_' ? '-' : static_cast<char>(std::tolower(c));
    const Option* option = find(name);
    if (option == nullptr && is_kubernetes_variable(variable, value)) {
      ignored_.push_back(variable);
      continue;
    }
    if (option == nullptr) return invalid(variable + ": no such setting; see " + help_);
    bool list = option->repeatable;
    given_[option->name] = {list ? split_list(value) : std::vector<std::string>{value},
                            "environment " + variable, variable};
  }
  return {};
}

Status Config::read_file(const std::string& path) {
  Result<std::string> text = pf::read_whole_file(path, kMaxConfigurationBytes);
  if (!text.ok()) return text.status();
  toml::table parsed;
  try {
    parsed = toml::parse(*text, path);
  } catch (const toml::parse_error& e) {
    std::string line = e.source().begin.line ? ":" + std::to_string(e.source().begin.line) : "";
    std::string what(e.description());
    return invalid(path + line + ": " + what.substr(0, what.find('\n')));
  }
  for (const auto& [key, node] : parsed) {
    std::string name(key.str());
    std::string where = path + ":" + std::to_string(node.source().begin.line) + ": " + name;
    const Option* option = find(name);
    if (option == nullptr) return invalid(where + ": no such setting; see " + help_);
    std::optional<std::vector<std::string>> values = file_values(*option, node);
    if (!values) return invalid(where + ": cannot be of this type; see " + help_);
    given_[option->name] = {*values, "file " + path, where};
  }
  return {};
}

std::string Config::print() const {
  std::string text;
  for (const Option& o : option_table()) {
    if (o.scope == Option::Scope::kServe && scope_ != Option::Scope::kServe) continue;
    auto it = given_.find(o.name);
    text += o.name + " = " + toml_value(o, o.get(settings_)) + "  # " +
            (it == given_.end() ? "default" : it->second.origin) + "\n";
  }
  return text;
}

}  // namespace pf
