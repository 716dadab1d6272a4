#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace pf {

// The bearer tokens that clients may show. Immutable.
class AuthTokens {
 public:
  explicit AuthTokens(std::vector<std::string> tokens) : tokens_(std::move(tokens)) {}

  // One token a line, empty lines aside; white space around a token is not part of it. `path` is
  // where the text is from.
  static Result<AuthTokens> parse(const std::string& text, const std::string& path);

  size_t size() const { return tokens_.size(); }

  // `authorization` is the header's value, empty when there was none. UNAUTHENTICATED without a
  // bearer token, PERMISSION_DENIED with a wrong one. Takes the same time whatever the tokens are.
  Status check(std::string_view authorization) const;

 private:
  std::vector<std::string> tokens_;
};

// The tokens that are valid now. Any thread; a call is judged when it comes, by the tokens of then.
class Auth {
 public:
  void set(AuthTokens tokens);
  // As AuthTokens::check; OK for everybody until tokens are set.
  Status check(std::string_view authorization) const;

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const AuthTokens> tokens_;  // guarded by mutex_
};

}  // namespace pf
