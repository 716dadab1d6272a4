#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace pf {

// A line for each certificate of a PEM text that is over or has not begun at `now_s` (seconds since
// 1970), with the date; none for what is no certificate.
std::vector<std::string> out_of_date(const std::string& chain, int64_t now_s);

}  // namespace pf
