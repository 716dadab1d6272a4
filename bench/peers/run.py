#!/usr/bin/env python3
"""Pilotfish beside llama.cpp and its fork ik_llama.cpp: the same file, threads and prompts, in turns.

    bench/peers/run.py --model models/SmolLM2-135M-Instruct.Q4_1.gguf            # everything, 2 threads
    bench/peers/run.py --model M.gguf --threads 1,2 --only decode,prefill --json peers.json
    bench/peers/run.py --model M.gguf --peers ik_llama.cpp --dtype int4

Makes a Python environment for each peer outside of the tree (--cache; first time: builds the PyPI
packages llama-cpp-python and ik-llama-cpp-python from source for this machine, many minutes with one job
each) and a copy of the model there whose matrices are all BF16, or all Q4_0: all programs run the same
weights. Both peers repack Q4_0 at run time, ik_llama.cpp where it is told so. Needs the release build.
With several peers every goal that names "the best" of them is judged against each.

Ours and a peer stay loaded, each in a process of its own on the same CPUs, and answer in turns A B, B A,
A B, ... Between them the memory probe runs; a round around which it moved by more than 10 % is dropped
and counted. Every figure is the median of the rounds' ratios. --realtime puts both into the FIFO class
(needs root): on a machine with other work, spinning threads that lose their CPU measure the neighbours.

    start        a new process each time: seconds from its start to the first token behind 64 (theirs
                 without the import of Python's modules), and MB resident then
    decode       128 tokens behind 64, K = 0      tokens/s, ours / theirs
    prefill      512 tokens                       likewise
    rows         m = 1..16 sequences together     T(m) / T(1) of both, and the ratio at each m
    sequences    8 and 32 in lockstep             tokens/s, ours / theirs
    speculation  128 tokens behind each prompt of prompts.json; ours as the server would, theirs by
                 llama.cpp's ngram-simple (n = 3, 8 tokens) and by llama-cpp-python's prompt lookup;
                 speed-up over each program's own plain run; is the text the plain one?

Left out, and said when it runs: speculation of ik_llama.cpp (its package has neither n-grams nor prompt
lookup), and its flash attention (it ends the process when sequences share a batch).
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PARTS = ["start", "decode", "prefill", "rows", "sequences", "speculation"]
MOST_PROBE_MOVE = 0.10
PEERS = {  # package, what imports it, folder of its environment, CMake options that it can do without
    "llama.cpp": ("llama-cpp-python==0.3.36", "llama_cpp", "venv",
                  ["LLAVA_BUILD", "LLAMA_CURL", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES",
                   "LLAMA_BUILD_TOOLS", "LLAMA_BUILD_SERVER"]),
    "ik_llama.cpp": ("ik-llama-cpp-python==0.1.5", "ik_llama_cpp", "venv-ik", ["GGML_IQK_FLASH_ATTENTION"]),
}
OTHER_PACKAGES = ["gguf==0.19.0", "numpy"]
# Goals of decode over a peer, by dtype; 1: "ahead in every row".
DECODE_GOALS = {("ik_llama.cpp", "bf16"): 1.15, ("ik_llama.cpp", "int4"): 1.2}


def say(text):
    print(f"== {text}", file=sys.stderr, flush=True)


def make_environment(cache, peer):
    """The Python of an environment that has the peer."""
    package, module, folder, off = PEERS[peer]
    python = cache / folder / "bin" / "python"
    if not python.exists():
        say(f"making a Python environment in {cache / folder}")
        cache.mkdir(parents=True, exist_ok=True)
        subprocess.run([sys.executable, "-m", "venv", cache / folder], check=True)
    if subprocess.run([python, "-c", f"import {module}, gguf"], capture_output=True).returncode:
        name = package.split("==")[0]
        say(f"building {name} from source with one job: this takes many minutes, once")
        environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "1",
                       "CMAKE_ARGS": " ".join(["-DGGML_NATIVE=ON"] + [f"-D{o}=OFF" for o in off])}
        subprocess.run(["nice", python, "-m", "pip", "install", "-q", "--no-binary", name, package,
                        *OTHER_PACKAGES], check=True, env=environment)
    return python


def make_copy(python, model, cache, dtype):
    """A copy of the model with all matrices in one type, made again when the model is younger."""
    kind = {"bf16": "BF16", "int4": "Q4_0"}[dtype]
    copy = cache / f"{model.stem}.{kind.lower()}.gguf"
    if not copy.exists() or copy.stat().st_mtime < model.stat().st_mtime:
        say(f"writing {copy}")
        subprocess.run([python, HERE / "copy_gguf.py", model, copy, kind], check=True)
    return copy


def check_instructions(peer, system):
    """A peer that was built without what the machine has is no peer: that is said, not hidden."""
    cpu = pathlib.Path("/proc/cpuinfo")
    has = cpu.exists() and "avx512_bf16" in cpu.read_text()
    if has and "AVX512_BF16 = 1" not in system:
        say(f"{peer} was built without AVX-512 BF16, which this machine has: its figures are not its best; "
            "remove its environment, and it is built for this machine")


class Worker:
    """A process that answers one JSON object a line."""

    def __init__(self, name, command, threads, realtime):
        cpus = sorted(os.sched_getaffinity(0))[:threads]

        def place():
            os.sched_setaffinity(0, cpus)
            if realtime:
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))

        self.name = name
        self.process = subprocess.Popen([str(c) for c in command], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True, preexec_fn=place)

    def ask(self, op, **fields):
        try:
            self.process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
            self.process.stdin.flush()
            reply = json.loads(self.process.stdout.readline() or "{}")
        except BrokenPipeError:
            reply = {}
        if not reply or "error" in reply:
            sys.exit(f"{self.name}: {reply.get('error', 'ended without an answer')}")
        time.sleep(0.01)  # its threads go to sleep before the other one's turn
        return reply

    def resident_mb(self):
        for line in open(f"/proc/{self.process.pid}/status"):
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return float("nan")

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)


class Bench:
    def __init__(self, peer, ours, theirs, probe, rounds, figures, goals):
        self.peer, self.ours, self.theirs, self.probe, self.n_rounds = peer, ours, theirs, probe, rounds
        self.figures, self.goals = figures, goals  # of all peers

    def read(self):
        return self.probe.ask("probe", seconds=0.03)["read_bytes_per_s"]

    def in_turns(self, run, rounds=None):
        """run(worker) -> anything; [(ours, theirs)] of the steady rounds, and how many were dropped."""
        kept, dropped, before = [], 0, self.read()
        rounds = rounds or self.n_rounds
        for i in range(3 * rounds):
            if len(kept) >= rounds:
                break
            order = [self.ours, self.theirs] if i % 2 == 0 else [self.theirs, self.ours]
            result, probes = {}, [before]
            for worker in order:
                result[worker] = run(worker)
                probes.append(self.read())
            before = probes[-1]
            if max(probes) > min(probes) * (1 + MOST_PROBE_MOVE):
                dropped += 1
            else:
                kept.append((result[self.ours], result[self.theirs]))
        return kept, dropped

    def pair(self, first, second, tries=3):
        """Both results, and whether the probe stood still around them in one of the tries."""
        for _ in range(tries):
            probes = [self.read()]
            results = []
            for run in (first, second):
                results.append(run())
                probes.append(self.read())
            if max(probes) <= min(probes) * (1 + MOST_PROBE_MOVE):
                return *results, True
        return *results, False

    def note(self, what, **values):
        self.figures.append({"what": what, "peer": self.peer, **values})
        cells = [f"{k} {v:.3g}" if isinstance(v, float) else f"{k} {v}" for k, v in values.items()]
        print(f"{what:34} " + "  ".join(cells), flush=True)

    def goal(self, id, name, value, goal, at_least=True):
        if any(g["id"] == id for g in self.goals):
            return  # of ours alone: it was judged beside the peer before
        passes = value is not None and (value >= goal if at_least else value <= goal)
        self.goals.append({"id": id, "name": name, "value": value, "goal": goal,
                           "at_least": at_least, "pass": passes})

    def compare(self, what, rate, run, rounds=None):
        """The ratio of rate(result), ours over theirs. None where no round was steady."""
        kept, dropped = self.in_turns(run, rounds)
        if not kept:
            self.note(what, pairs=0, dropped=dropped)
            return None
        ratios = [rate(a) / rate(b) for a, b in kept]
        low, _, high = statistics.quantiles(ratios, n=4, method="inclusive") if len(ratios) > 1 \
            else ratios * 3
        self.note(what, ratio=statistics.median(ratios), q1=low, q3=high, pairs=len(kept),
                  dropped=dropped, ours=statistics.median(rate(a) for a, _ in kept),
                  theirs=statistics.median(rate(b) for _, b in kept))
        return statistics.median(ratios)


def tokens_of(bench, n, seed=0):
    """n tokens of plain text."""
    text = (HERE / "run.py").read_text().split('"""')[1] * (1 + n // 200)
    return bench.theirs.ask("tokenize", text=text)["tokens"][seed:seed + n]


