#!/usr/bin/env python3
"""Makes heads.json: what small EAGLE-1 and EAGLE-3 heads say, by a reference written out in plain Python.

make_heads.py (needs nothing but Python). No weights are stored: value i of tensor `id` is a hash,
value() below, and the test makes the same ones. The layouts are those of the published heads: an
EAGLE-1 head adds fc and a layer without a norm in front to the target's embedding and output matrix;
an EAGLE-3 head fuses states of three layers, and its attention reads embedding and state side by
side. Each case: a text, states of the target made by value() too, and a greedy draft behind it."""
import json
import math
import pathlib

E, H, G, D, F, V, N_DRAFT, TAPS = 32, 2, 1, 16, 48, 40, 24, 3
EPS, THETA = 1e-5, 10000.0
MASK = (1 << 64) - 1
# Tensor ids.
(EMBED, TARGET_HEAD, FC, FC_BIAS, HIDDEN_NORM, INPUT_NORM, Q, K, VV, O, POST_NORM, GATE, UP, DOWN, NORM, HEAD,
 STATES) = range(17)


def value(tensor, i):
    """A multiple of 1/128 in (-1, 1): splitmix64 of the two numbers."""
    z = (tensor * 1000003 + i + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    z ^= z >> 31
    return (z % 255 - 127) / 128


def matrix(tensor, rows, cols, by):
    return [[value(tensor, r * cols + c) * by for c in range(cols)] for r in range(rows)]


def around_one(tensor):
    return [1 + value(tensor, i) / 4 for i in range(E)]


def times(w, x):
    return [sum(a * b for a, b in zip(row, x)) for row in w]


def norm(x, w):
    by = 1 / math.sqrt(sum(v * v for v in x) / len(x) + EPS)
    return [v * by * g for v, g in zip(x, w)]


def rotate(x, position):
    out = list(x)
    for h in range(0, len(x), D):
        for i in range(D // 2):
            angle = position * THETA ** (-2 * i / D)
            a, b = x[h + i], x[h + i + D // 2]
            out[h + i] = a * math.cos(angle) - b * math.sin(angle)
            out[h + i + D // 2] = b * math.cos(angle) + a * math.sin(angle)
    return out


class Head:
    """One layer with a cache of its rows."""

    def __init__(self, kind):
        self.eagle3 = kind == 'eagle3'
        wide = 2 * E if self.eagle3 else E
        self.embed = matrix(EMBED, V, E, 1)
        self.fc = matrix(FC, E, TAPS * E if self.eagle3 else 2 * E, 0.25)
        self.q, self.k, self.v = (matrix(t, n * D, wide, 0.25) for t, n in ((Q, H), (K, G), (VV, G)))
        self.o, self.gate, self.up = matrix(O, E, H * D, 0.25), matrix(GATE, F, E, 0.25), matrix(UP, F, E, 0.25)
        self.down, self.post = matrix(DOWN, E, F, 0.25), around_one(POST_NORM)
        self.keys, self.values = [], []

    def enter(self, token, state, own):
        """The residual stream in front of the layer, and what attention reads."""
        e = self.embed[token]
        if not self.eagle3:
            x = [a + value(FC_BIAS, i) / 4 for i, a in enumerate(times(self.fc, e + state))]
            return x, x  # no norm in front
        h = state if own else times(self.fc, state)
        return h, norm(e, around_one(INPUT_NORM)) + norm(h, around_one(HIDDEN_NORM))

    def row(self, token, state, own):
        """Logits, and the state that a next drafted token is fed with."""
        x, read = self.enter(token, state, own)
        position = len(self.keys)
        q = rotate(times(self.q, read), position)
        self.keys.append(rotate(times(self.k, read), position))
        self.values.append(times(self.v, read))
        mixed = []
        for h in range(H):
            scores = [sum(a * b for a, b in zip(q[h * D:(h + 1) * D], k)) / math.sqrt(D) for k in self.keys]
            most = max(scores)
            weights = [math.exp(s - most) for s in scores]
            mixed += [sum(w * v[d] for w, v in zip(weights, self.values)) / sum(weights) for d in range(D)]
        x = [a + b for a, b in zip(x, times(self.o, mixed))]
        n = norm(x, self.post)
        gate = [g / (1 + math.exp(-g)) * u for g, u in zip(times(self.gate, n), times(self.up, n))]
        x = [a + b for a, b in zip(x, times(self.down, gate))]
        if self.eagle3:
            return times(matrix(HEAD, N_DRAFT, E, 0.25), norm(x, around_one(NORM))), x
        return times(matrix(TARGET_HEAD, V, E, 0.25), x), x


def token_of_row(row):
    return row + row // 2  # 0, 1, 3, 4, 6, ...: below V


def case(kind, number, n_tokens, n_draft):
    head = Head(kind)
    width = TAPS * E if kind == 'eagle3' else E
    text = [(number * 17 + i * i * 7 + i * 3) % V for i in range(n_tokens)]
    for i in range(n_tokens - 1):
        states = [value(STATES + number, i * width + c) for c in range(width)]
        logits, said = head.row(text[i + 1], states, False)
    draft, all_logits = [], []
    for _ in range(n_draft):
        all_logits.append([round(v, 6) for v in logits])
        best = max(range(len(logits)), key=lambda r: logits[r])
        draft.append(token_of_row(best) if kind == 'eagle3' else best)
        logits, said = head.row(draft[-1], said, True)
    return {'kind': kind, 'number': number, 'text': text, 'draft': draft, 'logits': all_logits}


def main():
    cases = [case(kind, number, n, 4) for kind in ('eagle1', 'eagle3') for number, n in enumerate((2, 9, 21))]
    out = json.dumps({'cases': cases}).replace('}, {', '},\n {')
    (pathlib.Path(__file__).parent / 'heads.json').write_text(out + '\n')


if __name__ == '__main__':
    main()
