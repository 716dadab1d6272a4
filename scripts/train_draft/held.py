#!/usr/bin/env python3
"""The evaluation's prompts as seeds for generate.py: python held.py --out held.jsonl [--prompts FILE]"""
import argparse
import json
import pathlib
import sys

PROMPTS = pathlib.Path(__file__).resolve().parents[2] / "bench/prompts/speculation.json"


def main():
    parser = argparse.ArgumentParser(description="Evaluation prompts as seeds.")
    parser.add_argument("--prompts", default=PROMPTS, type=pathlib.Path)
    parser.add_argument("--out", required=True)
    args = parser.parse_args()
    with open(args.out, "w") as out:
        for kind, prompts in json.loads(args.prompts.read_text()).items():
            for i, text in enumerate(prompts):
                out.write(json.dumps({"id": f"held.{kind}.{i}", "kind": kind, "system": None, "text": text}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
