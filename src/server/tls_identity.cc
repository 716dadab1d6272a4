#include "server/tls_identity.h"

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>

#include <ctime>
#include <memory>

namespace pf {
namespace {

template <auto free_it>
struct Free {
  template <class T>
  void operator()(T* it) const {
    free_it(it);
  }
};
using Bio = std::unique_ptr<BIO, Free<BIO_free>>;
using Certificate = std::unique_ptr<X509, Free<X509_free>>;
using Key = std::unique_ptr<EVP_PKEY, Free<EVP_PKEY_free>>;
using Context = std::unique_ptr<SSL_CTX, Free<SSL_CTX_free>>;

// OpenSSL's errors stay with the thread: whoever calls it next must not find ours.
struct CleanErrors {
  CleanErrors() { ERR_clear_error(); }
  ~CleanErrors() { ERR_clear_error(); }
};

// In OpenSSL's words.
std::string reason() {
  const char* words = ERR_reason_error_string(ERR_peek_last_error());
  return words != nullptr ? words : "unknown";
}

// Instead of a question on the terminal.
int no_password(char*, int, int, void*) { return 0; }

Bio reader(const std::string& text) {
  return Bio(BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

// The next one of the text; null: there is no further one that can be read.
Certificate next_certificate(BIO* text) {
  return Certificate(PEM_read_bio_X509(text, nullptr, no_password, nullptr));
}

std::string date_of(const ASN1_TIME* time) {
  tm date{};
  char words[64];
  if (ASN1_TIME_to_tm(time, &date) != 1) return "a date that cannot be read";
  return {words, std::strftime(words, sizeof(words), "%Y-%m-%d %H:%M:%S UTC", &date)};
}

// At least one, to the end of the text.
Result<std::vector<Certificate>> certificates_of(const std::string& flag, const std::string& path,
                                                 const std::string& text) {
  CleanErrors clean;
  std::vector<Certificate> all;
  Bio from = reader(text);
  while (Certificate next = next_certificate(from.get())) all.push_back(std::move(next));
  if (ERR_GET_REASON(ERR_peek_last_error()) != PEM_R_NO_START_LINE)
    return invalid(flag + " " + path + ": certificate " + std::to_string(all.size() + 1) +
                   " in it cannot be read (" + reason() + ")");
  if (all.empty()) return invalid(flag + " " + path + " is no PEM file with a certificate");
  return all;
}

Result<Key> key_of(const std::string& path, const std::string& text) {
  CleanErrors clean;
  Key key(PEM_read_bio_PrivateKey(reader(text).get(), nullptr, no_password, nullptr));
  if (key != nullptr) return key;
  return invalid("--tls-key " + path + " has no private key that can be read (" + reason() +
                 "); it must be PEM without a password");
}

}  // namespace

Status check_tls(const TlsFiles& files, const TlsTexts& texts) {
  Result<std::vector<Certificate>> chain = certificates_of("--tls-cert", files.cert, texts.cert);
  if (!chain.ok()) return chain.status();
  Result<Key> key = key_of(files.key, texts.key);
  if (!key.ok()) return key.status();
  if (!files.client_ca.empty())
    if (Status s = check_certificates("--tls-client-ca", files.client_ca, texts.client_ca); !s.ok())
      return s;
  CleanErrors clean;
  if (X509_check_private_key(chain->front().get(), key->get()) != 1)
    return invalid("--tls-cert " + files.cert + " and --tls-key " + files.key +
                   " do not fit together: the key is not that of the first certificate; give the "
                   "two that were made as a pair");
  // What gRPC will ask of them too, such as keys that are long enough.
  Context context(SSL_CTX_new(TLS_server_method()));
  if (SSL_CTX_use_certificate(context.get(), chain->front().get()) != 1)
    return invalid("--tls-cert " + files.cert + " cannot be used (" + reason() + ")");
  if (SSL_CTX_use_PrivateKey(context.get(), key->get()) != 1)
    return invalid("--tls-key " + files.key + " cannot be used (" + reason() + ")");
  return {};
}

Status check_certificates(const std::string& flag, const std::string& path,
                          const std::string& text) {
  return certificates_of(flag, path, text).status();
}

std::vector<std::string> out_of_date(const std::string& chain, int64_t now_s) {
  CleanErrors clean;
  std::vector<std::string> lines;
  Bio text = reader(chain);
  auto now = static_cast<time_t>(now_s);
  while (Certificate c = next_certificate(text.get())) {
    const ASN1_TIME* end = X509_get0_notAfter(c.get());
    const ASN1_TIME* begin = X509_get0_notBefore(c.get());
    if (X509_cmp_time(end, &now) < 0)
      lines.push_back("expired on " + date_of(end));
    else if (X509_cmp_time(begin, &now) > 0)
      lines.push_back("is not valid before " + date_of(begin));
  }
  return lines;
}

void TlsIdentity::set(TlsTexts texts) {
  std::lock_guard lock(mutex_);
  texts_ = std::move(texts);
  ++version_;
}

uint64_t TlsIdentity::copy(TlsTexts* texts) const {
  std::lock_guard lock(mutex_);
  *texts = texts_;
  return version_;
}

uint64_t TlsIdentity::version() const {
  std::lock_guard lock(mutex_);
  return version_;
}

}  // namespace pf
