#!/usr/bin/env python3
"""Truth: the wire contract (proto/pilotfish/v1/inference.proto) and hand-worked cases, asked of the real
binary over a real connection by a client that knows the service by reflection alone.

    server_test.py BINARY REPORT.json"""
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

try:
    import grpc
    import serving
    from serving import DRAFT, MODEL, ROOT, Client, Server, code_of, free_port, status_of, until
except ImportError as error:
    grpc, missing = None, str(error)

BINARY = REPORT = None
server = client = None
PROMPT = "The capital of France is"


def ask(stream=False, **fields):
    fields.setdefault("text", PROMPT)
    return client.call("GenerateStream" if stream else "Generate",
                       client.request("GenerateStream" if stream else "Generate", **fields))


def a_stream_joins_to_the_unary_text():
    for sampling in ({}, {"temperature": 0.8, "seed": 5}):
        fields = dict(sampling=sampling, stopping={"max_new_tokens": 40}, output={"token_ids": True})
        unary = ask(**fields).completions[0]
        chunks = list(ask(stream=True, **fields))
        assert chunks[0].HasField("prompt") and not any(c.HasField("prompt") for c in chunks[1:])
        assert chunks[-1].HasField("finish") and not any(c.HasField("finish") for c in chunks[:-1])
        assert "".join(c.text for c in chunks) == unary.text
        assert sum(c.num_tokens for c in chunks) == unary.num_tokens
        assert [t for c in chunks for t in c.token_ids] == list(unary.token_ids)
        assert chunks[0].prompt.num_prompt_tokens == 5


def greedy_text_is_the_golden_one():
    golden = json.loads((ROOT / "tests/golden/logits.json").read_text())["prompts"]
    for p in golden[:3]:
        gaps, want = p["gap_top1_top2"], p["greedy64"]
        n = next((i for i, g in enumerate(gaps[:24]) if g < 0.46), 24)  # the bf16 bound of the backend's test
        if n == 0:
            continue
        got = client.call("Generate", client.request("Generate", token_ids={"ids": p["ids"]},
                                                     stopping={"max_new_tokens": n, "ignore_eos": True},
                                                     output={"token_ids": True}))
        assert list(got.completions[0].token_ids) == want[:n], p["name"]


def speculation_changes_no_word():
    for sampling in ({}, {"temperature": 0.7, "seed": 11}, {"repetition_penalty": 1.2, "presence_penalty": 0.5}):
        texts = set()
        for speculation in ({"mode": 2}, {}, {"mode": 3, "num_draft_tokens": 7, "drafters": ["model"]},
                            {"mode": 3, "num_draft_tokens": 3, "drafters": ["ngram"]},
                            {"mode": 3, "tree": [3, 2, 1], "drafters": ["model"]},
                            {"mode": 3, "tree_nodes": 12, "num_draft_tokens": 5, "drafters": ["model"]}):
            texts.add(ask(sampling=sampling, speculation=speculation, stopping={"max_new_tokens": 48}).completions[0].text)
        assert len(texts) == 1, texts


def chat_messages_use_the_models_template():
    reply = client.call("Generate", client.request("Generate", messages={"messages": [{"role": "user", "content": "Hi!"}]},
                                                   stopping={"max_new_tokens": 8}))
    assert reply.prompt.num_prompt_tokens > 20  # the default system prompt is part of it
    assert reply.completions[0].text


def siblings_have_their_own_text():
    reply = ask(n=3, sampling={"temperature": 1.0, "seed": 3}, stopping={"max_new_tokens": 24})
    assert [c.index for c in reply.completions] == [0, 1, 2]
    assert len({c.text for c in reply.completions}) > 1


def stop_strings_end_the_text():
    whole = ask(stopping={"max_new_tokens": 40}).completions[0].text
    stop = whole[6:10]
    cut = ask(stopping={"max_new_tokens": 40, "stop_strings": [stop]}).completions[0]
    assert cut.text == whole[:whole.index(stop)] and cut.finish.stop_string == stop
    kept = ask(stopping={"max_new_tokens": 40, "stop_strings": [stop], "include_stop_string": True}).completions[0]
    assert kept.text == whole[:whole.index(stop)] + stop
    chunks = list(ask(stream=True, stopping={"max_new_tokens": 40, "stop_strings": [stop]}))
    assert "".join(c.text for c in chunks) == cut.text


