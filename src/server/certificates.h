#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace pf {

// Of texts in PEM, as of --tls-cert and --tls-key: whether they can serve at all. INVALID_ARGUMENT
// when no certificate or no key without a password can be read, or the key is another one's.
Status check_certificate(const std::string& chain, const std::string& key);

// A line for each certificate of a PEM text that is over or has not begun at `now_s` (seconds since
// 1970), with the date; none for what is no certificate.
std::vector<std::string> out_of_date(const std::string& chain, int64_t now_s);

}  // namespace pf
