// Truth: what a user who mistypes a target, a file or a token must be told, in one line.
#include "cli/client.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "cli/parse_value.h"

namespace pf {
namespace {

using grpc::StatusCode;

TEST(Address, NeedsAHostAndAPort) {
  for (const char* good : {"127.0.0.1:50051", "localhost:0", "[::1]:65535", "unix:/tmp/a"})
    EXPECT_TRUE(check_address(good).ok()) << good;
  EXPECT_EQ(check_address("nohost").message(), "needs HOST:PORT such as 127.0.0.1:50051");
  EXPECT_EQ(check_address("a:b").message(), "needs HOST:PORT such as 127.0.0.1:50051");
  EXPECT_EQ(check_address("a:65536").message(), "needs a port in 0..65535");
  EXPECT_EQ(check_address(":41060").message(),
            "has no host in front of the port; write 127.0.0.1:41060 for this machine alone, "
            "0.0.0.0:41060 for all of its addresses");
}

TEST(Target, IsAnAddressOrHasAScheme) {
  for (const char* good : {"a.example:1", "dns:///a.example:1", "unix:/tmp/a", "ipv4:127.0.0.1:1"})
    EXPECT_TRUE(check_target(good).ok()) << good;
  EXPECT_EQ(check_target("bad").message(), "--target bad: needs HOST:PORT such as 127.0.0.1:50051");
  EXPECT_FALSE(check_target("").ok());
}

TEST(Failure, SaysWhatAndWhatToDo) {
  auto said = [](StatusCode code, const char* message = "") {
    return failure_of({code, message}, "host:1", "pilotfish.v1.Admin", "--admin-listen");
  };
  EXPECT_EQ(said(StatusCode::UNAUTHENTICATED),
            "host:1 wants a bearer token; give it with --auth-token-file");
  EXPECT_EQ(said(StatusCode::PERMISSION_DENIED),
            "host:1 does not let in the token of --auth-token-file; has it been replaced?");
  EXPECT_EQ(said(StatusCode::UNIMPLEMENTED),
            "host:1 answers, but has no pilotfish.v1.Admin; is it the server's --admin-listen?");
  EXPECT_NE(said(StatusCode::DEADLINE_EXCEEDED).find("in time"), std::string::npos);
  EXPECT_NE(said(StatusCode::UNAVAILABLE, "refused").find("does not answer: refused; is it the"),
            std::string::npos);
  EXPECT_NE(said(StatusCode::UNKNOWN).find("no reason was given"), std::string::npos);
}

TEST(Credentials, FilesThatCannotBeUsedAreNamed) {
  namespace fs = std::filesystem;
  const std::string base = testing::TempDir() + "client-" + std::to_string(getpid());
  auto make = [&](const std::string& name) {
    return std::system(("openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes "
                        "-days 2 -subj /CN=localhost -keyout " +
                        base + name + ".key -out " + base + name + ".pem >/dev/null 2>&1")
                           .c_str()) == 0;
  };
  if (!make("a") || !make("b")) GTEST_SKIP() << "there is no openssl command";
  auto message = [&](const std::string& ca, const std::string& cert, const std::string& key) {
    auto path = [&](const std::string& name) { return name.empty() ? "" : base + name; };
    ClientOptions o{.target = "host:1", .tls_ca = path(ca), .tls_cert = path(cert)};
    o.tls_key = path(key);
    auto made = credentials_of(o);
    return made.ok() ? "" : made.status().message();
  };
  EXPECT_EQ(message("a.pem", "a.pem", "a.key"), "");
  EXPECT_EQ(message("a.pem", "", ""), "");
  EXPECT_EQ(message("a.pem", "a.pem", ""),
            "--tls-cert and --tls-key belong together; give both or none");
  std::string misfit = message("a.pem", "a.pem", "b.key");
  EXPECT_NE(misfit.find("--tls-cert " + base + "a.pem and --tls-key " + base + "b.key"),
            std::string::npos)
      << misfit;
  EXPECT_NE(message("a.key", "", "").find("--tls-ca " + base + "a.key"), std::string::npos);
  EXPECT_NE(message("a.pem", "a.pem", "a.pem").find("has no private key"), std::string::npos);
  for (const char* file : {"a.pem", "a.key", "b.pem", "b.key"}) fs::remove(base + file);
}

}  // namespace
}  // namespace pf
