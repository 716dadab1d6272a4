#include "server/certificates.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <ctime>
#include <memory>

namespace pf {
namespace {

struct Free {
  void operator()(BIO* b) const { BIO_free(b); }
  void operator()(X509* x) const { X509_free(x); }
};
template <class T>
using Owned = std::unique_ptr<T, Free>;

// OpenSSL's errors stay with the thread: whoever calls it next must not find ours.
struct QuietErrors {
  ~QuietErrors() { ERR_clear_error(); }
};

// Instead of a question on the terminal.
int no_password(char*, int, int, void*) { return 0; }

Owned<BIO> reader(const std::string& text) {
  return Owned<BIO>(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The next one of the text; null: there is no further one.
Owned<X509> next_certificate(BIO* text) {
  return Owned<X509>(PEM_read_bio_X509(text, nullptr, no_password, nullptr));
}

std::string date_of(const ASN1_TIME* time) {
  tm date{};
  char words[64];
  if (ASN1_TIME_to_tm(time, &date) != 1) return "a date that cannot be read";
  return {words, std::strftime(words, sizeof(words), "%Y-%m-%d %H:%M:%S UTC", &date)};
}

}  // namespace

std::vector<std::string> out_of_date(const std::string& chain, int64_t now_s) {
  QuietErrors quiet;
  std::vector<std::string> lines;
  Owned<BIO> text = reader(chain);
  auto now = static_cast<time_t>(now_s);
  while (Owned<X509> c = next_certificate(text.get())) {
    const ASN1_TIME* end = X509_get0_notAfter(c.get());
    const ASN1_TIME* begin = X509_get0_notBefore(c.get());
    if (X509_cmp_time(end, &now) < 0)
      lines.push_back("expired on " + date_of(end));
    else if (X509_cmp_time(begin, &now) > 0)
      lines.push_back("is not valid before " + date_of(begin));
  }
  return lines;
}

}  // namespace pf
