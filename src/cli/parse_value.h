#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pf {

// What people write as values. An error says what is needed ("needs a whole number"); the caller
// adds where.
Result<int64_t> parse_integer(std::string_view text);
Result<int64_t> parse_token_count(std::string_view text);  // 32k = 32,000; 32K = 32,768; m, M too
Result<double> parse_number(std::string_view text);        // finite
Result<bool> parse_bool(std::string_view text);            // true, false, 1, 0, yes, no, on, off
Result<int64_t> parse_duration_us(std::string_view text);  // 250ms, 30s, 2m

std::vector<std::string> split_list(std::string_view text);  // at commas, spaces taken off
std::string join_list(const std::vector<std::string>& items);
std::string print_duration(int64_t us);  // the inverse of parse_duration_us
// With the fewest digits that read back as the same value.
std::string print_number(double value);
std::string print_number(float value);

}  // namespace pf
