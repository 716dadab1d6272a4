#include "server/http_endpoint.h"

#include <civetweb.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "server/connect.h"

namespace pf {
namespace {

int answer(mg_connection* connection, void* handler) {
  const mg_request_info* info = mg_get_request_info(connection);
  std::string method = info->request_method;
  HttpEndpoint::Reply reply{405, "text/plain", "only GET is answered\n"};
  if (method == "GET" || method == "HEAD")
    reply = (*static_cast<HttpEndpoint::Handler*>(handler))(info->local_uri);
  mg_printf(connection,
            "HTTP/1.1 %d %s\r\nContent-Type: %s\r\nContent-Length: %zu\r\n"
            "Cache-Control: no-store\r\nConnection: close\r\n\r\n",
            reply.status, mg_get_response_code_text(connection, reply.status),
            reply.content_type.c_str(), reply.body.size());
  if (method != "HEAD") mg_write(connection, reply.body.data(), reply.body.size());
  return reply.status;
}

}  // namespace

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::start(const std::string& listen,
                                                          Handler handler) {
  std::unique_ptr<HttpEndpoint> endpoint(new HttpEndpoint);
  endpoint->handler_ = std::move(handler);
  endpoint->listen_ = listen;
  const char* options[] = {"listening_ports",    listen.c_str(), "num_threads", "3",
                           "request_timeout_ms", "5000",         nullptr};
  mg_callbacks callbacks{};
  callbacks.log_message = [](const mg_connection*, const char*) { return 1; };  // we say it below
  endpoint->context_ = mg_start(&callbacks, nullptr, options);
  if (endpoint->context_ == nullptr)
    return Status(Code::kUnavailable, listen +
                                          " cannot be listened on: is the port in use, or no "
                                          "address of this machine? choose another one");
  mg_set_request_handler(static_cast<mg_context*>(endpoint->context_), "/", answer,
                         &endpoint->handler_);
  return endpoint;
}

// civetweb notices its stop flag only when its wait for a connection ends, up to 2 s later: a
// connection of our own ends it.
HttpEndpoint::~HttpEndpoint() {
  if (context_ == nullptr) return;
  int bound = port();
  std::thread stopping([this] { mg_stop(static_cast<mg_context*>(context_)); });
  std::this_thread::sleep_for(std::chrono::milliseconds(10));  // the flag is set by then
  if (int fd = connect_to_self(listen_, bound, 1000); fd >= 0) close(fd);
  stopping.join();
}

int HttpEndpoint::port() const {
  mg_server_port ports[1];
  int n = mg_get_server_ports(static_cast<mg_context*>(context_), 1, ports);
  return n > 0 ? ports[0].port : 0;
}

}  // namespace pf
