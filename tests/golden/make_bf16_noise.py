#!/usr/bin/env python3
"""Makes logits_bf16_products.json: what rounding the inputs of every product to bf16 does to the logits;
and taps_file_weights.json: norms of the residual stream with the file's own weights.

make_bf16_noise.py MODEL.gguf (needs numpy and gguf). An independent float64 forward pass over the
texts of logits.json: weights rounded to bf16 as there; the rows that enter a product (QKV, output,
gate+up, down, head) and K and V rounded to bf16 (nearest even); everything else, the residual
stream included, in float64. Teacher-forced along the golden's own greedy text."""
import json
import pathlib
import sys

import gguf
import numpy as np

HERE = pathlib.Path(__file__).parent
L, E, H, G, D, THETA, EPS = 30, 576, 9, 3, 64, 100000.0, 1e-5


def bf16(x):
    u = np.ascontiguousarray(x, np.float32).view(np.uint32)
    u = (u + 0x7FFF + ((u >> 16) & 1)) & 0xFFFF0000
    return u.view(np.float32).astype(np.float64)


def read_weights(path, rounded):
    return {t.name: rounded(gguf.dequantize(t.data, t.tensor_type)) for t in gguf.GGUFReader(path).tensors}


def norm(x, w):
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + EPS) * w


def rope(x):  # [T, heads, D]; the file's order of rows: pairs are neighbours
    T = x.shape[0]
    angle = np.arange(T)[:, None] / THETA ** (np.arange(0, D, 2) / D)
    c, s = np.cos(angle)[:, None], np.sin(angle)[:, None]
    a, b = x[..., 0::2], x[..., 1::2]
    out = np.empty_like(x)
    out[..., 0::2], out[..., 1::2] = a * c - b * s, a * s + b * c
    return out


def float64(x):
    return np.asarray(x, np.float64)


def logits(w, ids, n_last, rounded, taps=None):
    r = rounded
    x = w["token_embd.weight"][ids]
    T = len(ids)
    causal = np.tril(np.ones((T, T), bool))
    for l in range(L):
        if taps is not None:
            taps.append(x)
        b = lambda name: w[f"blk.{l}.{name}.weight"]
        h = r(norm(x, b("attn_norm")))
        q = rope((h @ b("attn_q").T).reshape(T, H, D))
        k = r(rope((h @ b("attn_k").T).reshape(T, G, D)))
        v = r((h @ b("attn_v").T).reshape(T, G, D))
        o = np.empty((T, H, D))
        for i in range(H):
            s = np.where(causal, q[:, i] @ k[:, i // (H // G)].T / np.sqrt(D), -np.inf)
            p = np.exp(s - s.max(-1, keepdims=True))
            o[:, i] = p / p.sum(-1, keepdims=True) @ v[:, i // (H // G)]
        x = x + r(o.reshape(T, E)) @ b("attn_output").T
        h = r(norm(x, b("ffn_norm")))
        gate = h @ b("ffn_gate").T
        x = x + r(gate / (1 + np.exp(-gate)) * (h @ b("ffn_up").T)) @ b("ffn_down").T
    if taps is not None:
        taps.append(x)
    return r(norm(x[-n_last:], w["output_norm.weight"])) @ w["token_embd.weight"].T


def norms_of_taps(path, ids, rounded):
    taps = []
    logits(read_weights(path, rounded), ids, 1, float64, taps)
    return np.array([np.sqrt((x * x).sum(-1)) for x in taps])


def make_taps(path):
    truth = json.loads((HERE / "taps.json").read_text())
    ids = truth["ids"]
    stated = np.array([t["l2_per_position"] for t in truth["taps"][:L + 1]])
    check = abs(norms_of_taps(path, ids, bf16) / stated - 1).max()
    assert check < 1e-4, f"this pass differs from taps.json by a share of {check}"
    print("taps check", check)
    out = {"ids": ids, "l2": norms_of_taps(path, ids, float64).tolist()}
    (HERE / "taps_file_weights.json").write_text(json.dumps(out) + "\n")


def main():
    make_taps(sys.argv[1])
    w = read_weights(sys.argv[1], bf16)
    truth = json.loads((HERE / "logits.json").read_text())
    out = {"about": __doc__.split("\n\n")[1].replace("\n", " "), "prompts": []}
    for p in truth["prompts"]:
        n = len(p["positions"])
        ids = p["ids"] + p["greedy64"][:n - 1]
        exact, noisy = (logits(w, ids, n, r) for r in (float64, bf16))
        at = [pos["ids"] for pos in p["positions"]]
        check = max(abs(exact[k, at[k]] - p["positions"][k]["logits"]).max() for k in range(n))
        assert check < 1e-3, f"{p['name']}: this pass differs from logits.json by {check}"
        stated = [noisy[k, at[k]] for k in range(n)]
        noise = max(abs(stated[k] - exact[k, at[k]]).max() for k in range(n))
        out["prompts"].append({
            "name": p["name"], "max_abs_logit_noise": noise,
            "logits": [[round(float(v), 5) for v in row] for row in stated]})
        print(p["name"], "check", check, "noise", noise)
    (HERE / "logits_bf16_products.json").write_text(json.dumps(out) + "\n")


main()
