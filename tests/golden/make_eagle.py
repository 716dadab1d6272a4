#!/usr/bin/env python3
"""Rewrites what the shipped EAGLE head says in eagle.json, with torch in float32 (scripts/train_draft/models.py):

    python tests/golden/make_eagle.py --model M.gguf --draft models/drafts/smollm2-eagle/model.gguf

Prompts, the target's first token and its last hidden state stay as the published model gave them. `draft_tokens`: the
chain of ten likeliest tokens; `top5`: [target id, logit] of each step.
"""
import argparse
import json
import pathlib
import sys

import torch

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "scripts" / "train_draft"))

from models import Target, draft_of  # noqa: E402
from weights import load  # noqa: E402

STEPS = 10


def chain(draft, hidden, ids):
    """ids: the prompt and the target's first token; hidden [n prompt, E]"""
    n, tokens, top = len(ids) - 1, list(ids), []
    for s in range(STEPS):
        t = torch.tensor([tokens])
        h = torch.zeros(1, len(tokens), hidden.shape[1])
        h[0, :n] = hidden
        *_, y = draft.outputs(t, h, torch.tensor([n - 1]), 1, s + 1)
        value, row = draft.head(y[0, 0]).topk(5)
        top.append([[int(draft.d2t[r]), round(float(v), 4)] for v, r in zip(value, row)])
        tokens.append(top[-1][0][0])
    return tokens[n + 1:], top


def main():
    parser = argparse.ArgumentParser(description="What the shipped head says.")
    parser.add_argument("--model", required=True)
    parser.add_argument("--draft", required=True)
    args = parser.parse_args()
    config, weights = load(args.model)
    target, draft = Target(config, weights).eval(), draft_of(*load(args.draft), weights).eval()
    path = HERE / "eagle.json"
    truth = json.loads(path.read_text())
    with torch.no_grad():
        for case in truth["cases"]:
            hidden = target(torch.tensor([case["input_ids"]]))[0]
            case["draft_tokens"], case["top5"] = chain(draft, hidden, case["input_ids"] + [case["first_token"]])
    path.write_text(json.dumps(truth, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
