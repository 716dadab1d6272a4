#!/usr/bin/env python3
"""Truth: RELIABILITY R15 and R20. The real binary, with a model of a few kilobytes, under a mix of clients
that are good, impatient, slow, malformed and killed; stopped and continued; with a full disk and failing
calls of the system. What a good client gets is what it gets on a quiet server, to the byte.

    soak.py BINARY KILLED_CLIENT FAILING_CALLS REPORT [--minutes 10] [--seed 1]"""
import argparse
import json
import math
import os
import pathlib
import random
import resource
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "server"))
try:
    import grpc
    import serving
    from serving import Client, Server, status_of, until
except ImportError as error:
    grpc, missing = None, str(error)

# What share of the clients is what. RELIABILITY R15.
MIX = {"normal": 60, "cancel": 15, "deadline": 10, "slow": 5, "malformed": 5, "killed": 5}
N_CLIENTS = 12
known = None  # a Client: what reflection says
LATE_S = 1.5  # a deadline may be missed by so much on a machine whose CPUs are all busy with clients


def byte_letters():
    """The letters that stand for bytes in tokenizer.json (GPT-2's alphabet)."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(b) if b in printable else chr(next(others)) for b in range(256)]


def write_model(folder):
    """Two layers, bytes as tokens, weights by seed: a folder as Hugging Face has it."""
    E, F, H, G, D, V, L = 64, 96, 4, 2, 16, 257, 2
    rnd = random.Random(7)
    rows = {"model.embed_tokens.weight": (V, E), "model.norm.weight": (E,)}
    for i in range(L):
        p = f"model.layers.{i}."
        rows |= {p + "input_layernorm.weight": (E,), p + "post_attention_layernorm.weight": (E,),
                 p + "self_attn.q_proj.weight": (H * D, E), p + "self_attn.k_proj.weight": (G * D, E),
                 p + "self_attn.v_proj.weight": (G * D, E), p + "self_attn.o_proj.weight": (E, H * D),
                 p + "mlp.gate_proj.weight": (F, E), p + "mlp.up_proj.weight": (F, E), p + "mlp.down_proj.weight": (E, F)}
    header, data = {}, b""
    for name, shape in rows.items():
        n = math.prod(shape)
        raw = struct.pack(f"<{n}e", *([1.0] * n if len(shape) == 1 else [rnd.gauss(0, 0.2) for _ in range(n)]))
        header[name] = {"dtype": "F16", "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    (folder / "tokenizer.json").write_text(json.dumps({
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(byte_letters())}, "merges": []},
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False},
        "added_tokens": [{"id": 256, "content": "<|end|>", "special": True}]}))
    (folder / "config.json").write_text(json.dumps({
        "model_type": "llama", "num_hidden_layers": L, "hidden_size": E, "intermediate_size": F, "num_attention_heads": H,
        "num_key_value_heads": G, "head_dim": D, "max_position_embeddings": 512, "vocab_size": V, "rms_norm_eps": 1e-5,
        "rope_theta": 10000.0, "tie_word_embeddings": True, "eos_token_id": 256}))


def start(binary, folder, *more, **kw):
    """Its log goes to a file: a pipe that nobody reads would hold it up."""
    log = folder / f"{len(Server.started)}.log"
    kw.setdefault("output", open(log, "w"))
    flags = ["--model", str(folder), "--device", "cpu", "--threads", "1", "--max-model-len", "512", "--max-num-seqs", "16",
             "--kv-blocks", "200", "--draft", "self", "--draft-layers", "1", "--speculation", "ngram,model", *more]
    server = Server(binary, *flags, model=False, **kw)
    kw["output"].close()
    server.log = log
    return server


def stop(server):
    """Exit code and log."""
    if server.process.poll() is None:
        server.process.terminate()
    return server.process.wait(20), server.log.read_text(errors="replace")


def connect(server):
    """A connection of its own, not one that another client has; knows the service from the first server."""
    client = Client.__new__(Client)
    client.methods = known.methods
    client.channel = grpc.insecure_channel(server.target, options=[("grpc.use_local_subchannel_pool", 1)])
    return client


def figures(pid):
    """(resident bytes, descriptors) of a process."""
    pages = int(pathlib.Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize(), len(os.listdir(f"/proc/{pid}/fd"))


def idle(server):
    m = server.metrics()
    return all(float(m["pilotfish_" + k]) == 0 for k in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"))


class Soak:
    def __init__(self, server, killed_client, seconds, seed):
        self.server, self.killed_client, self.seconds, self.seed = server, killed_client, seconds, seed
        self.counts, self.wrong, self.lock = {}, [], threading.Lock()
        self.stopped_at = self.continued_at = 0.0
        self.end = time.monotonic() + seconds
        self.client = connect(server)
        self.cases = [self.case(i) for i in range(12)]
        self.texts = [self.client.call("Generate", c).completions[0].text for c in self.cases]

    def case(self, i):
        prompt = "".join(chr(97 + (i * 7 + j * j) % 26) for j in range(5 + 17 * i))
        sampling = {} if i % 3 else {"temperature": 0.8, "seed": i}
        return self.client.request("GenerateStream", text=prompt, sampling=sampling,
                                   stopping={"max_new_tokens": 20 + 15 * i, "ignore_eos": True})

    def count(self, what):
        with self.lock:
            self.counts[what] = self.counts.get(what, 0) + 1

    def run(self):
        threads = [threading.Thread(target=self.clients, args=(i,)) for i in range(N_CLIENTS)]
        for t in threads:
            t.start()
        time.sleep(self.seconds / 4)  # warm
        warm = figures(self.server.process.pid)
        time.sleep(self.seconds / 8)
        self.pause(min(30.0, self.seconds / 6))
        for t in threads:
            t.join()
        return warm

    def pause(self, seconds):
        self.stopped_at = time.monotonic()
        self.server.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.server.process.send_signal(signal.SIGCONT)
        self.continued_at = time.monotonic()

    def clients(self, number):
        rnd = random.Random(f"{self.seed}/{number}")
        client = connect(self.server)
        while time.monotonic() < self.end and not self.wrong:
            kind = rnd.choices(list(MIX), MIX.values())[0]
            try:
                getattr(self, kind)(client, rnd)
                self.count(kind)
            except grpc.RpcError as e:
                if e.code() == grpc.StatusCode.RESOURCE_EXHAUSTED:  # the queue is full: the client comes back
                    self.count("refused")
                    time.sleep(0.2)
                else:
                    self.wrong.append(f"{kind}: {e.code()}: {e.details()}")
            except AssertionError as e:
                self.wrong.append(f"{kind}: {e}")
        client.channel.close()

    def normal(self, client, rnd):
        i = rnd.randrange(len(self.cases))
        if rnd.random() < 0.5:
            text = client.call("Generate", self.cases[i], timeout=120).completions[0].text
        else:
            text = "".join(c.text for c in client.call("GenerateStream", self.cases[i], timeout=120))
        assert text == self.texts[i], f"case {i} has another text than on a quiet server"

    def endless(self, client, **fields):
        return client.request("GenerateStream", text="on and on", stopping={"max_new_tokens": 480, "ignore_eos": True}, **fields)

    def cancel(self, client, rnd):
        call = client.call("GenerateStream", self.endless(client), timeout=120)
        for _ in range(rnd.randrange(4)):
            next(call, None)
        call.cancel()
        try:
            for _ in call:
                pass
        except grpc.RpcError as e:
            if e.code() != grpc.StatusCode.CANCELLED:
                raise

    def deadline(self, client, rnd):
        began, patience = time.monotonic(), rnd.uniform(0.01, 0.4)
        try:
            list(client.call("GenerateStream", self.endless(client), timeout=patience))
        except grpc.RpcError as e:
            if e.code() != grpc.StatusCode.DEADLINE_EXCEEDED:
                raise
            assert time.monotonic() - began < patience + LATE_S, "a deadline is heard of late"

    def slow(self, client, rnd):
        call = client.call("GenerateStream", self.endless(client, output={"top_logprobs": 20, "token_ids": True}), timeout=120)
        next(call)
        time.sleep(rnd.uniform(0.5, 3))
        n = sum(c.num_tokens for c in call)
        assert n > 0, "a slow reader gets nothing"

    def malformed(self, client, rnd):
        if rnd.random() < 0.4:
            garbage = rnd.randbytes(rnd.randrange(1, 2000))
            if rnd.random() < 0.5:
                garbage = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + garbage
            with socket.create_connection(("127.0.0.1", self.server.port), timeout=60) as s:
                try:
                    s.sendall(garbage)
                except OSError:
                    pass  # the server has hung up before it was through
            return
        bad = rnd.choice([dict(sampling={"temperature": float("nan")}), dict(sampling={"top_p": 2}), dict(n=0),
                          dict(stopping={"stop_strings": [""]}), dict(request_id="a\nb"), dict(text="x" * 5000)])
        code, _ = status_of(lambda: client.call("Generate", client.request("Generate", **{"text": "x", **bad}), timeout=120))
        assert code == "INVALID_ARGUMENT", code

    def killed(self, client, rnd):
        child = subprocess.Popen([self.killed_client, self.server.target], stdout=subprocess.PIPE)
        child.stdout.read(1)  # it has begun, or was refused
        time.sleep(rnd.uniform(0, 0.05))
        child.kill()
        child.wait()
        child.stdout.close()


def soak(o, folder):
    server = start(o.binary, folder)
    _, quiet_descriptors = figures(server.process.pid)
    s = Soak(server, o.killed_client, 60 * o.minutes, o.seed)
    warm_bytes, _ = s.run()
    print("soak:", json.dumps(s.counts, sort_keys=True), flush=True)
    assert not s.wrong, s.wrong[:3]
    for kind in MIX:
        assert s.counts.get(kind, 0) > 0, f"no client was {kind}"
    assert until(lambda: idle(server), 20), "clients that are gone hold something"
    again = [s.client.call("Generate", c).completions[0].text for c in s.cases]
    assert again == s.texts
    s.client.channel.close()
    assert until(lambda: figures(server.process.pid)[1] <= quiet_descriptors + 4, 20), "descriptors are left open"
    grown = figures(server.process.pid)[0] - warm_bytes
    print(f"soak: {grown / 1e6:+.1f} MB since it was warm, of {warm_bytes / 1e6:.0f} MB", flush=True)
    assert grown < (16 << 20) + sum(s.counts.values()) * 105, "it grows"  # R14: 1 MB for 10,000 requests
    code, log = stop(server)
    assert code == 0, (code, log[-2000:])
    assert "fault" not in log and "hangs" not in log, log[-2000:]
    assert "the process stood still" in log or 60 * o.minutes / 6 < 6, "SIGSTOP was not noticed"


def serves(server, n=20):
    c = connect(server)
    r = c.request("Generate", text="hello", stopping={"max_new_tokens": 8, "ignore_eos": True})
    try:
        return len({c.call("Generate", r, timeout=20).completions[0].text for _ in range(n)}) == 1
    finally:
        c.channel.close()


def a_full_disk_for_logs_stops_nothing(o, folder):
    limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
    for kw in ({"output": open("/dev/full", "w")}, {"preexec_fn": limit}):
        server = start(o.binary, folder, **kw)
        assert serves(server, 200)
        server.process.terminate()
        assert server.process.wait(20) == 0
    assert server.log.stat().st_size == 2000, "the log was not cut"


def failing(o, seed, **one_of):
    return {**os.environ, "LD_PRELOAD": o.failing_calls, "PF_FAIL_SEED": str(seed),
            **{"PF_FAIL_" + k.upper(): str(v) for k, v in one_of.items()}}


def a_port_that_cannot_accept_serves_or_ends(o, folder):
    """gRPC 1.51 stops listening when accept fails: then the self-probe ends the process (R16)."""
    for one_of, codes in ((100, (0, 70)), (1, (70,))):
        server = start(o.binary, folder, wait=False, env=failing(o, o.seed, accept=one_of))
        deaf_since = time.monotonic()
        end = time.monotonic() + (20 if one_of > 1 else 45)
        while server.process.poll() is None and time.monotonic() < end:
            time.sleep(0.05)
            try:
                assert serves(server, 1)
                deaf_since = None
            except grpc.RpcError:
                deaf_since = deaf_since or time.monotonic()
                assert time.monotonic() - deaf_since < 40, "deaf, and still there"
        code, log = stop(server)
        assert code in codes, (code, log[-2000:])
        if code == 70:
            assert "pilotfish: fault: new connections are not answered" in log, log[-2000:]


def memory_that_is_refused_is_one_line(o, folder):
    """At the start and later: it serves, or says in one line why not. It dies of no signal, but where gRPC
    1.51 itself writes through a pointer that malloc has made null."""
    ends = {}
    for seed in range(12):
        for what in ("malloc", "mmap"):
            server = start(o.binary, folder, wait=False, env=failing(o, seed, **{what: 100 if seed % 2 else 10}))
            end = time.monotonic() + 10
            while server.process.poll() is None and time.monotonic() < end:
                try:
                    assert serves(server, 5)
                    break
                except grpc.RpcError:
                    time.sleep(0.1)
            code, log = stop(server)
            ends[what, code] = ends.get((what, code), 0) + 1
            assert code in (0, 2, 70) or code == -signal.SIGSEGV and "libgrpc" in log, (what, seed, code, log[-2000:])
            if code != 0:
                assert log.splitlines()[-1].startswith("pilotfish: "), (what, seed, log[-2000:])
    print("memory:", {f"{w} exit {c}": n for (w, c), n in sorted(ends.items())}, flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("binary"), p.add_argument("killed_client"), p.add_argument("failing_calls"), p.add_argument("report")
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--only")
    o = p.parse_args()
    if grpc is None:
        print(f"skipped: the Python clients are missing ({missing}): run scripts/setup.sh")
        return 77
    global known
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pf_soak_"))
    tests = [soak, a_full_disk_for_logs_stops_nothing, a_port_that_cannot_accept_serves_or_ends, memory_that_is_refused_is_one_line]

    def bound(test):
        run = lambda: test(o, folder)
        run.__name__ = test.__name__
        return run

    try:
        write_model(folder)
        first = start(o.binary, folder)
        known = first.connect()
        stop(first)
        return serving.run_tests("Soak", [bound(t) for t in tests if o.only in (None, t.__name__)], o.report)
    finally:
        for process in Server.started:
            if process.poll() is None:
                process.kill()
        shutil.rmtree(folder)


if __name__ == "__main__":
    sys.exit(main())
