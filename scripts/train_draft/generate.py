#!/usr/bin/env python3
"""Lets a running `pilotfish serve` answer seed prompts: the target's own text, as token ids, one JSON object a line:
{"id", "kind", "temperature", "prompt": [ids], "answer": [ids]}.

    python generate.py --seeds seeds.jsonl --out text.jsonl [--target 127.0.0.1:50051] [--minutes 60]

Many requests at once keep the server's steps wide. A second run goes on where the file ends. A seed without text is
answered twice: first the target goes on behind the header of a user's turn (at temperature 1), then it answers that.
"""
import argparse
import json
import os
import queue
import random
import sys
import threading
import time

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

SERVICE = "pilotfish.v1.Inference"
EOS = 3  # Finish.Reason


class Server:
    def __init__(self, channel):
        service = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel)).FindServiceByName(SERVICE)
        self.types, self.calls = {}, {}
        for name in ("Generate", "Tokenize"):
            m = service.FindMethodByName(name)
            request, reply = map(message_factory.GetMessageClass, (m.input_type, m.output_type))
            self.types[name] = request
            self.calls[name] = channel.unary_unary(f"/{SERVICE}/{name}", request.SerializeToString, reply.FromString)

    def render(self, system, text):
        """Token ids of a chat in the model's own template, up to where the answer begins."""
        request = self.types["Tokenize"]()
        for role, content in (("system", system), ("user", text)):
            if content is not None:
                request.messages.messages.add(role=role, content=content)
        return list(self.calls["Tokenize"](request, timeout=7200).ids)

    def answer(self, ids, temperature, most, top_p=1.0):
        """(token ids without the one that ended it, text, whether it ended by itself)"""
        request = self.types["Generate"]()
        request.token_ids.ids.extend(ids)
        request.sampling.temperature = temperature
        if top_p < 1:
            request.sampling.top_p = top_p
        request.stopping.max_new_tokens = most
        request.output.token_ids = True
        done = self.calls["Generate"](request, timeout=7200).completions[0]
        return list(done.token_ids), done.text, done.finish.reason == EOS


def wait_until_loaded(server, seconds=600):
    ends = time.monotonic() + seconds
    while True:
        try:
            return server.render(None, "A")
        except grpc.RpcError as e:
            if e.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > ends:
                raise
        time.sleep(1)


def header(server, system):
    """What stands before a user's words: the part that two chats with different words share."""
    a, b = server.render(system, "A"), server.render(system, "Q")
    n = next(i for i, (x, y) in enumerate(zip(a, b)) if x != y)
    return a[:n]


def answer_seed(server, seed, args, rnd):
    text = seed["text"]
    if text is None:
        _, text, ended = server.answer(header(server, seed["system"]), 1.0, args.max_turn_tokens, 0.95)
        text = text.strip()
        if not ended or len(text) < 8:
            return None
    prompt = server.render(seed["system"], text)
    if len(prompt) > args.max_prompt_tokens:
        return None
    temperature = rnd.choices(args.temperatures, args.shares)[0]
    ids, _, _ = server.answer(prompt, temperature, args.max_new_tokens)
    if len(ids) < 8:
        return None
    return {"id": seed["id"], "kind": seed["kind"], "temperature": temperature, "prompt": prompt, "answer": ids}


def answered(path):
    if not os.path.exists(path):
        return set()
    with open(path) as f:
        return {json.loads(line)["id"] for line in f if line.endswith("\n")}


def work(server, jobs, results, args, ends):
    while time.monotonic() < ends:
        try:
            seed = jobs.get_nowait()
        except queue.Empty:
            break
        try:
            results.put(answer_seed(server, seed, args, random.Random(seed["id"])))
        except grpc.RpcError as e:
            print(f"generate.py: {e.code().name}: {e.details()}", file=sys.stderr)
            if e.code() in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED):
                break
    results.put("end")


def main():
    parser = argparse.ArgumentParser(description="Generate the target's own text.")
    parser.add_argument("--seeds", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--target", default="127.0.0.1:50051")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--concurrency", type=int, default=48)
    parser.add_argument("--temperatures", type=float, nargs="+", default=[0.0, 0.7, 1.0])
    parser.add_argument("--shares", type=float, nargs="+", default=[0.45, 0.40, 0.15])
    parser.add_argument("--max-new-tokens", type=int, default=256)
    parser.add_argument("--max-turn-tokens", type=int, default=80)
    parser.add_argument("--max-prompt-tokens", type=int, default=400)
    args = parser.parse_args()
    if len(args.temperatures) != len(args.shares):
        parser.error("--temperatures and --shares need as many values")
    done = answered(args.out)
    jobs, results = queue.Queue(), queue.Queue()
    with open(args.seeds) as f:
        for line in f:
            seed = json.loads(line)
            if seed["id"] not in done:
                jobs.put(seed)
    n_tokens = n_texts = 0
    with grpc.insecure_channel(args.target) as channel, open(args.out, "a") as out:
        server = Server(channel)
        wait_until_loaded(server)
        began = said = time.monotonic()
        threads = [threading.Thread(target=work, args=(server, jobs, results, args, began + 60 * args.minutes))
                   for _ in range(args.concurrency)]
        for t in threads:
            t.start()
        running = len(threads)
        while running:
            result = results.get()
            if result == "end":
                running -= 1
            elif result is not None:
                out.write(json.dumps(result, separators=(",", ":")) + "\n")
                out.flush()
                n_texts += 1
                n_tokens += len(result["answer"])
            if time.monotonic() - said > 30:
                said = time.monotonic()
                print(f"{n_texts} answers, {n_tokens} tokens, {n_tokens / (said - began):.0f} tokens/s", flush=True)
        for t in threads:
            t.join()
    print(f"{n_texts} answers, {n_tokens} tokens in {time.monotonic() - began:.0f} s; {args.out} held {len(done)} before")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except grpc.RpcError as e:
        print(f"generate.py: {e.code().name}: {e.details()}", file=sys.stderr)
        sys.exit(1)
