#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <limits>
#include <string>

namespace pf {

// "needs a whole number in 1..8", or ">= 1" where there is no end worth saying.
std::string whole_number_needed(int64_t low, int64_t high);

// Checks of options with numbers. The help says nothing of them, the refusal what is needed.
CLI::Validator whole_number(int64_t low, int64_t high = INT64_MAX);
// A finite one, `low` and `high` inclusive; `above`: low itself is refused.
CLI::Validator real_number(double low, double high = std::numeric_limits<double>::infinity(),
                           bool above = false);

}  // namespace pf
