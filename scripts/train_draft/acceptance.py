"""Tokens per verify step, exactly, along texts that the target itself wrote.

Speculative sampling keeps the target's law, so a text of the target is as likely with a draft as without; and given
that it emits token t where the draft proposed by q, t came from the draft with probability min(1, q(t) / p(t))
(greedy: 1 when the draft's argmax is t). With a[c][s] that probability for the chain that begins at answer position c,
depth s, the expected number of verify steps is
    N(c) = 1 + sum over k of P(exactly k kept) N(c + k + 1).
"""
import torch
import torch.nn.functional as F


def n_steps(a, k_most):
    """a [R, depth] -> expected verify steps for R tokens behind the first one."""
    R, rows = len(a), a.tolist()
    steps = [0.0] * (R + k_most + 2)
    for c in range(R - 1, -1, -1):
        reach, total = 1.0, 1.0
        for s in range(k_most):
            keep = rows[c][s] if c + s < R else 0.0
            total += reach * (1 - keep) * steps[min(c + s + 1, R)]
            reach *= keep
        steps[c] = total + reach * steps[min(c + k_most + 1, R)]
    return steps[0]


@torch.no_grad()
def kept(draft, target_head, batch, depth):
    """Per text [R, depth]: the probability that the token at answer position 1 + c + s came from the draft of a chain
    that begins behind answer position c. Every text at its own temperature."""
    tokens, hidden, n_prompt, n, entries = batch
    n_chains = int((n - n_prompt).max()) - 1
    start = n_prompt + 1 - draft.lag
    out = [torch.zeros(int(n[b] - n_prompt[b]) - 1, depth) for b in range(len(entries))]
    for s, y in enumerate(draft.outputs(tokens, hidden, start, n_chains, depth)):
        for b, entry in enumerate(entries):
            R = int(n[b] - n_prompt[b]) - 1 - s  # chains whose token of this depth exists
            if R <= 0:
                continue
            logits = draft.head(y[b, :R]).float()
            first = int(n_prompt[b]) + 1 + s
            emitted = tokens[b, first:first + R]
            own = draft.t2d[emitted]
            if entry["temperature"] == 0:
                out[b][:R, s] = (logits.argmax(-1) == own).float().cpu()
                continue
            T = entry["temperature"]
            q = torch.log_softmax(logits / T, -1).gather(1, own.clamp(min=0)[:, None])[:, 0]
            full = F.linear(hidden[b, first - 1:first - 1 + R], target_head).float()
            p = torch.log_softmax(full / T, -1).gather(1, emitted[:, None])[:, 0]
            out[b][:R, s] = torch.where(own >= 0, (q - p).exp().clamp(max=1), torch.zeros(())).cpu()
    return out


def score(draft, target_head, texts, k_most=4, rows=1024, device="cpu"):
    """{temperature: {"E", "tokens", "acceptance": [per depth, given all before it], "kinds": {kind: E}}}"""
    was = draft.training
    draft.eval()
    found = {}
    for indices in texts.batches(rows):
        batch = texts.batch(indices, device)
        for a, entry in zip(kept(draft, target_head, batch, k_most), batch[4]):
            if len(a):
                found.setdefault(entry["temperature"], []).append((a, entry["kind"], n_steps(a, k_most)))
    draft.train(was)
    out = {}
    for temperature, items in sorted(found.items()):
        tokens, steps = sum(len(a) for a, _, _ in items), sum(s for _, _, s in items)
        acceptance = []
        for s in range(k_most):
            w = [(a[:len(a) - s, :s].prod(1), a[:len(a) - s, s]) for a, _, _ in items if len(a) > s]
            reached = sum(float(x.sum()) for x, _ in w)
            acceptance.append(sum(float((x * y).sum()) for x, y in w) / reached if reached else 0.0)
        kinds = {}
        for kind in sorted({k for _, k, _ in items}):
            of = [(len(a), s) for a, k, s in items if k == kind]
            kinds[kind] = sum(t for t, _ in of) / sum(s for _, s in of)
        out[temperature] = {"E": tokens / steps, "tokens": tokens, "texts": len(items), "acceptance": acceptance, "kinds": kinds}
    return out
