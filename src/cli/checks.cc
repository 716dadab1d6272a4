#include "cli/checks.h"

#include <cmath>

#include "cli/parse_value.h"

namespace pf {

std::string whole_number_needed(int64_t low, int64_t high) {
  return high == INT64_MAX || high == INT32_MAX
             ? "needs a whole number >= " + std::to_string(low)
             : "needs a whole number in " + std::to_string(low) + ".." + std::to_string(high);
}

CLI::Validator whole_number(int64_t low, int64_t high) {
  return CLI::Validator(
      [low, high](std::string& text) {
        Result<int64_t> n = parse_integer(text);
        return n.ok() && *n >= low && *n <= high ? std::string() : whole_number_needed(low, high);
      },
      "");
}

CLI::Validator real_number(double low, double high, bool above) {
  return CLI::Validator(
      [low, high, above](std::string& text) {
        Result<double> x = parse_number(text);
        if (x.ok() && (above ? *x > low : *x >= low) && *x <= high) return std::string();
        if (std::isinf(high))
          return "needs a number " + std::string(above ? "above " : ">= ") + print_number(low);
        return above ? "needs a number above " + print_number(low) + " and up to " +
                           print_number(high)
                     : "needs a number in " + print_number(low) + ".." + print_number(high);
      },
      "");
}

}  // namespace pf
