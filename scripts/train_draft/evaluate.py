#!/usr/bin/env python3
"""Tokens per verify step of drafts on texts that nobody trained on, computed exactly (acceptance.py).

    python evaluate.py --model M.gguf --features features/held_greedy features/held_t07 --draft A.gguf B_FOLDER
                       [--k 4] [--json FILE]

A draft that is quantised is judged as its file is: so compare .gguf with .gguf.
"""
import argparse
import json
import sys

import torch

from acceptance import score
from data import Texts
from models import draft_of
from weights import load


def main():
    parser = argparse.ArgumentParser(description="Tokens per verify step, exactly.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--features", nargs="+", required=True)
    parser.add_argument("--draft", nargs="+", required=True)
    parser.add_argument("--k", type=int, default=4)
    parser.add_argument("--json")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--threads", type=int, default=0)
    args = parser.parse_args()
    if args.threads:
        torch.set_num_threads(args.threads)
    config, target = load(args.model)
    head = target.get("lm_head.weight", target["embed_tokens.weight"]).bfloat16().to(args.device)
    texts, found = Texts(args.features, config.width), {}
    for path in args.draft:
        draft = draft_of(*load(path), target).to(args.device)
        with torch.autocast(args.device, torch.bfloat16):
            found[path] = score(draft, head, texts, args.k, device=args.device)
        for temperature, f in found[path].items():
            print(f"{path}  T {temperature:g}  E {f['E']:.4f} over {f['tokens']} tokens  acceptance "
                  + " ".join(f"{a:.3f}" for a in f["acceptance"]) + "  "
                  + " ".join(f"{k} {e:.3f}" for k, e in f["kinds"].items()), flush=True)
    if args.json:
        with open(args.json, "w") as out:
            json.dump({"k": args.k, "drafts": found}, out, indent=1)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as e:
        print(f"evaluate.py: {e}", file=sys.stderr)
        sys.exit(2)
