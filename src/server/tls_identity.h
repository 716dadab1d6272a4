#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "base/status.h"

namespace pf {

struct TlsFiles {
  std::string cert, key;  // PEM; both or none
  std::string client_ca;  // PEM; then every client must show a certificate of it
};

// What the files hold.
struct TlsTexts {
  std::string cert, key, client_ca;
};

// Whether a server can show these: every certificate can be read, so can the key, and it is the
// first certificate's. INVALID_ARGUMENT names the flag and the file, or both files of a pair that
// does not fit.
Status check_tls(const TlsFiles& files, const TlsTexts& texts);

// Whether a text has certificates that can be read, to its end.
Status check_certificates(const std::string& flag, const std::string& path,
                          const std::string& text);

// A line for each certificate of a PEM text that is over or has not begun at `now_s` (seconds since
// 1970), with the date; none for what is no certificate.
std::vector<std::string> out_of_date(const std::string& chain, int64_t now_s);

// What new connections are shown. Only texts that check_tls has passed belong here. Any thread.
class TlsIdentity {
 public:
  explicit TlsIdentity(TlsTexts texts) : texts_(std::move(texts)) {}

  void set(TlsTexts texts);
  // Counts up with each set; the first is 1.
  uint64_t copy(TlsTexts* texts) const;
  uint64_t version() const;

 private:
  mutable std::mutex mutex_;  // guards all below
  TlsTexts texts_;
  uint64_t version_ = 1;
};

}  // namespace pf
