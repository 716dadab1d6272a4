#include "server/log.h"

#include <spdlog/sinks/stdout_sinks.h>

#include <cstdio>
#include <nlohmann/json.hpp>

namespace pf {
namespace {

using Value = std::variant<int64_t, double, std::string>;

std::string quoted(const std::string& s) {
  // Invalid UTF-8 becomes U+FFFD, control characters become \u00XX.
  return nlohmann::json(s).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string number(double v) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.6g", v);
  return text;
}

bool is_plain(const std::string& s) {
  for (unsigned char c : s)
    if (c <= ' ' || c == '"' || c == '\\' || c == '=' || c >= 0x7f) return false;
  return !s.empty();
}

std::string print(const Value& value, bool json) {
  if (auto* i = std::get_if<int64_t>(&value)) return std::to_string(*i);
  if (auto* d = std::get_if<double>(&value)) return json && !(*d - *d == 0) ? "null" : number(*d);
  const std::string& s = std::get<std::string>(value);
  return json || !is_plain(s) ? quoted(s) : s;
}

}  // namespace

Log::Log(Format format, const std::string& level)
    : Log(format, level, std::make_shared<spdlog::sinks::stderr_sink_mt>()) {}

Log::Log(Format format, const std::string& level, spdlog::sink_ptr sink)
    : format_(format), logger_(std::make_unique<spdlog::logger>("pilotfish", std::move(sink))) {
  logger_->set_level(spdlog::level::from_str(level == "error" ? "err" : level));
  logger_->set_pattern(format == Format::kJson
                           ? R"({"time":"%Y-%m-%dT%H:%M:%S.%e%z","level":"%l",%v})"
                           : "%Y-%m-%dT%H:%M:%S.%e %-7l %v");
  logger_->flush_on(spdlog::level::info);
}

void Log::write(spdlog::level::level_enum level, std::string_view event, Fields fields) {
  if (!logger_->should_log(level)) return;
  bool json = format_ == Format::kJson;
  std::string line = json ? "\"event\":" + quoted(std::string(event)) : std::string(event);
  for (const Field& f : fields) {
    line += json ? ",\"" : " ";
    line += f.key;
    line += json ? "\":" : "=";
    line += print(f.value, json);
  }
  logger_->log(level, "{}", line);
}

}  // namespace pf