def the_context_and_the_length_end_where_they_should():
    ids = [504] * 512
    req = lambda n, **kw: client.call("Generate", client.request("Generate", token_ids={"ids": ids[:n]}, **kw)).completions[0]
    exact = req(512, stopping={"ignore_eos": True})
    assert exact.num_tokens == 1 and exact.finish.reason == 2, exact  # CONTEXT_FULL
    near = req(509, stopping={"ignore_eos": True})
    assert near.num_tokens == 4 and near.finish.reason == 2
    none = req(10, stopping={"max_new_tokens": 0})
    assert none.num_tokens == 0 and none.finish.reason == 1 and none.text == ""
    limited = req(10, stopping={"time_limit_ms": 1, "ignore_eos": True})
    assert limited.finish.reason == 6, limited.finish.reason


def log_probabilities_are_consistent():
    c = ask(stopping={"max_new_tokens": 6}, output={"top_logprobs": 3, "prompt_logprobs": True, "token_origins": True})
    assert len(c.prompt.prompt_logprobs) == c.prompt.num_prompt_tokens - 1
    first = c.completions[0]
    assert len(first.logprobs) == first.num_tokens == len(first.origins)
    for l in first.logprobs:
        assert l.logprob <= 0 and l.top[0].logprob == max(t.logprob for t in l.top) and len(l.top) == 3


NAN, V = float("nan"), 49152
# What is refused, by the field that is at fault.
BAD = [
    ("prompt", dict(text=None)), ("temperature", dict(sampling={"temperature": NAN})),
    ("temperature", dict(sampling={"temperature": -1})), ("top_p", dict(sampling={"top_p": 0})),
    ("top_p", dict(sampling={"top_p": 1.5})), ("min_p", dict(sampling={"min_p": 1})),
    ("top_k", dict(sampling={"top_k": -2})), ("presence_penalty", dict(sampling={"presence_penalty": 3})),
    ("frequency_penalty", dict(sampling={"frequency_penalty": NAN})),
    ("repetition_penalty", dict(sampling={"repetition_penalty": 0})),
    ("logit_bias", dict(sampling={"logit_bias": {V: 1.0}})), ("logit_bias", dict(sampling={"logit_bias": {1: 101.0}})),
    ("stop_token_ids", dict(stopping={"stop_token_ids": [V]})), ("stop_strings", dict(stopping={"stop_strings": [""]})),
    ("stop_strings", dict(stopping={"stop_strings": ["x"] * 17})), ("min_new_tokens", dict(stopping={"min_new_tokens": 9, "max_new_tokens": 8})),
    ("top_logprobs", dict(output={"top_logprobs": 21})), ("top_logprobs", dict(output={"top_logprobs": 2**31})),
    ("n", dict(n=0)), ("n", dict(n=17)), ("request_id", dict(request_id="a\nb")), ("request_id", dict(request_id="x" * 129)),
    ("cache_salt", dict(cache_salt="s" * 65)), ("priority", dict(priority=1001)),
    ("drafters", dict(speculation={"drafters": ["oracle"]})), ("num_draft_tokens", dict(speculation={"num_draft_tokens": 17})),
    ("num_draft_tokens", dict(speculation={"mode": 3})), ("tree", dict(speculation={"tree": [8, 8, 8]})),
    ("tree_nodes", dict(speculation={"tree_nodes": 65})),
    ("loss_budget", dict(speculation={"loss_budget": -1.0})),
]


def bad_requests():
    for field, fields in BAD:
        yield field, {k: v for k, v in {"text": PROMPT, **fields}.items() if v is not None}


