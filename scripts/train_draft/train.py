#!/usr/bin/env python3
"""Distils a draft from the target's own text.

    python train.py --model M.gguf --features features/a ... --init DRAFT --out runs/NAME --minutes 60
    python train.py ... --kind eagle --vocabulary 8192          # a fresh head, from the target's last layer
    python train.py ... --kind model --layers 0,1,29            # a fresh small model, from layers of the target
    python train.py ... --init DRAFT --lora 8 --kinds edit      # adapters on the last two layers, fc and head

Loss: cross-entropy to the target's distribution over the draft's tokens, a part `--argmax` of it to the target's
argmax alone; `--overlap` adds 1 - sum min(p, q), which is what a sampled draft loses. A head is unrolled `--depth`
times over its own outputs, as it will be used (weights 1, .8, .64). With --quantized the matrices are seen as Q4_1,
which is what ships: the weights settle where rounding costs least.
Writes OUT/last.pt (with the optimiser: --resume goes on) and OUT/best.pt (best on texts held back by id).
"""
import argparse
import json
import math
import pathlib
import random
import sys
import time

import torch
import torch.nn.functional as F

from acceptance import score
from data import Texts, split
from models import draft_of, fresh_eagle, fresh_model
from weights import load

DECAY = 0.8


def options():
    p = argparse.ArgumentParser(description="Distil a draft.")
    p.add_argument("--model", required=True)
    p.add_argument("--features", nargs="+", required=True)
    p.add_argument("--out", required=True)
    p.add_argument("--init")
    p.add_argument("--kind", choices=["eagle", "model"])
    p.add_argument("--vocabulary", type=int, default=8192)
    p.add_argument("--layers", default="0,1,-1")
    p.add_argument("--kinds", help="only texts of these kinds, e.g. edit,code")
    p.add_argument("--lora", type=int, default=0, help="rank of the adapters; 0: train everything")
    p.add_argument("--lora-layers", type=int, default=2)
    p.add_argument("--quantized", action="store_true")
    p.add_argument("--minutes", type=float, default=60)
    p.add_argument("--steps", type=int, default=0, help="0: by the clock; else the learning rate falls by steps")
    p.add_argument("--lr", type=float, default=7e-4)
    p.add_argument("--rows", type=int, default=1536, help="padded rows of a step")
    p.add_argument("--depth", type=int, default=3)
    p.add_argument("--argmax", type=float, default=0.1)
    p.add_argument("--overlap", type=float, default=0.0)
    p.add_argument("--validation", type=float, default=0.03)
    p.add_argument("--judge-every", type=float, default=5, help="minutes")
    p.add_argument("--resume", action="store_true")
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=0)
    args = p.parse_args()
    if not args.init and not args.kind:
        p.error("give --init DRAFT, or --kind for a fresh one")
    return args


def frequent_tokens(texts, n, vocab):
    """The n tokens that answers use most; of equals the lower id, which byte-pair merging found earlier."""
    counts = torch.zeros(vocab, dtype=torch.double)
    for i in range(len(texts)):
        tokens, _, e = texts.get(i)
        counts += torch.bincount(tokens[e["n_prompt"]:], minlength=vocab)
    counts += torch.linspace(0.5, 0, vocab, dtype=torch.double)
    return counts.topk(min(n, vocab)).indices.sort().values


def make_draft(args, config, target, texts):
    if args.init:
        return draft_of(*load(args.init), target)
    d2t = frequent_tokens(texts, args.vocabulary, config.vocab)
    if args.kind == "eagle":
        return draft_of(*fresh_eagle(config, target, d2t), target)
    layers = [int(i) % config.n_layers for i in args.layers.split(",")]
    return draft_of(*fresh_model(config, target, d2t, layers), target)


def loss_of(draft, batch, args):
    """(loss, mean cross-entropy per depth)"""
    tokens, hidden, n_prompt, n, _ = batch
    n_chains = int((n - n_prompt).max()) - 1
    start = n_prompt + 1 - draft.lag
    grow = torch.arange(len(n), device=n.device)[:, None]
    chain = torch.arange(n_chains, device=n.device)
    total, parts = 0, []
    for s, y in enumerate(draft.outputs(tokens, hidden, start, n_chains, args.depth if draft.kind == "eagle" else 1)):
        teacher_row = n_prompt[:, None] + chain + s  # says the token behind it
        real = teacher_row <= n[:, None] - 2
        b = grow.expand(-1, n_chains)[real]
        with torch.no_grad():
            p = torch.softmax(F.linear(hidden[b, teacher_row[real]], draft.teacher).float(), -1)
            goal = (1 - args.argmax) * p
            goal.scatter_add_(1, p.argmax(-1, keepdim=True), torch.full_like(p[:, :1], args.argmax))
        log_q = torch.log_softmax(draft.head(y[real]).float(), -1)
        loss = -(goal * log_q).sum(-1).mean()
        parts.append(float(loss.detach()))
        if args.overlap:
            loss = loss + args.overlap * (1 - torch.minimum(p, log_q.exp()).sum(-1).mean())
        total = total + DECAY ** s * loss
    return total, parts


