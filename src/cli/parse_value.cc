#include "cli/parse_value.h"

#include <charconv>
#include <cmath>
#include <span>

namespace pf {
namespace {

template <class T>
bool parse_all(std::string_view text, T* value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// The fewest digits that read back as the same value.
template <class T>
std::string shortest(T value) {
  char text[32];
  auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return error == std::errc() ? std::string(text, end) : "0";
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

struct Unit {
  std::string_view suffix;
  int64_t factor;
};

// A whole number of units, or nothing.
bool parse_with_unit(std::string_view text, std::span<const Unit> units, int64_t* value) {
  for (const Unit& unit : units) {
    if (!text.ends_with(unit.suffix)) continue;
    int64_t n = 0;
    if (!parse_all(text.substr(0, text.size() - unit.suffix.size()), &n)) continue;
    return !__builtin_mul_overflow(n, unit.factor, value);
  }
  return false;
}

constexpr Unit kTokenUnits[] = {
    {"k", 1000}, {"K", 1024}, {"m", 1000 * 1000}, {"M", 1024 * 1024}, {"", 1}};
constexpr Unit kTimeUnits[] = {{"ms", 1000}, {"s", 1'000'000}, {"m", 60'000'000}};

}  // namespace

Result<int64_t> parse_integer(std::string_view text) {
  int64_t value = 0;
  if (!parse_all(text, &value)) return invalid("needs a whole number");
  return value;
}

Result<int64_t> parse_token_count(std::string_view text) {
  int64_t value = 0;
  if (!parse_with_unit(text, kTokenUnits, &value))
    return invalid("needs a number of tokens such as 4096, 32k (32,000) or 32K (32,768)");
  return value;
}

Result<double> parse_number(std::string_view text) {
  double value = 0;
  if (!parse_all(text, &value) || !std::isfinite(value)) return invalid("needs a number");
  return value;
}

Result<bool> parse_bool(std::string_view text) {
  for (std::string_view yes : {"true", "1", "yes", "on"})
    if (text == yes) return true;
  for (std::string_view no : {"false", "0", "no", "off"})
    if (text == no) return false;
  return invalid("needs true or false");
}

Result<int64_t> parse_duration_us(std::string_view text) {
  int64_t value = 0;
  if (!parse_with_unit(text, kTimeUnits, &value) || value < 0)
    return invalid("needs a time such as 500ms, 30s or 2m");
  return value;
}

std::vector<std::string> split_list(std::string_view text) {
  std::vector<std::string> items;
  while (!text.empty()) {
    size_t comma = text.find(',');
    items.emplace_back(trimmed(text.substr(0, comma)));
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return items;
}

std::string join_list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& item : items) text += (text.empty() ? "" : ",") + item;
  return text;
}

std::string print_duration(int64_t us) {
  if (us % 60'000'000 == 0 && us > 0) return std::to_string(us / 60'000'000) + "m";
  if (us % 1'000'000 == 0) return std::to_string(us / 1'000'000) + "s";
  return std::to_string(us / 1000) + "ms";
}

std::string print_number(double value) { return shortest(value); }

std::string print_number(float value) { return shortest(value); }

}  // namespace pf
