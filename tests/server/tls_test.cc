// Truth: TLS as the README promises it; certificates are made by the openssl command.
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "server/serving.h"
#include "server/tls_identity.h"

namespace pf {
namespace {

namespace fs = std::filesystem;

std::string read(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

class Tls : public Serving {
 protected:
  void SetUp() override {
    if (std::system("openssl version >/dev/null 2>&1") != 0)
      GTEST_SKIP() << "there is no openssl command to make certificates with";
    folder = fs::temp_directory_path() / ("tls-" + std::to_string(getpid()));
    fs::create_directories(folder);
  }
  void TearDown() override {
    Serving::TearDown();
    if (!folder.empty()) fs::remove_all(folder);
  }

  // A certificate that is its own authority: NAME.pem and NAME.key.
  void make(const std::string& name) {
    std::string base = (folder / name).string();
    std::string command =
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj "
        "/CN=localhost -addext subjectAltName=DNS:localhost,IP:127.0.0.1 -keyout " +
        base + ".key -out " + base + ".pem >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  // The same for another time than now; dates are YYMMDD.
  void make_for(const std::string& name, const std::string& from, const std::string& to) {
    std::ofstream(folder / "ca.conf")
        << "[ca]\ndefault_ca = d\n[d]\ndatabase = ca.db\nserial = "
           "ca.serial\nnew_certs_dir = .\ndefault_md = sha256\npolicy "
           "= p\nx509_extensions = e\n[p]\ncommonName = supplied\n"
           "[e]\nsubjectAltName = DNS:localhost,IP:127.0.0.1\n"
           "basicConstraints = CA:true\n";
    std::ofstream(folder / "ca.db").close();
    std::ofstream(folder / "ca.serial") << "01\n";
    std::string command =
        "cd " + folder.string() +
        " && openssl req -new -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj "
        "/CN=localhost -keyout " +
        name + ".key -out ca.csr >/dev/null 2>&1 && openssl ca -batch -selfsign -notext -config " +
        "ca.conf -keyfile " + name + ".key -in ca.csr -out " + name + ".pem -startdate " + from +
        "000000Z -enddate " + to + "000000Z >/dev/null 2>&1";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  std::string pem(const std::string& name) { return (folder / (name + ".pem")).string(); }
  std::string key(const std::string& name) { return (folder / (name + ".key")).string(); }

  ServerOptions options(const std::string& name, const std::string& client_ca = "") {
    ServerOptions o;
    o.tls = {pem(name), key(name), client_ca.empty() ? "" : pem(client_ca)};
    return o;
  }
  // A call over a new connection that trusts `authority` and shows `own`.
  grpc::StatusCode call(const std::string& authority, const std::string& own = "") {
    return status_of_call(authority, own).error_code();
  }
  grpc::Status status_of_call(const std::string& authority, const std::string& own = "") {
    grpc::SslCredentialsOptions ssl;
    ssl.pem_root_certs = read(pem(authority));
    if (!own.empty()) {
      ssl.pem_cert_chain = read(pem(own));
      ssl.pem_private_key = read(key(own));
    }
    grpc::ChannelArguments arguments;  // no connection is shared with an earlier channel
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    auto tls = grpc::CreateCustomChannel("ipv4:127.0.0.1:" + std::to_string(server->port()),
                                         grpc::SslCredentials(ssl), arguments);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + 5s);
    wire::GenerateResponse response;
    return wire::Inference::NewStub(tls)->Generate(&context, request(), &response);
  }

  fs::path folder;
};

constexpr auto kOkCode = grpc::StatusCode::OK, kUnavailable = grpc::StatusCode::UNAVAILABLE;

TEST_F(Tls, OnlyAClientThatTrustsTheCertificateGetsThrough) {
  make("server");
  make("other");
  start(options("server"));
  EXPECT_EQ(call("server"), kOkCode);
  EXPECT_EQ(call("other"), kUnavailable);
  EXPECT_EQ(generate(request()).error_code(), kUnavailable) << "plain text to a TLS port";
}

TEST_F(Tls, MutualTlsAsksForACertificateOfTheAuthority) {
  make("server");
  make("client");
  make("other");
  start(options("server", "client"));
  EXPECT_EQ(call("server", "client"), kOkCode);
  EXPECT_EQ(call("server"), kUnavailable);
  EXPECT_EQ(call("server", "other"), kUnavailable);
}

TEST_F(Tls, AChangedCertificateIsTakenUp) {
  make("server");
  make("next");
  start(options("server"));
  EXPECT_EQ(call("server"), kOkCode);
  EXPECT_EQ(call("next"), kUnavailable);
  fs::copy_file(key("next"), key("server"), fs::copy_options::overwrite_existing);
  fs::copy_file(pem("next"), pem("server"), fs::copy_options::overwrite_existing);
  EXPECT_TRUE(until([&] { return call("next") == kOkCode; }, 10s));
}

TEST_F(Tls, AnExpiredCertificateIsWarnedOfAndRefusedByTheClient) {
  make_for("server", "200101", "200203");
  start(options("server"));
  EXPECT_NE(
      log_text.str().find("server.pem: a certificate in it expired on 2020-02-03 00:00:00 UTC"),
      std::string::npos)
      << log_text.str();
  grpc::Status status = status_of_call("server");
  EXPECT_EQ(status.error_code(), kUnavailable);
  EXPECT_NE(status.error_message().find("certificate verify failed"), std::string::npos)
      << status.error_message();
  // Renewed, it serves without a restart.
  make("next");
  fs::copy_file(key("next"), key("server"), fs::copy_options::overwrite_existing);
  fs::copy_file(pem("next"), pem("server"), fs::copy_options::overwrite_existing);
  EXPECT_TRUE(until([&] { return call("next") == kOkCode; }, 10s));
}

TEST_F(Tls, AnExpiredClientIsRefused) {
  make("server");
  make_for("client", "200101", "200203");
  start(options("server", "client"));
  EXPECT_NE(log_text.str().find("--tls-client-ca"), std::string::npos);
  EXPECT_EQ(call("server", "client"), kUnavailable);
}

TEST_F(Tls, OnlyDatesThatDoNotHoldAreWarnedOf) {
  make("server");
  make_for("past", "200101", "200203");
  make_for("future", "480101", "490101");
  auto complaints = [&](const std::string& name) {
    return out_of_date(read(pem(name)), std::time(nullptr));
  };
  EXPECT_TRUE(complaints("server").empty());
  EXPECT_EQ(complaints("future"),
            std::vector<std::string>{"is not valid before 2048-01-01 00:00:00 UTC"});
  EXPECT_EQ(out_of_date(read(pem("server")) + read(pem("past")), std::time(nullptr)),
            std::vector<std::string>{"expired on 2020-02-03 00:00:00 UTC"});
  EXPECT_TRUE(out_of_date("hello", std::time(nullptr)).empty());
  start(options("server"));
  EXPECT_EQ(log_text.str().find("certificate"), std::string::npos) << log_text.str();
}

// Every way to renew a pair in place passes states that no server could use.
class TlsRenewal : public Tls {
 protected:
  void begin() {
    make("server");
    make("next");
    ServerOptions o = options("server");
    o.files_period_us = kPeriod_us;
    start(o);
    fs::copy_file(pem("server"), pem("old"));
    ASSERT_EQ(call("old"), kOkCode);
  }
  void write(const std::string& path, const std::string& text) { std::ofstream(path) << text; }
  size_t n_warnings() {
    std::string text = log_text.str();
    size_t n = 0;
    for (size_t at = 0; (at = text.find("not taken up", at)) != std::string::npos; ++at) ++n;
    return n;
  }
  // The file is left in this state for many looks: the old pair stays, and one warning names it.
  void broken(const std::string& path, const std::string& text, const std::string& why) {
    const size_t n = n_warnings();
    const std::string whole = read(path);
    write(path, text);
    EXPECT_TRUE(until([&] { return n_warnings() > n; })) << why;
    for (int i = 0; i < 3; ++i) EXPECT_EQ(call("old"), kOkCode) << why;
    std::this_thread::sleep_for(10 * std::chrono::microseconds(kPeriod_us));
    EXPECT_EQ(n_warnings(), n + 1) << why;
    EXPECT_NE(log_text.str().find(path), std::string::npos) << log_text.str();
    EXPECT_NE(log_text.str().find(why), std::string::npos) << log_text.str();
    write(path, whole);
    std::this_thread::sleep_for(3 * std::chrono::microseconds(kPeriod_us));
  }
  static constexpr int64_t kPeriod_us = 30'000;
};

TEST_F(TlsRenewal, AFileThatCannotBeUsedLeavesTheOldPairInUse) {
  begin();
  const std::string cert = read(pem("server")), secret = read(key("server"));
  broken(pem("server"), "", "is no PEM file with a certificate");
  broken(key("server"), "", "has no private key that can be read");
  broken(pem("server"), cert.substr(0, cert.size() / 2), "certificate 1 in it cannot be read");
  broken(pem("server"), cert + cert.substr(0, cert.size() / 2), "certificate 2 in it");
  broken(key("server"), secret.substr(0, secret.size() / 2), "has no private key");
  broken(pem("server"), read(pem("next")), "do not fit together");
  broken(key("server"), read(key("next")), "do not fit together");
  fs::remove(key("server"));
  EXPECT_TRUE(until([&] { return log_text.str().find("No such file") != std::string::npos; }));
  EXPECT_EQ(call("old"), kOkCode);
  write(key("server"), read(key("next")));
  write(pem("server"), read(pem("next")));
  EXPECT_TRUE(until([&] { return call("next") == kOkCode; })) << log_text.str();
  EXPECT_EQ(call("old"), kUnavailable);
}

// Emptied, a pause, then written: what `cp` and most tools do.
TEST_F(TlsRenewal, APairIsRenewedInPlaceInEitherOrder) {
  begin();
  make("third");
  auto renew = [&](const std::string& path, const std::string& from) {
    write(path, "");
    std::this_thread::sleep_for(150ms);
    write(path, read(from));
    std::this_thread::sleep_for(150ms);
  };
  renew(pem("server"), pem("next"));
  EXPECT_EQ(call("next"), kUnavailable) << "a certificate without its key";
  renew(key("server"), key("next"));
  EXPECT_TRUE(until([&] { return call("next") == kOkCode; })) << log_text.str();
  renew(key("server"), key("third"));
  EXPECT_EQ(call("next"), kOkCode);
  renew(pem("server"), pem("third"));
  EXPECT_TRUE(until([&] { return call("third") == kOkCode; })) << log_text.str();
}

TEST_F(TlsRenewal, TheAuthorityOfClientsChangesToo) {
  make("server");
  make("client");
  make("other");
  ServerOptions o = options("server", "client");
  o.files_period_us = kPeriod_us;
  start(o);
  EXPECT_EQ(call("server", "client"), kOkCode);
  EXPECT_EQ(call("server", "other"), kUnavailable);
  const std::string client_pem = read(pem("client")), client_key = read(key("client"));
  write(pem("client"), read(pem("other")));
  EXPECT_TRUE(until([&] { return call("server", "other") == kOkCode; })) << log_text.str();
  make("next");
  write(pem("next"), client_pem), write(key("next"), client_key);
  EXPECT_EQ(call("server", "next"), kUnavailable) << "an authority that is trusted no more";
}

TEST_F(TlsRenewal, WhatIsLookedAtOnDemandIsTakenUpAtOnce) {
  make("server");
  make("next");
  ServerOptions o = options("server");
  o.files_period_us = 3'600'000'000;
  o.admin_listen = "localhost:0";  // a name of several addresses
  start(o);
  fs::copy_file(pem("server"), pem("old"));
  write(pem("server"), read(pem("next")));
  server->reread_files();
  EXPECT_NE(log_text.str().find("do not fit together"), std::string::npos) << log_text.str();
  EXPECT_EQ(call("old"), kOkCode);
  write(key("server"), read(key("next")));
  server->reread_files();
  EXPECT_EQ(call("next"), kOkCode);
  EXPECT_NE(log_text.str().find("files read again taken_up=1"), std::string::npos);
}

TEST_F(Tls, TheProbeOfItselfKnowsATlsPort) {
  make("server");
  ServerOptions o = options("server");
  o.probe.period_us = 10'000;
  std::atomic<bool> deaf{false};
  o.probe.on_deaf = [&] { deaf = true; };
  start(o);
  std::this_thread::sleep_for(300ms);
  EXPECT_FALSE(deaf);
}

TEST_F(Tls, MistakesNameTheFlag) {
  make("server");
  std::ofstream(folder / "no.pem") << "hello";
  auto message = [&](TlsFiles files) {
    ServerOptions o;
    o.listen = "127.0.0.1:0";
    o.metrics_listen = "";
    o.tls = std::move(files);
    Result<std::unique_ptr<Server>> s = Server::start(o, clock, log);
    return s.ok() ? "" : s.status().message();
  };
  EXPECT_NE(message({pem("server"), "", ""}).find("--tls-key"), std::string::npos);
  EXPECT_NE(message({"", "", pem("server")}).find("--tls-client-ca"), std::string::npos);
  EXPECT_NE(message({pem("no"), key("server"), ""}).find("--tls-cert"), std::string::npos);
  EXPECT_NE(message({pem("server"), "/nonexistent", ""}).find("--tls-key"), std::string::npos);
  make("other");
  EXPECT_EQ(message({pem("server"), key("other"), ""}),
            "--tls-cert " + pem("server") + " and --tls-key " + key("other") +
                " do not fit together: the key is not that of the first certificate; give the two "
                "that were made as a pair");
  EXPECT_NE(message({pem("server"), pem("server"), ""}).find("has no private key"),
            std::string::npos);
  EXPECT_NE(message({pem("server"), key("server"), key("server")}).find("--tls-client-ca"),
            std::string::npos);
}

}  // namespace
}  // namespace pf
