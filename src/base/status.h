#pragma once

#include <optional>
#include <string>
#include <utility>

#include "base/check.h"

namespace pf {

// What went wrong, in the words of gRPC's status codes, so that the server maps one to one.
enum class Code {
  kOk,
  kInvalidArgument,
  kNotFound,
  kAlreadyExists,
  kPermissionDenied,
  kUnauthenticated,
  kResourceExhausted,
  kFailedPrecondition,
  kUnimplemented,
  kUnavailable,
  kInternal,
};

// The answer to something that may be refused. The message is one line: what, where, what to do.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // The same refusal, said in a wider context ("file: what was wrong in it").
  Status within(const std::string& context) const {
    return ok() ? *this : Status(code_, context + ": " + message_);
  }

 private:
  Code code_ = Code::kOk;
  std::string message_;
};

inline Status invalid(std::string message) {
  return Status(Code::kInvalidArgument, std::move(message));
}

// A value or the reason why there is none.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}         // NOLINT: implicit on purpose
  Result(Status status) : status_(std::move(status)) {  // NOLINT: implicit on purpose
    check(!status_.ok(), "a Result without a value needs a reason");
  }

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }

  // Requires: ok().
  T& operator*() { return require(), *value_; }
  const T& operator*() const { return require(), *value_; }
  T* operator->() { return require(), &*value_; }
  const T* operator->() const { return require(), &*value_; }
  T take() { return require(), std::move(*value_); }

 private:
  void require() const { check(ok(), "the value of a failed Result was used"); }

  Status status_;
  std::optional<T> value_;
};

}  // namespace pf
