#include "model/json_file.h"

#include <limits>
#include <unordered_set>
#include <vector>

namespace pf {
namespace {

using nlohmann::json;

constexpr size_t kMostDepth = 64;

// A first pass without a tree: finds what would make the second one dear or ambiguous.
class Guard : public nlohmann::json_sax<json> {
 public:
  std::string why;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool start_array(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool end_array() override { return leave(); }
  bool key(string_t& name) override {
    if (keys_.back().insert(name).second) return true;
    why = "the JSON key '" + shown(name) + "' stands twice in one object";
    return false;
  }
  bool parse_error(size_t at, const std::string&, const json::exception&) override {
    why = "it is not valid JSON (near byte " + std::to_string(at) + ")";
    return false;
  }

 private:
  bool enter() {
    keys_.emplace_back();
    if (keys_.size() <= kMostDepth) return true;
    why = "its JSON is nested more than " + std::to_string(kMostDepth) + " deep";
    return false;
  }
  bool leave() {
    keys_.pop_back();
    return true;
  }

  std::vector<std::unordered_set<std::string>> keys_;  // of the open objects and arrays
};

}  // namespace

std::string shown(std::string_view word) {
  std::string out;
  for (char c : word.substr(0, 80)) out += c >= ' ' && c <= '~' ? c : '?';
  return out;
}

Result<json> parse_json(std::string_view text, size_t most_bytes) {
  if (text.size() > most_bytes) {
    return invalid("its JSON has " + std::to_string(text.size()) + " bytes; the limit is " +
                   std::to_string(most_bytes));
  }
  Guard guard;
  if (!json::sax_parse(text.begin(), text.end(), &guard)) return invalid(guard.why);
  json value = json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (value.is_discarded()) return invalid("it is not valid JSON");
  return value;
}

bool get_integer(const json& value, int64_t* out) {
  if (value.is_number_unsigned()) {
    auto v = value.get<uint64_t>();
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return false;
    *out = static_cast<int64_t>(v);
    return true;
  }
  if (!value.is_number_integer()) return false;
  *out = value.get<int64_t>();
  return true;
}

JsonKeys::JsonKeys(const json& object, std::string where)
    : object_(&object), where_(std::move(where)) {
  if (!object.is_object()) {
    status_ =
        invalid(where_.empty() ? "it is no JSON object" : "key '" + where_ + "' is no object");
  }
}

const json* JsonKeys::find(const std::string& key) const {
  if (!object_->is_object()) return nullptr;
  auto at = object_->find(key);
  return at == object_->end() || at->is_null() ? nullptr : &*at;
}

bool JsonKeys::is_null(const std::string& key) const {
  return object_->is_object() && object_->contains(key) && (*object_)[key].is_null();
}

int64_t JsonKeys::integer(const std::string& key, int64_t otherwise) {
  const json* v = find(key);
  if (v == nullptr) return otherwise;
  int64_t out = 0;
  if (!get_integer(*v, &out)) fail(key, "must be an integer");
  return out;
}

double JsonKeys::number(const std::string& key, double otherwise) {
  const json* v = find(key);
  if (v == nullptr) return otherwise;
  if (v->is_number()) return v->get<double>();
  fail(key, "must be a number");
  return otherwise;
}

bool JsonKeys::boolean(const std::string& key, bool otherwise) {
  const json* v = find(key);
  if (v == nullptr) return otherwise;
  if (v->is_boolean()) return v->get<bool>();
  fail(key, "must be true or false");
  return otherwise;
}

std::string JsonKeys::text(const std::string& key, const std::string& otherwise) {
  const json* v = find(key);
  if (v == nullptr) return otherwise;
  if (v->is_string()) return v->get<std::string>();
  fail(key, "must be a text");
  return otherwise;
}

int64_t JsonKeys::need_integer(const std::string& key) {
  if (!has(key)) fail(key, "is missing");
  return integer(key, 0);
}

double JsonKeys::need_number(const std::string& key) {
  if (!has(key)) fail(key, "is missing");
  return number(key, 0);
}

void JsonKeys::fail(const std::string& key, const std::string& what) {
  if (!status_.ok()) return;
  status_ = invalid("key '" + (where_.empty() ? "" : where_ + ".") + key + "' " + what);
}

}  // namespace pf
