// A client for soak.py to kill: asks HOST:PORT for a stream, says "x" on stdout once it has begun,
// and reads on.
#include <grpcpp/grpcpp.h>

#include <cstdio>

#include "proto/pilotfish/v1/inference.grpc.pb.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  namespace wire = pilotfish::v1;
  auto stub =
      wire::Inference::NewStub(grpc::CreateChannel(argv[1], grpc::InsecureChannelCredentials()));
  wire::GenerateRequest request;
  request.set_text("a client that does not come back");
  request.mutable_stopping()->set_max_new_tokens(400);
  request.mutable_stopping()->set_ignore_eos(true);
  grpc::ClientContext context;
  auto reader = stub->GenerateStream(&context, request);
  wire::GenerateChunk chunk;
  for (bool first = true; reader->Read(&chunk); first = false)
    if (first) std::puts("x"), std::fflush(stdout);
  return reader->Finish().ok() ? 0 : 1;
}