def requests_are_refused_by_name():
    for field, fields in bad_requests():
        code, message = status_of(lambda: client.call("Generate", client.request("Generate", **fields)))
        assert code == "INVALID_ARGUMENT" and field in message, (field, code, message)
        code, _ = status_of(lambda: client.call("GenerateStream", client.request("GenerateStream", **fields)))
        assert code == "INVALID_ARGUMENT"
    for ids in ([V], [2**32 - 1], [504] * 513):
        code, message = status_of(lambda: client.call("Generate", client.request("Generate", token_ids={"ids": ids})))
        assert code == "INVALID_ARGUMENT", (code, message)
    assert status_of(lambda: ask(model="gpt"))[0] == "NOT_FOUND"
    secret = "my secret \x01 text"
    code, message = status_of(lambda: client.call("Generate", client.request("Generate", messages={"messages": [{"role": secret, "content": "x"}]})))
    assert code == "INVALID_ARGUMENT" and "secret" not in message


def a_text_that_cannot_fit_costs_nothing():
    huge = client.request("Generate", text="a" * 4_000_000)  # below max_request_bytes
    began = time.monotonic()
    code, message = status_of(lambda: client.call("Generate", huge))
    assert code == "INVALID_ARGUMENT" and "4000000 bytes" in message and "512 tokens" in message, (code, message)
    futures = [client.start("Generate", huge) for _ in range(8)]
    wide = server.connect(options=[("grpc.max_receive_message_length", -1)])
    futures += [wide.start("Tokenize", wide.request("Tokenize", text="a" * 4_000_000)) for _ in range(4)]
    assert ask(stopping={"max_new_tokens": 4}).completions[0].num_tokens == 4
    assert server.connect().call("Check", client.request("Check", service="")).status == 1  # a new connection
    for f in futures[8:]:
        assert len(f.result().ids) > 0
    print(f"       4 Tokenize calls of 4 MB and the rest in {time.monotonic() - began:.1f} s")


def what_is_no_limit_is_taken():
    c = ask(stopping={"max_new_tokens": 2**32 - 1, "stop_strings": ["\n"]}, sampling={"top_k": 10**6, "temperature": 0.5})
    assert c.completions[0].num_tokens >= 1


def tokens_go_there_and_back():
    golden = json.loads((ROOT / "tests/golden/tokenizer.json").read_text())
    for case in golden["cases"][:120]:
        if not case["text"] or case.get("lossy"):
            continue
        want = case["ids_special_as_text"] or case["ids"]
        got = client.call("Tokenize", client.request("Tokenize", text=case["text"]))
        assert list(got.ids) == want, case["text"]
        assert client.call("Detokenize", client.request("Detokenize", ids=want)).text == case["text"]
    info = client.call("GetModelInfo", client.request("GetModelInfo"))
    assert info.logits_width == 49152 and info.max_context == 512 and info.chat_template == "chatml"
    assert {d.name for d in info.drafters} == {"predicted", "ngram", "model"}


def ids_and_traces_are_echoed_and_unique():
    request = client.request("Generate", text=PROMPT, request_id="same", stopping={"max_new_tokens": 300, "ignore_eos": True})
    first = client.start("Generate", request)
    assert until(lambda: float(server.metrics()["pilotfish_num_requests_running"]) > 0)
    assert status_of(lambda: client.call("Generate", request))[0] == "ALREADY_EXISTS"
    first.cancel()
    call = client.call("GenerateStream", client.request("GenerateStream", text=PROMPT, stopping={"max_new_tokens": 2}),
                       metadata=(("x-request-id", "mine"), ("traceparent", "00-1-2-01")))
    seen = dict(call.initial_metadata())
    chunks = list(call)
    assert seen["x-request-id"] == "mine" and seen["traceparent"] == "00-1-2-01"
    assert chunks[0].prompt.request_id == "mine"


def cancel_and_deadline_free_the_cache():
    quiet = lambda: float(server.metrics()["pilotfish_kv_cache_usage_perc"]) == 0 and float(server.metrics()["pilotfish_num_requests_running"]) == 0
    assert until(quiet)
    long = client.request("GenerateStream", text=PROMPT, stopping={"max_new_tokens": 500, "ignore_eos": True})
    calls = [client.call("GenerateStream", long) for _ in range(4)]
    for call in calls:
        next(iter(call))
    for call in calls:
        call.cancel()
    assert until(quiet, 5), "cancelled calls hold the cache"
    code, _ = status_of(lambda: list(client.call("GenerateStream", long, timeout=0.4)))
    assert code == "DEADLINE_EXCEEDED"
    assert until(quiet, 5)


