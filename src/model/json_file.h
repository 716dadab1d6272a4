#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "base/status.h"

namespace pf {

// Parses JSON that may be hostile: nested at most 64 deep, no key twice in one object, at most
// `most_bytes` long. Never throws.
Result<nlohmann::json> parse_json(std::string_view text, size_t most_bytes);

// A word of a file, fit to be shown in one line: its first 80 bytes, others than printable ASCII as
// question marks.
std::string shown(std::string_view word);

// Reads keys of one JSON object and remembers the first that is wrong, so that the caller checks
// once. A null counts as absent.
class JsonKeys {
 public:
  // `object` must outlive this; something that is no object is an error at once.
  explicit JsonKeys(const nlohmann::json& object, std::string where = "");

  const nlohmann::json* find(const std::string& key) const;
  bool has(const std::string& key) const { return find(key) != nullptr; }
  bool is_null(const std::string& key) const;

  int64_t integer(const std::string& key, int64_t otherwise);
  double number(const std::string& key, double otherwise);
  bool boolean(const std::string& key, bool otherwise);
  std::string text(const std::string& key, const std::string& otherwise);
  int64_t need_integer(const std::string& key);
  double need_number(const std::string& key);

  void fail(const std::string& key, const std::string& what);
  const Status& status() const { return status_; }

 private:
  const nlohmann::json* object_;
  std::string where_;
  Status status_;
};

// An integer that fits, of a JSON value; false otherwise.
bool get_integer(const nlohmann::json& value, int64_t* out);

}  // namespace pf
