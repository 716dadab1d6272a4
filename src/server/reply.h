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

// The call behind a reply. One thread may submit it while the client leaves on another.
class Submission {
 public:
  explicit Submission(ServerState& state) : state_(state) {}

  // Hands the call to the engine; nothing to a client that has left already. A refused call calls
  // `deliver` never.
  Status submit(PreparedRequest prepared, std::function<void(Delivery)> deliver);
  // The client has left, or is too slow.
  void cancel();
  bool cancelled() const;
  // Requires: something was delivered.
  const std::string& request_id() const { return call_->answer.options().request_id; }

 private:
  ServerState& state_;
  mutable std::mutex mutex_;
  bool cancelled_ = false, submitted_ = false;  // guarded by mutex_
  std::shared_ptr<Call> call_;                  // before it is submitted
};

// GenerateStream: chunks go out as they come. While the client does not read, chunks of one
// completion grow together in a bounded buffer; a client that blocks longer than slow_reader_us, or
// behind more than the buffer holds, is cancelled and delays nobody else.
class StreamReply : public grpc::ServerWriteReactor<wire::GenerateChunk>,
                    public std::enable_shared_from_this<StreamReply> {
 public:
  // The request is tokenised here, or by the workers when it is long.
  static StreamReply* start(ServerState& state, grpc::CallbackServerContext* context,
                            const wire::GenerateRequest& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  StreamReply(ServerState& state, grpc::CallbackServerContext* context);
  void begin(const wire::GenerateRequest& request, const Admitted& admitted);
  void end(const grpc::Status& status);
  void refuse(const Status& status);
  void deliver(Delivery delivery);
  void append(wire::GenerateChunk chunk);  // with mutex_ held
  void go_on();
  void check_reader();

  template <class Reply>
  friend void begin_in_time(ServerState&, const std::shared_ptr<Reply>&,
                            const wire::GenerateRequest&, Admitted);

  ServerState& state_;
  grpc::CallbackServerContext* context_;
  std::shared_ptr<StreamReply> self_;
  Submission submission_;
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
class UnaryReply : public grpc::ServerUnaryReactor,
                   public std::enable_shared_from_this<UnaryReply> {
 public:
  static UnaryReply* start(ServerState& state, grpc::CallbackServerContext* context,
                           const wire::GenerateRequest& request, wire::GenerateResponse* response);

  void OnCancel() override;
  void OnDone() override;

 private:
  UnaryReply(ServerState& state, grpc::CallbackServerContext* context,
             wire::GenerateResponse* response);
  void begin(const wire::GenerateRequest& request, const Admitted& admitted);
  void refuse(const Status& status);
  void deliver(Delivery delivery);
  void finish(const grpc::Status& status);
  bool claim_finish();

  template <class Reply>
  friend void begin_in_time(ServerState&, const std::shared_ptr<Reply>&,
                            const wire::GenerateRequest&, Admitted);

  ServerState& state_;
  grpc::CallbackServerContext* context_;
  wire::GenerateResponse* response_;  // gRPC's, valid until Finish
  std::shared_ptr<UnaryReply> self_;
  Submission submission_;
  std::mutex mutex_;
  bool finished_ = false;  // guarded by mutex_
};

}  // namespace pf
