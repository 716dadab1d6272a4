"""A Pilotfish server under test, and a client that knows it by reflection alone."""
import json
import pathlib
import signal
import socket
import subprocess
import time
import traceback
import urllib.request

import grpc
from google.protobuf import descriptor_pool, message_factory
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = ROOT / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
DRAFT = ROOT / "models/drafts/smollm2-3l/model.gguf"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class Client:
    def __init__(self, channel, services=("pilotfish.v1.Inference", "grpc.health.v1.Health")):
        self.channel = channel
        pool = descriptor_pool.DescriptorPool(ProtoReflectionDescriptorDatabase(channel))
        self.methods = {}
        for name in services:
            for m in pool.FindServiceByName(name).methods:
                self.methods[m.name] = (name, m, *map(message_factory.GetMessageClass, (m.input_type, m.output_type)))

    def request(self, method, **fields):
        return self.methods[method][2](**fields)

    def call(self, method, request, **kw):
        service, m, _, reply = self.methods[method]
        make = self.channel.unary_stream if m.server_streaming else self.channel.unary_unary
        stub = make(f"/{service}/{method}", lambda r: r.SerializeToString(), reply.FromString)
        return stub(request, timeout=kw.pop("timeout", 60), **kw)

    def start(self, method, request, **kw):
        """A unary call that runs on its own: a future."""
        service, _, _, reply = self.methods[method]
        stub = self.channel.unary_unary(f"/{service}/{method}", lambda r: r.SerializeToString(), reply.FromString)
        return stub.future(request, timeout=kw.pop("timeout", 60), **kw)


class Server:
    started = []  # all of them, so that none outlives a failed test

    def __init__(self, binary, *flags, model=True, wait=True, output=subprocess.PIPE, **popen):
        """`output`: where its log goes; `popen`: more of subprocess.Popen's arguments."""
        self.port, self.metrics_port = free_port(), free_port()
        self.target = f"127.0.0.1:{self.port}"
        args = [binary, "serve", "--listen", self.target, "--metrics-listen", f"127.0.0.1:{self.metrics_port}"]
        if model:
            args += ["--model", MODEL, "--draft", DRAFT, "--max-model-len", "512", "--threads", "2"]
        self.process = subprocess.Popen([*map(str, args), *flags], stdout=output,
                                        stderr=subprocess.STDOUT, text=True, cwd=ROOT, **popen)
        Server.started.append(self.process)
        if wait:
            self.wait_ready(binary)

    def wait_ready(self, binary):
        for _ in range(300):
            if subprocess.run([binary, "health", "--target", self.target], capture_output=True).returncode == 0:
                return
            if self.process.poll() is not None:
                raise RuntimeError("the server ended: " + self.process.stdout.read())
            time.sleep(0.1)
        raise RuntimeError("the server does not become ready")

    def connect(self, **kw):
        return Client(grpc.insecure_channel(self.target, **kw))

    def metrics(self):
        text = urllib.request.urlopen(f"http://127.0.0.1:{self.metrics_port}/metrics", timeout=5).read().decode()
        return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#"))

    def stop(self, sig=signal.SIGTERM, timeout=20):
        if self.process.poll() is None:
            self.process.send_signal(sig)
        try:
            self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        return self.process.returncode, self.process.stdout.read()


def status_of(call):
    """Status code and message of a call that must fail."""
    try:
        result = call()
        if hasattr(result, "__iter__") and not hasattr(result, "completions"):
            list(result)
    except grpc.RpcError as e:
        return e.code().name, e.details()
    raise AssertionError("the call was not refused")


def code_of(call):
    """Status code of a call that may fail, or not yet."""
    try:
        call()
    except grpc.RpcError as e:
        return e.code().name
    return "OK"


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.02)
    return False


def run_tests(name, tests, report):
    """Runs functions one after another and leaves a report of the form that scripts/count_tests.py reads."""
    cases, failed = [], 0
    for test in tests:
        case = {"name": test.__name__, "classname": name, "result": "COMPLETED"}
        try:
            test()
            print("ok    ", test.__name__, flush=True)
        except Exception:
            failed += 1
            case["failures"] = [{"failure": traceback.format_exc()}]
            print("FAILED", test.__name__, traceback.format_exc(), sep="\n", flush=True)
        cases.append(case)
    pathlib.Path(report).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(report).write_text(json.dumps({"testsuites": [{"name": name, "testsuite": cases}]}))
    return 1 if failed else 0


def skip(name, reason, report):
    print(f"skipped: {reason}")
    pathlib.Path(report).parent.mkdir(parents=True, exist_ok=True)
    case = {"name": "all", "classname": name, "result": "SKIPPED", "skipped": [{"message": reason}]}
    pathlib.Path(report).write_text(json.dumps({"testsuites": [{"name": name, "testsuite": [case]}]}))
    return 0