def run_start(bench, at):
    prompt = tokens_of(bench, 64)
    first, resident = {"ours": [], "theirs": []}, {"ours": [], "theirs": []}
    for i in range(max(3, bench.n_rounds // 2)):
        for name in ("ours", "theirs") if i % 2 == 0 else ("theirs", "ours"):
            began = time.perf_counter()
            worker = bench.start[name]()
            reply = worker.ask("decode", prompts=[prompt], n=1, k=0)
            took = time.perf_counter() - began
            first[name].append(reply["load_s"] + reply["prefill_s"] if "load_s" in reply else took)
            resident[name].append(worker.resident_mb())
            worker.close()
    middle = {n: (statistics.median(first[n]), statistics.median(resident[n])) for n in first}
    bench.note(f"start {at} {bench.peer}", ratio=middle["theirs"][0] / middle["ours"][0], ours_s=middle["ours"][0],
               theirs_s=middle["theirs"][0], ours_MB=middle["ours"][1], theirs_MB=middle["theirs"][1])
    bench.goal(f"peers.start.{at}", f"seconds from start to the first token, {at}", middle["ours"][0], 0.2,
               False)
    bench.goal(f"peers.resident.{at}", f"MB resident behind the first token, {at}", middle["ours"][1], 365,
               False)


def decode_rate(r):
    return sum(len(t) - 1 for t in r["tokens"]) / r["decode_s"]


def run_decode(bench, at):
    prompt = tokens_of(bench, 64)
    ratio = bench.compare(f"decode {at}", decode_rate,
                          lambda w: w.ask("decode", prompts=[prompt], n=bench.n_tokens, k=0))
    bench.goal(f"peers.decode.{at}.{bench.peer}", f"decode tokens/s over {bench.peer}'s, {at}", ratio,
               DECODE_GOALS.get((bench.peer, at.split(".")[0]), 1.0))


def run_prefill(bench, at):
    prompt = tokens_of(bench, 512)
    ratio = bench.compare(f"prefill {at}", lambda r: 512 / r["prefill_s"],
                          lambda w: w.ask("decode", prompts=[prompt], n=1, k=0))
    bench.goal(f"peers.prefill.{at}.{bench.peer}", f"prefill of 512 over {bench.peer}'s, {at}", ratio, 1.1)


def run_rows(bench, at):
    def both(m):
        def run(worker):
            one = worker.ask("rows", m=1, seconds=0.03)["step_s"]
            return one, worker.ask("rows", m=m, seconds=0.03)["step_s"]
        return run

    for m in range(1, 17):
        kept, dropped = bench.in_turns(both(m), max(3, bench.n_rounds // 2))
        if not kept:
            bench.note(f"rows m = {m} {at}", pairs=0, dropped=dropped)
            continue
        middle = lambda values: statistics.median(list(values))
        ours = middle(a[1] / a[0] for a, _ in kept)
        ratio = middle(b[1] / a[1] for a, b in kept)
        bench.note(f"rows m = {m} {at}", ratio=ratio, ours_T=ours,
                   theirs_T=middle(b[1] / b[0] for _, b in kept), pairs=len(kept), dropped=dropped)
        bench.goal(f"peers.rows{m}.{at}.{bench.peer}", f"steps/s of {m} sequences over {bench.peer}'s, {at}",
                   ratio, 1.0)
        if m == 4:
            bench.goal(f"peers.T4.{at}", f"T(4) / T(1) of a whole step, {at}", ours, 1.08, False)


def run_sequences(bench, at):
    for n in (8, 32):
        prompts = [tokens_of(bench, 24, 3 * i) for i in range(n)]
        ratio = bench.compare(f"{n} sequences {at}", decode_rate,
                              lambda w: w.ask("decode", prompts=prompts, n=32, k=0),
                              max(3, bench.n_rounds // 2))
        bench.goal(f"peers.sequences{n}.{at}.{bench.peer}",
                   f"tokens/s of {n} sequences over {bench.peer}'s, {at}", ratio, 1.3)


def chat(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def run_speculation(bench, at):
    if bench.peer != "llama.cpp":
        say(f"speculation is left out for {bench.peer}: its package has neither n-grams nor prompt lookup")
        return
    modes = {"ngram-simple": {"k": 8, "ngram": 3}, "prompt lookup": {"k": 8, "ngram": 3, "lookup": True}}
    for kind, texts in json.loads((HERE / "prompts.json").read_text()).items():
        texts = texts[:bench.n_prompts]
        gains = {name: [] for name in ["ours", *modes]}
        same, over, dropped = dict.fromkeys(gains, 0), [], 0
        for text in texts:
            prompt = bench.theirs.ask("tokenize", text=chat(text))["tokens"]
            ask = lambda w, **how: lambda: w.ask("decode", prompts=[prompt], n=bench.n_tokens, **how)
            ways = {"ours": (ask(bench.ours, k=0), ask(bench.ours, k=-1)),
                    **{m: (ask(bench.theirs, k=0), ask(bench.theirs, **how)) for m, how in modes.items()}}
            fastest = {}
            for name, (plain, drafted) in ways.items():
                base, best, steady = bench.pair(plain, drafted)
                same[name] += best["tokens"] == base["tokens"]
                fastest[name] = drafted, base["decode_s"] / best["decode_s"]
                dropped += not steady
                if steady:
                    gains[name].append(fastest[name][1])
            rival = max(modes, key=lambda m: fastest[m][1])
            mine, their, steady = bench.pair(ways["ours"][1], fastest[rival][0])
            dropped += not steady
            if steady:
                over.append(their["decode_s"] / mine["decode_s"])
        middle = lambda values: statistics.median(values) if values else None
        for name in gains:
            bench.note(f"speculation {kind} {at}: {name}", speedup=middle(gains[name]),
                       same_text=f"{same[name]}/{len(texts)}", pairs=len(gains[name]))
        bench.note(f"speculation {kind} {at}", ratio=middle(over), pairs=len(over), dropped=dropped)
        asked = 2.0 if kind == "repetitive" else 1.2
        bench.goal(f"peers.speedup.{kind}.{at}", f"speed-up over K = 0, {kind} prompts, {at}",
                   middle(gains["ours"]), asked)
        bench.goal(f"peers.speculation.{kind}.{at}",
                   f"with speculation over the better of llama.cpp's modes, {kind}, {at}", middle(over), 1.0)
        bench.goal(f"peers.text.{kind}.{at}", f"texts equal to the plain ones, {kind}, {at}",
                   same["ours"] / len(texts), 1.0)


def measure(o, peer, python, model, program, threads, figures, goals):
    """Everything that was asked for, of one peer with so many threads."""
    file = o.model if o.dtype == "bf16" else model  # converted at load, it is the copy
    command = [program, "worker", "--model", file, "--dtype", o.dtype, "--threads", threads]
    command += ["--draft", o.draft] if o.draft else []
    other = [python, HERE / "llama_worker.py", "--model", model, "--threads", threads]
    if peer == "ik_llama.cpp":
        other += ["--ik"] + (["--repack"] if o.dtype == "int4" else [])
    start = {"ours": lambda: Worker("pilotfish", command, threads, o.realtime),
             "theirs": lambda: Worker(peer, other, threads, o.realtime)}
    ours, theirs = start["ours"](), start["theirs"]()
    # The probe's memory is in a process of its own, so that residence is the engine's.
    probe = Worker("probe", [program, "worker", "--model", "tiny", "--threads", threads], threads, o.realtime)
    bench = Bench(peer, ours, theirs, probe, o.rounds, figures, goals)
    bench.start, bench.n_tokens, bench.n_prompts = start, o.tokens, o.prompts
    at = f"{o.dtype}.{threads}t"
    system = theirs.ask("info")["system"]
    check_instructions(peer, system)
    bench.note(f"built for, {at}", system=system)
    for part in o.only.split(","):
        globals()["run_" + part](bench, at)
    bench.note(f"resident MB {at}", ours=ours.resident_mb(), theirs=theirs.resident_mb())
    for worker in (ours, theirs, probe):
        worker.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--model", type=pathlib.Path, required=True, help="a GGUF file")
    parser.add_argument("--draft", help="a draft model for ours (n-grams need none)")
    parser.add_argument("--cache", type=pathlib.Path, help="environments and copies go there "
                        "[$XDG_CACHE_HOME/pilotfish-peers]")
    parser.add_argument("--peers", default=",".join(PEERS), help="of " + ",".join(PEERS) + " [all]")
    parser.add_argument("--dtype", default="bf16", choices=["bf16", "int4"],
                        help="of all matrices; int4: Q4_0, with int8 activations")
    parser.add_argument("--threads", default="2", help="e.g. 1,2")
    parser.add_argument("--only", default=",".join(PARTS), help="of " + ",".join(PARTS))
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--prompts", type=int, default=10, help="of each kind")
    parser.add_argument("--realtime", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    o = parser.parse_args()
    parts = o.only.split(",")
    program = ROOT / "build" / "release" / "pilotfish-bench"
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(unknown)} is none of {','.join(PARTS)}")
    if unknown := set(o.peers.split(",")) - set(PEERS):
        parser.error(f"--peers: {', '.join(unknown)} is none of {','.join(PEERS)}")
    for needed in (program, o.model):
        if not needed.exists():
            parser.error(f"{needed} is not there")
    cache = o.cache or pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") \
        / "pilotfish-peers"
    figures, goals = [], []
    for peer in o.peers.split(","):
        python = make_environment(cache, peer)
        model = make_copy(python, o.model.resolve(), cache, o.dtype)
        for threads in map(int, o.threads.split(",")):
            measure(o, peer, python, model, program, threads, figures, goals)
    print()
    for g in goals:
        value = "-" if g["value"] is None else f"{g['value']:.3f}"
        sign = ">=" if g["at_least"] else "<="
        print(f"{'PASS' if g['pass'] else 'MISS'}  {g['id']:44} {value:>7} {sign} {g['goal']}  {g['name']}")
    if o.json:
        o.json.write_text(json.dumps({"command": "peers", "model": o.model.name, "realtime": o.realtime,
                                      "figures": figures, "goals": goals}, indent=1) + "\n")


if __name__ == "__main__":
    main()
