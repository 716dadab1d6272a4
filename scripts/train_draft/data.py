"""Texts with the target's hidden states, on disk as three files of one folder:

    tokens.i32    all texts behind each other
    hidden.bf16   [that many, E]: the target's hidden state behind its final norm, at each token
    index.jsonl   {"offset", "n", "n_prompt", "temperature", "kind", "id"} per text
"""
import json
import pathlib
import random

import numpy as np
import torch


class Writer:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if (self.folder / "index.jsonl").exists():
            raise ValueError(f"{folder} holds texts already; give another folder")
        self.files = {n: open(self.folder / n, "wb") for n in ("tokens.i32", "hidden.bf16")}
        self.index, self.offset = open(self.folder / "index.jsonl", "w"), 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for f in (*self.files.values(), self.index):
            f.close()

    def add(self, tokens, hidden, n_prompt, **what):
        self.files["tokens.i32"].write(np.asarray(tokens, np.int32).tobytes())
        self.files["hidden.bf16"].write(hidden.bfloat16().contiguous().view(torch.int16).numpy().tobytes())
        for f in self.files.values():
            f.flush()
        self.index.write(json.dumps({"offset": self.offset, "n": len(tokens), "n_prompt": n_prompt, **what}) + "\n")
        self.index.flush()
        self.offset += len(tokens)


class Texts:
    """Several folders as one list of (tokens [n], hidden [n, E], entry)."""

    def __init__(self, folders, width, keep=lambda entry: True):
        self.entries, self.files, self.width = [], [], width
        for folder in map(pathlib.Path, folders):
            self.files.append((np.memmap(folder / "tokens.i32", np.int32, "r"),
                               np.memmap(folder / "hidden.bf16", np.int16, "r").reshape(-1, width)))
            with open(folder / "index.jsonl") as f:
                for entry in map(json.loads, f):
                    if entry["n"] - entry["n_prompt"] >= 4 and keep(entry):
                        self.entries.append(entry | {"file": len(self.files) - 1})

    def __len__(self):
        return len(self.entries)

    def n_answer_tokens(self):
        return sum(e["n"] - e["n_prompt"] for e in self.entries)

    def get(self, i):
        e = self.entries[i]
        tokens, hidden = (f[e["offset"]:e["offset"] + e["n"]] for f in self.files[e["file"]])
        return (torch.from_numpy(tokens.astype(np.int64)),
                torch.from_numpy(np.array(hidden)).view(torch.bfloat16), e)

    def batch(self, indices, device="cpu"):
        """Padded on the right: tokens [B, T], hidden [B, T, E], n_prompt [B], n [B], entries"""
        got = [self.get(i) for i in indices]
        n = torch.tensor([len(t) for t, _, _ in got])
        tokens = torch.zeros(len(got), int(n.max()), dtype=torch.long)
        hidden = torch.zeros(len(got), int(n.max()), self.width, dtype=torch.bfloat16)
        for b, (t, h, _) in enumerate(got):
            tokens[b, :len(t)], hidden[b, :len(t)] = t, h
        n_prompt = torch.tensor([e["n_prompt"] for _, _, e in got])
        return tokens.to(device), hidden.to(device), n_prompt.to(device), n.to(device), [e for _, _, e in got]

    def batches(self, rows, rnd=None):
        """Lists of indices whose padded size is at most `rows`: texts of like length together, in random order."""
        order = sorted(range(len(self)), key=lambda i: self.entries[i]["n"] + (rnd.random() * 16 if rnd else 0))
        out, current = [], []
        for i in order:
            if current and (len(current) + 1) * self.entries[i]["n"] > rows:
                out.append(current)
                current = []
            current.append(i)
        out += [current] if current else []
        if rnd:
            rnd.shuffle(out)
        return out


def split(entry, share):
    """Whether a text belongs to the part that is held back for choosing a checkpoint; by its id alone."""
    return random.Random(f"split {entry['id']}").random() < share
