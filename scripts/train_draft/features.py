#!/usr/bin/env python3
"""Runs the target over generated text and keeps its hidden states: what train.py and evaluate.py read.

    python features.py --model M.gguf --text text.jsonl --held held_greedy.jsonl --out features/a

`--held`: texts of the evaluation. A text whose prompt shares a run of 12 tokens with one of their prompts (the
template's own tokens aside) is left out, so that nothing is trained on that is judged later. For the evaluation's own
features give no --held. A file that still grows is read as far as it goes; `--skip N` passes over what an earlier run took.
"""
import argparse
import json
import sys
import time

import torch

from data import Writer
from models import Target
from weights import load

RUN = 12


def runs(ids):
    return {tuple(ids[i:i + RUN]) for i in range(len(ids) - RUN + 1)}


def forbidden_runs(paths):
    prompts = []
    for path in paths:
        with open(path) as f:
            prompts += [runs(json.loads(line)["prompt"]) for line in f]
    if not prompts:
        return set()
    return set.union(*prompts) - (set.intersection(*prompts) if len(prompts) > 1 else set())


def texts(paths, skip, forbidden, counts):
    n = 0
    for path in paths:
        with open(path) as f:
            for line in f:
                if not line.endswith("\n"):
                    break
                n += 1
                if n <= skip:
                    continue
                text = json.loads(line)
                counts["read"] += 1
                if forbidden and not forbidden.isdisjoint(runs(text["prompt"])):
                    counts["left out"] += 1
                    continue
                yield text


def grouped(items, rows, window=256):
    """Batches of like length out of each window of texts."""
    held = []
    for item in items:
        held.append(item)
        if len(held) == window:
            yield from batches_of(held, rows)
            held = []
    yield from batches_of(held, rows)


def batches_of(items, rows):
    items.sort(key=lambda t: len(t["prompt"]) + len(t["answer"]))
    batch = []
    for item in items:
        if batch and (len(batch) + 1) * (len(item["prompt"]) + len(item["answer"])) > rows:
            yield batch
            batch = []
        batch.append(item)
    if batch:
        yield batch


def add_batch(out, target, batch, device):
    ids = [t["prompt"] + t["answer"] for t in batch]
    tokens = torch.zeros(len(ids), max(map(len, ids)), dtype=torch.long)
    for b, row in enumerate(ids):
        tokens[b, :len(row)] = torch.tensor(row)
    with torch.autocast(device, torch.bfloat16):
        hidden = target(tokens.to(device)).cpu()
    for b, text in enumerate(batch):
        out.add(ids[b], hidden[b, :len(ids[b])], len(text["prompt"]), temperature=text["temperature"], kind=text["kind"],
                id=text["id"])
    return sum(map(len, ids))


def main():
    parser = argparse.ArgumentParser(description="Hidden states of generated text.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--held", nargs="*", default=[])
    parser.add_argument("--out", required=True)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1024, help="padded rows of a pass")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    config, weights = load(args.model)
    target = Target(config, weights).to(args.device).eval()
    counts, n_tokens, began = {"read": 0, "left out": 0}, 0, time.monotonic()
    with Writer(args.out) as out:
        for batch in grouped(texts(args.text, args.skip, forbidden_runs(args.held), counts), args.rows):
            n_tokens += add_batch(out, target, batch, args.device)
    seconds = time.monotonic() - began
    print(f"{counts['read']} texts read, {counts['left out']} left out; {n_tokens} tokens in {seconds:.0f} s "
          f"({n_tokens / seconds:.0f} a second) to {args.out}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as e:
        print(f"features.py: {e}", file=sys.stderr)
        sys.exit(2)
