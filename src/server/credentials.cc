#include "server/credentials.h"

#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_credentials_options.h>

#include "base/files.h"

namespace pf {
namespace {

Status check_pem(const std::string& flag, const std::string& path) {
  Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
  if (!text.ok()) return text.status().within(flag);
  if (text->find("-----BEGIN ") == std::string::npos)
    return invalid(flag + " " + path + " is no PEM file; it must hold a -----BEGIN line");
  return {};
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files) {
  if (files.cert.empty() != files.key.empty())
    return invalid("--tls-cert and --tls-key belong together; give both or none");
  if (files.cert.empty() && !files.client_ca.empty())
    return invalid("--tls-client-ca needs --tls-cert and --tls-key");
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  Status s = check_pem("--tls-cert", files.cert);
  if (s.ok()) s = check_pem("--tls-key", files.key);
  if (s.ok() && !files.client_ca.empty()) s = check_pem("--tls-client-ca", files.client_ca);
  if (!s.ok()) return s;

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

}  // namespace pf
