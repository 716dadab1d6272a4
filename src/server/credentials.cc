#include "server/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "base/files.h"
#include "server/certificates.h"

namespace pf {
namespace {

Result<std::string> read_pem(const std::string& flag, const std::string& path) {
  Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
  if (!text.ok()) return text.status().within(flag);
  if (text->find("-----BEGIN ") == std::string::npos)
    return invalid(flag + " " + path + " is no PEM file; it must hold a -----BEGIN line");
  return text;
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty())
    return invalid("--tls-cert and --tls-key belong together; give both or none");
  if (files.cert.empty() && !files.client_ca.empty())
    return invalid("--tls-client-ca needs --tls-cert and --tls-key");
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  Result<std::string> cert = read_pem("--tls-cert", files.cert);
  if (!cert.ok()) return cert.status();
  Result<std::string> key = read_pem("--tls-key", files.key);
  if (!key.ok()) return key.status();
  if (Status s = check_certificate(*cert, *key); !s.ok()) return s;
  if (!files.client_ca.empty())
    if (Result<std::string> ca = read_pem("--tls-client-ca", files.client_ca); !ca.ok())
      return ca.status();

  namespace tls = grpc::experimental;
  auto provider = std::make_shared<tls::FileWatcherCertificateProvider>(
      files.key, files.cert, files.client_ca, kTlsRefreshSeconds);
  tls::TlsServerCredentialsOptions options(provider);
  options.watch_identity_key_cert_pairs();
  if (!files.client_ca.empty()) {
    options.watch_root_certs();
    options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  }
  return tls::TlsServerCredentials(options);
}

std::vector<std::string> tls_warnings(const TlsFiles& files, int64_t now_s) {
  std::vector<std::string> lines;
  for (auto [flag, path, cure] :
       {std::tuple{"--tls-cert", &files.cert, "clients refuse it"},
        std::tuple{"--tls-client-ca", &files.client_ca, "its clients are refused"}}) {
    if (path->empty()) continue;
    Result<std::string> text = read_pem(flag, *path);
    if (!text.ok()) continue;  // server_credentials has said so
    for (const std::string& line : out_of_date(*text, now_s))
      lines.push_back(std::string(flag) + " " + *path + ": a certificate in it " + line + "; " +
                      cure + " until the file is renewed, which needs no restart");
  }
  return lines;
}

}  // namespace pf
