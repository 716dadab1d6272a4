#include "server/credentials.h"

#include <grpc/grpc.h>
#include <grpc/grpc_security.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <ctime>
#include <tuple>
#include <utility>
#include <vector>

#include "base/files.h"

namespace pf {
namespace {

// The numeric addresses that HOST:PORT stands for, each as gRPC takes it; what is no HOST:PORT, as
// it is.
std::vector<std::string> addresses_of(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (listen.starts_with("unix:") || colon == std::string::npos) return {listen};
  std::string host = listen.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0) return {listen};
  std::unique_ptr<addrinfo, void (*)(addrinfo*)> owned(found, freeaddrinfo);
  std::vector<std::string> all;
  for (const addrinfo* a = found; a != nullptr; a = a->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(a->ai_addr, a->ai_addrlen, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0)
      continue;
    std::string numeric = a->ai_family == AF_INET6 ? "[" + std::string(text) + "]" : text;
    if (std::find(all.begin(), all.end(), numeric) == all.end()) all.push_back(numeric);
  }
  for (std::string& address : all) address += listen.substr(colon);
  return all;
}

// gRPC's own watcher of files (FileWatcherCertificateProvider) ends the process when it reads a
// pair that does not fit, as each renewal in place shows for a moment. So gRPC asks here at each
// new connection, and hears only of pairs that were checked.
class ChangingTls final : public grpc::ServerCredentials {
 public:
  ChangingTls(std::shared_ptr<const TlsIdentity> identity, bool asks_clients)
      : identity_(std::move(identity)), asks_clients_(asks_clients) {}

  void SetAuthMetadataProcessor(const std::shared_ptr<grpc::AuthMetadataProcessor>&) override {
    die("tokens are checked by the calls themselves");
  }

 private:
  // Each port is told of a change on its own. gRPC 1.51 changes a port's certificate without a
  // lock, which is right as long as one thread accepts its connections: a port is one address.
  struct Port {
    const TlsIdentity& identity;
    uint64_t version = 0;  // that gRPC has; gRPC asks one after the other
  };

  int AddPortToServer(const std::string& listen, grpc_server* server) override {
    int bound = 0;  // the first; a name may stand for addresses that this machine does not have
    for (std::string address : addresses_of(listen)) {
      if (bound != 0 && address.ends_with(":0"))
        address.replace(address.size() - 1, 1, std::to_string(bound));
      const int port = add_address(address, server);
      if (bound == 0) bound = port;
    }
    return bound;
  }

  int add_address(const std::string& address, grpc_server* server) {
    ports_.push_back(std::make_unique<Port>(Port{*identity_}));
    grpc_server_credentials* credentials = grpc_ssl_server_credentials_create_with_options(
        grpc_ssl_server_credentials_create_options_using_config_fetcher(
            asks_clients_ ? GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY
                          : GRPC_SSL_DONT_REQUEST_CLIENT_CERTIFICATE,
            fetch, ports_.back().get()));
    int port = grpc_server_add_http2_port(server, address.c_str(), credentials);
    grpc_server_credentials_release(credentials);
    return port;
  }

  static grpc_ssl_certificate_config_reload_status fetch(
      void* port, grpc_ssl_server_certificate_config** config) {
    auto* p = static_cast<Port*>(port);
    if (p->identity.version() == p->version) return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_UNCHANGED;
    TlsTexts texts;
    p->version = p->identity.copy(&texts);
    grpc_ssl_pem_key_cert_pair pair{texts.key.c_str(), texts.cert.c_str()};
    // gRPC wants an authority even where clients are not asked for a certificate.
    const char* roots = (texts.client_ca.empty() ? texts.cert : texts.client_ca).c_str();
    *config = grpc_ssl_server_certificate_config_create(roots, &pair, 1);
    return GRPC_SSL_CERTIFICATE_CONFIG_RELOAD_NEW;
  }

  const std::shared_ptr<const TlsIdentity> identity_;
  const bool asks_clients_;
  std::vector<std::unique_ptr<Port>> ports_;  // gRPC points to them
};

Result<std::vector<std::string>> read_flags(
    const std::vector<std::pair<std::string, std::string>>& flags) {
  std::vector<std::string> texts;
  for (const auto& [flag, path] : flags) {
    Result<std::string> text = read_whole_file(path, kMaxConfigurationBytes);
    if (!text.ok()) return text.status().within(flag);
    texts.push_back(text.take());
  }
  return texts;
}

// In the order of the paths below.
TlsTexts tls_texts(const std::vector<std::string>& texts) {
  return {texts[0], texts[1], texts.size() > 2 ? texts[2] : ""};
}

// What is wrong with the dates of certificates that are taken into use.
void warn_of_dates(const TlsFiles& files, const TlsTexts& texts, Log* log) {
  for (auto [flag, path, text, cure] :
       {std::tuple{"--tls-cert", &files.cert, &texts.cert, "clients refuse it"},
        std::tuple{"--tls-client-ca", &files.client_ca, &texts.client_ca,
                   "its clients are refused"}})
    for (const std::string& line : out_of_date(*text, std::time(nullptr)))
      log->warn(std::string(flag) + " " + *path + ": a certificate in it " + line + "; " + cure +
                " until the file is renewed, which needs no restart");
}

}  // namespace

Result<std::shared_ptr<grpc::ServerCredentials>> server_credentials(const TlsFiles& files,
                                                                    ChangingFiles* changing,
                                                                    Log* log) {
  if (files.cert.empty() != files.key.empty())
    return invalid("--tls-cert and --tls-key belong together; give both or none");
  if (files.cert.empty() && !files.client_ca.empty())
    return invalid("--tls-client-ca needs --tls-cert and --tls-key");
  if (files.cert.empty()) return grpc::InsecureServerCredentials();
  std::vector<std::pair<std::string, std::string>> flags = {{"--tls-cert", files.cert},
                                                            {"--tls-key", files.key}};
  if (!files.client_ca.empty()) flags.emplace_back("--tls-client-ca", files.client_ca);
  Result<std::vector<std::string>> texts = read_flags(flags);
  if (!texts.ok()) return texts.status();
  if (Status s = check_tls(files, tls_texts(*texts)); !s.ok()) return s;

  warn_of_dates(files, tls_texts(*texts), log);
  auto identity = std::make_shared<TlsIdentity>(tls_texts(*texts));
  ChangingFiles::Group group{.paths = {}, .texts = texts.take(), .take = {}};
  for (const auto& [flag, path] : flags) group.paths.push_back(path);
  group.take = [files, identity, log](const std::vector<std::string>& changed) {
    TlsTexts next = tls_texts(changed);
    if (Status s = check_tls(files, next); !s.ok()) return s;
    warn_of_dates(files, next, log);
    identity->set(std::move(next));
    log->info("a changed certificate is taken up", {{"file", files.cert}});
    return Status();
  };
  changing->add(std::move(group));
  return std::shared_ptr<grpc::ServerCredentials>(
      std::make_shared<ChangingTls>(identity, !files.client_ca.empty()));
}

}  // namespace pf
