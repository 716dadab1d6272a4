#!/usr/bin/env python3
"""Asks a running server and prints the answer as it comes. Knows the service by reflection alone: no
generated code. Needs grpcio and grpcio-reflection (scripts/setup.sh puts them into build/venv).

    build/venv/bin/python scripts/ask.py [--target HOST:PORT] [--max-new-tokens N] "prompt"
"""
import argparse
import sys
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "pilotfish.v1.Inference"


class Client:
    """Unary and streaming calls of one service, found by reflection."""

    def __init__(self, channel):
        self.channel = channel
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.service = pool.FindServiceByName(SERVICE)

    def method(self, name):
        m = self.service.FindMethodByName(name)
        request, reply = map(message_factory.GetMessageClass, (m.input_type, m.output_type))
        make = self.channel.unary_stream if m.server_streaming else self.channel.unary_unary
        call = make(f"/{SERVICE}/{name}", request.SerializeToString, reply.FromString)
        return request, call


def main():
    parser = argparse.ArgumentParser(description="Ask a Pilotfish server.")
    parser.add_argument("prompt")
    parser.add_argument("--target", default="127.0.0.1:50051")
    parser.add_argument("--max-new-tokens", type=int, default=192)
    parser.add_argument("--temperature", type=float, default=0.0)
    args = parser.parse_args()
    with grpc.insecure_channel(args.target) as channel:
        Request, call = Client(channel).method("GenerateStream")
        request = Request()
        message = request.messages.messages.add()
        message.role, message.content = "user", args.prompt
        request.sampling.temperature = args.temperature
        request.stopping.max_new_tokens = args.max_new_tokens
        request.output.timing = True
        began = time.monotonic()
        finish = None
        for chunk in call(request, timeout=300):
            print(chunk.text, end="", flush=True)
            if chunk.HasField("finish"):
                finish = chunk.finish
        seconds = time.monotonic() - began
    print()
    stats = finish.speculation
    decode_s = finish.timing.decode_us * 1e-6
    n = finish.num_generated_tokens
    rate = (n - 1) / decode_s if decode_s > 0 else 0
    print(f"== {n} tokens in {seconds:.2f} s, first after {finish.timing.ttft_us * 1e-3:.0f} ms, then "
          f"{rate:.0f} tokens/s; {stats.rounds} rounds, "
          f"{(n - 1) / stats.rounds if stats.rounds else 0:.2f} tokens each "
          f"({stats.accepted_tokens} of {stats.drafted_tokens} drafted tokens kept)")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except grpc.RpcError as e:
        print(f"ask.py: {e.code().name}: {e.details()}", file=sys.stderr)
        sys.exit(1)