def a_lost_client_frees_the_cache():
    gone = server.connect()
    call = gone.call("GenerateStream", gone.request("GenerateStream", text=PROMPT, stopping={"max_new_tokens": 500, "ignore_eos": True}))
    next(iter(call))
    gone.channel.close()
    assert until(lambda: float(server.metrics()["pilotfish_num_requests_running"]) == 0, 5)


def bad_requests_do_not_hurt_good_streams():
    """RELIABILITY R1: 2,000 of them beside 16 streams at a time."""
    fields = dict(stopping={"max_new_tokens": 60, "ignore_eos": True})
    want = ask(**fields).completions[0].text
    hostile = [client.request("Generate", **f) for _, f in bad_requests()]
    seen = []

    def pester(first):
        for i in range(first, 2000, 4):
            seen.append(status_of(lambda: client.call("Generate", hostile[i % len(hostile)]))[0])

    threads = [threading.Thread(target=pester, args=(t,)) for t in range(4)]
    for t in threads:
        t.start()
    while True:
        streams = [ask(stream=True, **fields) for _ in range(16)]
        texts = ["".join(c.text for c in s) for s in streams]
        assert texts == [want] * 16
        if not any(t.is_alive() for t in threads):
            break
    assert len(seen) == 2000 and set(seen) == {"INVALID_ARGUMENT"}


def health_says_what_is_ready():
    for service in ("", "pilotfish.v1.Inference"):
        assert client.call("Check", client.request("Check", service=service)).status == 1
    assert status_of(lambda: client.call("Check", client.request("Check", service="other")))[0] == "NOT_FOUND"


def no_prompt_is_logged_and_no_label_holds_client_values():
    ask(text="a very private prompt", request_id="visible-id", stopping={"max_new_tokens": 2})
    for line in server.metrics():
        assert "private" not in line and "visible-id" not in line
    for name in ("cod_accept_rate", "pilotfish_cod_accept_rate", "pilotfish_spec_decode_num_accepted_tokens_total",
                 "pilotfish_generation_tokens_total", "pilotfish_num_preemptions_total"):
        assert any(line.split("{")[0] == name for line in server.metrics()), name


def sigterm_drains():
    global server
    streams = [client.call("GenerateStream", client.request("GenerateStream", text=PROMPT, stopping={"max_new_tokens": 60, "ignore_eos": True}))
               for _ in range(3)]
    for s in streams:
        next(iter(s))
    server.process.terminate()
    time.sleep(0.1)
    code, _ = status_of(lambda: ask(stopping={"max_new_tokens": 1}))
    assert code == "UNAVAILABLE", code
    for s in streams:
        assert list(s)[-1].finish.reason == 1
    code, log = server.stop()
    assert code == 0, log
    assert "private prompt" not in log and "visible-id" in log


def a_full_queue_refuses_early():
    small = Server(BINARY, "--max-queue", "2", "--max-num-seqs", "1")
    c = small.connect()
    request = c.request("Generate", text=PROMPT, stopping={"max_new_tokens": 300, "ignore_eos": True})
    futures = [c.start("Generate", request) for _ in range(12)]
    refused = []
    assert until(lambda: sum(f.done() for f in futures) >= 6, 20)
    for f in futures:
        if f.done() and f.exception() is not None:
            refused.append(f)
            assert f.code().name == "RESOURCE_EXHAUSTED", f.code()
            assert dict(f.trailing_metadata()).get("grpc-retry-pushback-ms")
    assert len(refused) >= 6
    for f in futures:
        f.cancel()
    assert small.stop()[0] == 0


