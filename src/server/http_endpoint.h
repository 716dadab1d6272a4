#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"

namespace pf {

// A small HTTP server for operators: GET of a few fixed paths, nothing else.
class HttpEndpoint {
 public:
  struct Reply {
    int status = 200;
    std::string content_type, body;
  };
  using Handler = std::function<Reply(const std::string& path)>;  // status 404: no such path

  // `listen` is HOST:PORT; port 0 takes a free one. The handler runs on threads of this endpoint.
  static Result<std::unique_ptr<HttpEndpoint>> start(const std::string& listen, Handler handler);
  ~HttpEndpoint();

  int port() const;

 private:
  HttpEndpoint() = default;
  Handler handler_;
  std::string listen_;
  void* context_ = nullptr;  // of civetweb
};

}  // namespace pf
