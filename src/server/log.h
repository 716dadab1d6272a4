#pragma once

#include <spdlog/spdlog.h>

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <variant>

namespace pf {

// One line per happening, on stderr: an event's name and its fields, as text or as JSON. Any
// thread. Field values may come from a client (ids); control characters leave escaped.
class Log {
 public:
  enum class Format { kText, kJson };
  struct Field {
    std::string_view key;
    std::variant<int64_t, double, std::string> value;
  };
  using Fields = std::initializer_list<Field>;

  // `level`: trace, debug, info, warn, error, off.
  Log(Format format, const std::string& level);
  // For tests: writes to the sink instead.
  Log(Format format, const std::string& level, spdlog::sink_ptr sink);

  void debug(std::string_view event, Fields fields = {}) {
    write(spdlog::level::debug, event, fields);
  }
  void info(std::string_view event, Fields fields = {}) {
    write(spdlog::level::info, event, fields);
  }
  void warn(std::string_view event, Fields fields = {}) {
    write(spdlog::level::warn, event, fields);
  }
  void error(std::string_view event, Fields fields = {}) {
    write(spdlog::level::err, event, fields);
  }
  void flush() { logger_->flush(); }

 private:
  void write(spdlog::level::level_enum level, std::string_view event, Fields fields);

  Format format_;
  std::unique_ptr<spdlog::logger> logger_;
};

}  // namespace pf
