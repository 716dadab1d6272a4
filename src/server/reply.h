#pragma once

#include <grpcpp/grpcpp.h>

#include <deque>
#include <memory>
#include <mutex>

#include "server/admission.h"

namespace pf {

// The gRPC half of a call. Events come from the dispatcher's thread, reactions from gRPC's; at most
// one operation of gRPC is under way, and no lock is held while one is begun. Each reply keeps
// itself alive until gRPC says OnDone.

// GenerateStream: chunks go out as they come. While the client does not read, chunks of one
// completion grow together in a bounded buffer; a client that blocks longer than slow_reader_us, or
// behind more than the buffer holds, is cancelled and delays nobody else.
class StreamReply : public grpc::ServerWriteReactor<wire::GenerateChunk> {
 public:
  static StreamReply* start(ServerState& state, grpc::CallbackServerContext* context,
                            PreparedRequest prepared);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  StreamReply(ServerState& state, grpc::CallbackServerContext* context);
  void deliver(Delivery delivery);
  void append(wire::GenerateChunk chunk);  // with mutex_ held
  void go_on();
  void check_reader();

  ServerState& state_;
  grpc::CallbackServerContext* context_;
  std::shared_ptr<StreamReply> self_;
  std::shared_ptr<Call> call_;
  std::mutex mutex_;  // guards all below
  std::deque<wire::GenerateChunk> pending_;
  size_t pending_bytes_ = 0;
  wire::GenerateChunk writing_;
  bool busy_ = false;  // an operation is under way
  int64_t write_began_us_ = 0;
  bool ended_ = false;     // nothing more is appended; `status_` is the end
  bool finished_ = false;  // Finish was called
  bool too_slow_ = false;
  bool cancelling_ = false;  // TryCancel is being called
  grpc::Status status_;
};

// Generate: the chunks grow into the one response.
class UnaryReply : public grpc::ServerUnaryReactor {
 public:
  static UnaryReply* start(ServerState& state, grpc::CallbackServerContext* context,
                           PreparedRequest prepared, wire::GenerateResponse* response);

  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryReply(ServerState& state, wire::GenerateResponse* response);
  void deliver(Delivery delivery);
  void finish(const grpc::Status& status);

  ServerState& state_;
  wire::GenerateResponse* response_;  // gRPC's, valid until Finish
  std::shared_ptr<UnaryReply> self_;
  std::shared_ptr<Call> call_;
  std::mutex mutex_;
  bool finished_ = false;  // guarded by mutex_
};

}  // namespace pf
