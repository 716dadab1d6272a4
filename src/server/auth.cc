#include "server/auth.h"

#include <cctype>
#include <sstream>

namespace pf {
namespace {

constexpr std::string_view kBearer = "bearer ";

bool starts_as_bearer(std::string_view header) {
  if (header.size() <= kBearer.size()) return false;
  for (size_t i = 0; i < kBearer.size(); ++i)
    if (std::tolower(static_cast<unsigned char>(header[i])) != kBearer[i]) return false;
  return true;
}

// Reads every byte of `given`, whatever it is; depends on the secret by its length only.
bool equal_in_constant_time(std::string_view given, std::string_view secret) {
  unsigned difference = given.size() == secret.size() ? 0 : 1;
  for (size_t i = 0; i < given.size(); ++i)
    difference |= static_cast<unsigned char>(given[i] ^ secret[i % secret.size()]);
  return difference == 0;
}

}  // namespace

Result<AuthTokens> AuthTokens::parse(const std::string& text, const std::string& path) {
  std::istringstream in(text);
  std::vector<std::string> tokens;
  for (std::string line; std::getline(in, line);) {
    size_t first = line.find_first_not_of(" \t\r"), last = line.find_last_not_of(" \t\r");
    if (first != std::string::npos) tokens.push_back(line.substr(first, last - first + 1));
  }
  if (tokens.empty())
    return invalid("--auth-token-file " + path + " has no token; write one per line");
  return AuthTokens(std::move(tokens));
}

Status AuthTokens::check(std::string_view authorization) const {
  if (!starts_as_bearer(authorization))
    return Status(Code::kUnauthenticated,
                  "authorization: no bearer token; send `authorization: Bearer TOKEN`");
  std::string_view given = authorization.substr(kBearer.size());
  bool known = false;
  for (const std::string& secret : tokens_) known |= equal_in_constant_time(given, secret);
  return known ? Status()
               : Status(Code::kPermissionDenied, "authorization: the token is not known");
}

void Auth::set(AuthTokens tokens) {
  auto next = std::make_shared<const AuthTokens>(std::move(tokens));
  std::lock_guard lock(mutex_);
  tokens_.swap(next);
}

Status Auth::check(std::string_view authorization) const {
  std::shared_ptr<const AuthTokens> tokens;
  {
    std::lock_guard lock(mutex_);
    tokens = tokens_;
  }
  return tokens ? tokens->check(authorization) : Status();
}

}  // namespace pf