def a_token_guards_everything_but_health():
    path = ROOT / "build/test-token"
    path.write_text("s3cret\n")
    guarded = Server(BINARY, "--auth-token-file", str(path))
    c = guarded.connect()
    request = c.request("Generate", text=PROMPT, stopping={"max_new_tokens": 1})
    assert status_of(lambda: c.call("Generate", request))[0] == "UNAUTHENTICATED"
    for token in ("wrong", "s3cre", "s3cret2", "x" * 5000):
        assert status_of(lambda: c.call("Generate", request, metadata=(("authorization", "Bearer " + token),)))[0] == "PERMISSION_DENIED"
    assert c.call("Generate", request, metadata=(("authorization", "Bearer s3cret"),)).completions
    assert c.call("Check", c.request("Check", service="")).status == 1
    path.write_text("other\n")
    guarded.process.send_signal(signal.SIGHUP)
    old, new = (("authorization", "Bearer s3cret"),), (("authorization", "Bearer other"),)
    assert until(lambda: code_of(lambda: c.call("Generate", request, metadata=old)) == "PERMISSION_DENIED", 5)
    assert c.call("Generate", request, metadata=new).completions
    code, log = guarded.stop()
    assert code == 0 and "files read again taken_up=" in log and "tokens=1" in log, log


def a_client_of_ours_says_what_is_wrong():
    """`health` and `top`: one line each; 2 for a usage error, 1 for a check that says no."""
    cases = [(["health", "--target", "bad"], 2, "needs HOST:PORT"),
             (["top", "--target", ":1"], 2, "no host"),
             (["health", "--target", server.target, "--tls-ca", str(MODEL)], 2, "--tls-ca"),
             (["health", "--target", f"127.0.0.1:{free_port()}"], 1, "does not answer"),
             (["top", "--target", server.target, "--count", "1"], 1, "--admin-listen"),
             (["serve", "--model", "x", "--listen", ":41060"], 2, "no host in front of the port")]
    for args, code, words in cases:
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=30)
        assert done.returncode == code and words in done.stderr and done.stderr.count("\n") == 1, (args, done)
    done = subprocess.run([BINARY, "serve", "--model", "/nonexistent.gguf", "--log-format", "json", "--listen",
                           f"127.0.0.1:{free_port()}", "--metrics-listen", ""], capture_output=True, text=True, timeout=30)
    last = json.loads(done.stderr.splitlines()[-1])
    assert done.returncode == 2 and "/nonexistent.gguf" in last["why"] and last["level"] == "error", done


def a_second_sigterm_ends_at_once():
    s = Server(BINARY, "--drain-timeout", "60s")
    c = s.connect()
    call = c.call("GenerateStream", c.request("GenerateStream", text=PROMPT, stopping={"max_new_tokens": 500, "ignore_eos": True}))
    next(iter(call))
    s.process.terminate()
    time.sleep(0.3)
    assert s.process.poll() is None, "it does not drain"
    began = time.monotonic()
    s.process.terminate()
    assert s.process.wait(10) == 0
    assert time.monotonic() - began < 1


def operators_see_and_steer():
    target = f"127.0.0.1:{free_port()}"
    s = Server(BINARY, "--admin-listen", target)
    admin = Client(grpc.insecure_channel(target), ("pilotfish.v1.Admin",))
    top = subprocess.run([BINARY, "top", "--target", target, "--count", "1"], capture_output=True, text=True, timeout=30)
    assert top.returncode == 0 and "ready" in top.stdout, top
    assert admin.call("GetServerInfo", admin.request("GetServerInfo")).memory.total_bytes > 0
    policy = admin.call("SetPolicy", admin.request("SetPolicy", alpha=0.7, drafters=["ngram"]))
    assert abs(policy.alpha - 0.7) < 1e-6 and list(policy.drafters) == ["ngram"], policy
    plan = admin.call("PlanMemory", admin.request("PlanMemory", flags={"max-model-len": "128"}))
    assert plan.fits and plan.max_context == 128 and plan.parts, plan
    admin.call("Drain", admin.request("Drain", timeout_ms=100))
    assert s.process.wait(20) == 0
    gone = subprocess.run([BINARY, "top", "--target", target, "--count", "1"], capture_output=True, text=True, timeout=30)
    assert gone.returncode == 1 and "--admin-listen" in gone.stderr, gone