class Run:
    def __init__(self, args):
        self.args, self.out = args, pathlib.Path(args.out)
        self.out.mkdir(parents=True, exist_ok=True)
        config, target = load(args.model)
        kinds = args.kinds.split(",") if args.kinds else None
        def texts(held):
            return Texts(args.features, config.width, lambda e: split(e, args.validation) == held
                         and (kinds is None or e["kind"] in kinds))
        self.texts, self.judged = texts(False), texts(True)
        if not len(self.texts):
            raise ValueError("no text is left to train on; see --features and --kinds")
        self.head = target.get("lm_head.weight", target["embed_tokens.weight"]).bfloat16().to(args.device)
        self.draft = make_draft(args, config, target, self.texts)
        if args.lora:
            self.draft.adapt(args.lora, args.lora_layers)
        self.draft.quantize(args.quantized)
        self.draft.to(args.device).train()
        self.parameters = [p for p in self.draft.parameters() if p.requires_grad]
        self.optimizer = torch.optim.AdamW(
            [{"params": [p for p in self.parameters if p.dim() == 2], "weight_decay": 0.01},
             {"params": [p for p in self.parameters if p.dim() != 2], "weight_decay": 0}], lr=args.lr, betas=(0.9, 0.95))
        self.step = self.rows = 0
        self.best, self.spent = -1.0, 0.0
        if args.resume and (self.out / "last.pt").exists():
            self.restore()
        self.rnd = random.Random(args.seed + self.step)
        print(f"{len(self.texts)} texts, {self.texts.n_answer_tokens()} answer tokens; {len(self.judged)} texts held back; "
              f"{sum(p.numel() for p in self.parameters)} parameters", flush=True)

    def restore(self):
        state = torch.load(self.out / "last.pt", map_location=self.args.device, weights_only=True)
        self.draft.load_state_dict(state["draft"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step, self.rows, self.best, self.spent = (state[k] for k in ("step", "rows", "best", "spent"))

    def save(self, name):
        torch.save({"draft": self.draft.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step,
                    "rows": self.rows, "best": self.best, "spent": self.spent, "args": vars(self.args),
                    "tensors": {k: v.detach().cpu() for k, v in self.plain_state().items()}, "kind": self.draft.kind,
                    "config": vars(self.draft.c), "n_layers": len(self.draft.layers)}, self.out / name)

    def plain_state(self):
        """What ships: adapters merged in, and the weights themselves rather than what Q4_1 makes of them."""
        self.draft.quantize(False)
        state = self.draft.state()
        self.draft.quantize(self.args.quantized)
        return state

    def judge(self):
        if len(self.judged):
            with torch.autocast(self.args.device, torch.bfloat16):
                found = score(self.draft, self.head, self.judged, device=self.args.device)
            mean = sum(f["E"] for f in found.values()) / len(found)
            print(f"step {self.step} held back: mean E {mean:.4f}  " + "  ".join(
                f"T {t:g} E {f['E']:.4f}" for t, f in found.items()), flush=True)
        else:
            mean = self.best + 1
        if mean > self.best:
            self.best = mean
            self.save("best.pt")
        self.save("last.pt")

    def rate(self, seconds):
        """(share that is done, learning rate) after so many seconds of all runs together"""
        a = self.args
        done = self.step / a.steps if a.steps else seconds / (60 * a.minutes)
        fall = 0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        warm = max(1, min(30, a.steps // 10)) if a.steps else 30
        return done, a.lr * min(1, (self.step + 1) / warm) * fall

    def go(self):
        began = judged = said = time.monotonic()
        spent, queue, seen = self.spent, [], []
        self.judge()
        while True:
            done, lr = self.rate(spent + time.monotonic() - began)
            if done >= 1:
                break
            for group in self.optimizer.param_groups:
                group["lr"] = lr
            queue = queue or self.texts.batches(self.args.rows, self.rnd)
            batch = self.texts.batch(queue.pop(), self.args.device)
            with torch.autocast(self.args.device, torch.bfloat16):
                loss, parts = loss_of(self.draft, batch, self.args)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            self.step += 1
            self.rows += int((batch[3] - batch[2]).sum())
            seen.append(parts[0])
            now = time.monotonic()
            if now - said > 30:
                said = now
                print(f"step {self.step} {now - began:.0f} s lr {lr:.2e} cross-entropy {sum(seen) / len(seen):.4f} "
                      f"{self.rows} rows", flush=True)
                seen = []
            if now - judged > 60 * self.args.judge_every:
                self.spent = spent + now - began
                self.judge()
                judged = time.monotonic()
        self.spent = spent + time.monotonic() - began
        self.judge()
        print(json.dumps({"steps": self.step, "rows": self.rows, "best": self.best}))


if __name__ == "__main__":
    torch.manual_seed(0)
    try:
        Run(options()).go()
    except (OSError, ValueError, KeyError) as e:
        print(f"train.py: {e}", file=sys.stderr)
        sys.exit(2)