def mistakes_of_the_operator_are_one_line_and_exit_2():
    garbage = ROOT / "build/garbage.gguf"
    garbage.write_bytes(b"GGUF" + bytes(range(64)))
    config = ROOT / "build/wrong.toml"
    config.write_text("max-num-seqz = 3\n")
    busy = Server(BINARY)
    cases = [
        (["serve", "--model", "/nonexistent.gguf"], "/nonexistent.gguf"),
        (["serve", "--model", str(garbage)], "garbage.gguf"),
        (["serve", "--model", str(MODEL), "--listen", busy.target], busy.target),
        (["serve", "--model", str(MODEL), "--max-model-len", "99999"], "8192"),
        (["serve", "--model", str(MODEL), "--draft", str(garbage)], "garbage.gguf"),
        (["serve", "--model", str(MODEL), "--config", str(config)], "max-num-seqz"),
        (["serve", "--model", str(MODEL), "--kv-blocks", "3"], "--kv-blocks to 517 or more"),
        (["serve", "--no-such-flag"], "--no-such-flag"),
        (["generate", "--model", str(MODEL), "--prompt", "x", "--speculation", "oracle"], "oracle"),
        (["inspect", "/nonexistent"], "/nonexistent"),
    ]
    for args, word in cases:
        done = subprocess.run([BINARY, *args], capture_output=True, text=True, timeout=60, cwd=ROOT)
        assert done.returncode == 2, (args, done.returncode, done.stderr)
        said = [line for line in done.stderr.splitlines() if line.startswith("pilotfish")]  # besides the log
        assert len(said) == 1 and word in said[0] and done.stderr.endswith(said[0] + "\n"), (args, done.stderr)
    busy.stop()


def generate_gives_the_same_text_without_a_network():
    args = [BINARY, "generate", "--model", str(MODEL), "--prompt", PROMPT, "--max-new-tokens", "24"]
    texts = {subprocess.run([*args, *more], capture_output=True, text=True, cwd=ROOT, check=True).stdout
             for more in (["--speculation", "off"], ["--draft", str(DRAFT), "--speculation", "ngram,model"])}
    assert len(texts) == 1 and "Paris" in texts.pop()


TESTS = [a_stream_joins_to_the_unary_text, greedy_text_is_the_golden_one, speculation_changes_no_word,
         chat_messages_use_the_models_template, siblings_have_their_own_text, stop_strings_end_the_text,
         the_context_and_the_length_end_where_they_should, log_probabilities_are_consistent,
         requests_are_refused_by_name, a_text_that_cannot_fit_costs_nothing, what_is_no_limit_is_taken, tokens_go_there_and_back,
         ids_and_traces_are_echoed_and_unique, cancel_and_deadline_free_the_cache, a_lost_client_frees_the_cache,
         bad_requests_do_not_hurt_good_streams, health_says_what_is_ready,
         no_prompt_is_logged_and_no_label_holds_client_values, sigterm_drains, a_full_queue_refuses_early,
         a_token_guards_everything_but_health, a_client_of_ours_says_what_is_wrong, operators_see_and_steer, a_second_sigterm_ends_at_once,
         mistakes_of_the_operator_are_one_line_and_exit_2, generate_gives_the_same_text_without_a_network]


def main():
    global BINARY, REPORT, server, client
    BINARY, REPORT = sys.argv[1:3]
    if grpc is None:
        reason = f"the Python clients are missing ({missing}): run scripts/setup.sh"
        print("skipped:", reason)
        case = {"name": "all", "classname": "Server", "result": "SKIPPED", "skipped": [{"message": reason}]}
        pathlib.Path(REPORT).write_text(json.dumps({"testsuites": [{"name": "Server", "testsuite": [case]}]}))
        return 0
    if not MODEL.exists():
        return serving.skip("Server", f"{MODEL.name} is missing: run scripts/get_model.sh", REPORT)
    server = Server(BINARY, "--speculation", "ngram,model")
    client = server.connect()
    wanted = sys.argv[3:]
    tests = [t for t in TESTS if not wanted or t.__name__ in wanted]
    try:
        return serving.run_tests("Server", tests, REPORT)
    finally:
        for process in Server.started:
            if process.poll() is None:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
