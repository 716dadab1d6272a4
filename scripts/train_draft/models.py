"""The target and the two kinds of draft, as torch modules.

Dimensions: B sequences, T tokens (padded on the right), E width, H heads, G KV heads, D head width.

EagleHead: row i joins the target's hidden state h_i (behind its final norm: what its head multiplies) with the
embedding of the NEXT token t_{i+1}, stands at position i and says t_{i+2}. Drafting on, its own output takes the place
of h. DraftModel: a causal LM of a few layers on the target's embedding; row i reads t_i and says t_{i+1}.
Both have a head over the tokens `d2t` alone.
"""
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint

from weights import Config

MATRICES = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj",
            "mlp.up_proj", "mlp.down_proj")
NORMS = ("input_layernorm", "post_attention_layernorm")


def rms(x, weight, eps):
    y = x.float()
    return (y * torch.rsqrt(y.pow(2).mean(-1, keepdim=True) + eps) * weight.float()).to(x.dtype)


def rope(x, position, theta):
    """x [B, T, heads, D] at position [B, T]; pairs (d, d + D / 2)."""
    half = x.shape[-1] // 2
    angle = position[..., None].float() / theta ** (torch.arange(half, device=x.device).float() / half)
    c, s = angle.cos()[:, :, None], angle.sin()[:, :, None]
    a, b = x.float().chunk(2, -1)
    return torch.cat([a * c - b * s, b * c + a * s], -1).to(x.dtype)


def q4_1(w):
    """What Q4_1 makes of a matrix, groups of 32 with scale and minimum in binary16; its gradient is the matrix's own."""
    g = w.detach().reshape(-1, 32)
    low, high = g.amin(1, keepdim=True), g.amax(1, keepdim=True)
    d, m = ((high - low) / 15).half().float().clamp(min=1e-8), low.half().float()
    return (((g - m) / d).round().clamp(0, 15) * d + m).view_as(w) + (w - w.detach())


class Matrix(nn.Module):
    """[out, in]; with `rank` an adapter stands beside it and it is frozen itself; with `quantized` it is seen as Q4_1."""

    def __init__(self, weight):
        super().__init__()
        self.weight = nn.Parameter(weight.float().clone())
        self.quantized, self.down, self.up = False, None, None

    def adapt(self, rank, scale=2.0):
        out, width = self.weight.shape
        self.weight.requires_grad_(False)
        self.down = nn.Parameter(torch.randn(rank, width, device=self.weight.device) / width ** 0.5)
        self.up, self.scale = nn.Parameter(torch.zeros(out, rank, device=self.weight.device)), scale

    def merged(self):
        w = self.weight if self.up is None else self.weight + self.scale * self.up @ self.down
        return q4_1(w) if self.quantized else w

    def forward(self, x):
        return F.linear(x, self.merged())


class Layer(nn.Module):
    def __init__(self, config, weights, prefix):
        super().__init__()
        self.c = config
        self.m = nn.ModuleDict({n.split(".")[1]: Matrix(weights[f"{prefix}{n}.weight"]) for n in MATRICES})
        self.n = nn.ParameterDict({n: nn.Parameter(weights[f"{prefix}{n}.weight"].float().clone()) for n in NORMS})

    def state(self, prefix):
        out = {f"{prefix}{n}.weight": self.m[n.split(".")[1]].merged() for n in MATRICES}
        return out | {f"{prefix}{n}.weight": p for n, p in self.n.items()}

    def kv(self, x, position):
        x = rms(x, self.n["input_layernorm"], self.c.eps)
        shape = (*x.shape[:2], self.c.n_kv_heads, self.c.head_dim)
        return rope(self.m["k_proj"](x).view(shape), position, self.c.theta), self.m["v_proj"](x).view(shape)

    def q(self, x, position):
        x = rms(x, self.n["input_layernorm"], self.c.eps)
        return rope(self.m["q_proj"](x).view(*x.shape[:2], self.c.n_heads, self.c.head_dim), position, self.c.theta)

    def behind(self, x, attended):
        x = x + self.m["o_proj"](attended.reshape(*x.shape[:2], -1))
        y = rms(x, self.n["post_attention_layernorm"], self.c.eps)
        return x + self.m["down_proj"](F.silu(self.m["gate_proj"](y)) * self.m["up_proj"](y))

    def forward(self, x, position):
        """Plain causal layer over [B, T, E]; right padding is seen by nobody in front of it."""
        q, (k, v) = self.q(x, position), self.kv(x, position)
        n = self.c.n_heads // self.c.n_kv_heads
        k, v = (t.transpose(1, 2).repeat_interleave(n, 1) for t in (k, v))
        a = F.scaled_dot_product_attention(q.transpose(1, 2), k.to(q.dtype), v.to(q.dtype), is_causal=True)
        return self.behind(x, a.transpose(1, 2))


class Target(nn.Module):
    def __init__(self, config, weights):
        super().__init__()
        self.c = config
        self.layers = nn.ModuleList(Layer(config, weights, f"layers.{i}.") for i in range(config.n_layers))
        self.embedding = nn.Parameter(weights["embed_tokens.weight"].bfloat16(), requires_grad=False)
        self.norm = nn.Parameter(weights["norm.weight"].float(), requires_grad=False)
        self.head = nn.Parameter(weights.get("lm_head.weight", weights["embed_tokens.weight"]).bfloat16(), requires_grad=False)

    @torch.no_grad()
    def forward(self, tokens):
        """[B, T] -> hidden states behind the final norm [B, T, E]"""
        position = torch.arange(tokens.shape[1], device=tokens.device).expand(tokens.shape)
        x = F.embedding(tokens, self.embedding).float()
        for layer in self.layers:
            x = layer(x, position)
        return rms(x, self.norm, self.c.eps)


class Draft(nn.Module):
    """What both kinds have: the target's embedding (frozen), a head over d2t, a final norm, layers."""

    def __init__(self, config, weights, target, n_layers):
        super().__init__()
        self.c = config
        self.register_buffer("d2t", weights["d2t"])
        self.register_buffer("embedding", target["embed_tokens.weight"].bfloat16(), persistent=False)
        head = target.get("lm_head.weight", target["embed_tokens.weight"])
        self.register_buffer("teacher", head[weights["d2t"]].bfloat16(), persistent=False)
        t2d = torch.full((len(self.embedding),), -1, dtype=torch.long)
        t2d[weights["d2t"]] = torch.arange(len(weights["d2t"]))
        self.register_buffer("t2d", t2d, persistent=False)
        self.head = Matrix(weights["lm_head.weight"])
        self.norm = nn.Parameter(weights["norm.weight"].float().clone())
        self.layers = nn.ModuleList(Layer(config, weights, f"layers.{i}.") for i in range(n_layers))

    def quantize(self, on):
        for m in self.modules():
            if isinstance(m, Matrix):
                m.quantized = on

    def adapt(self, rank, n_layers):
        """Freezes all but adapters on the matrices of the last layers, on fc and on the head (the output embedding)."""
        for p in self.parameters():
            p.requires_grad_(False)
        last = self.layers[len(self.layers) - n_layers:]
        for m in [self.head, *([self.fc] if hasattr(self, "fc") else [])] + [m for layer in last for m in layer.m.values()]:
            m.adapt(rank)

    def embed(self, tokens):
        return F.embedding(tokens, self.embedding).float()

    def state(self):
        prefix = "" if self.kind == "eagle" else "model."
        out = {"d2t": self.d2t.int(), "lm_head.weight": self.head.merged(), f"{prefix}norm.weight": self.norm}
        for i, layer in enumerate(self.layers):
            out |= layer.state(f"{prefix}layers.{i}.")
        return out


class EagleHead(Draft):
    kind, lag = "eagle", 2

    def __init__(self, config, weights, target):
        super().__init__(config, weights, target, 1)
        self.fc = Matrix(weights["fc.weight"])
        self.enorm, self.hnorm = (nn.Parameter(weights[f"{n}.weight"].float().clone()) for n in ("enorm", "hnorm"))

    def state(self):
        return super().state() | {"fc.weight": self.fc.merged(), "enorm.weight": self.enorm, "hnorm.weight": self.hnorm}

    def joined(self, tokens, hidden):
        e = rms(self.embed(tokens), self.enorm, self.c.eps)
        return self.fc(torch.cat([e, rms(hidden.float(), self.hnorm, self.c.eps)], -1))

    def outputs(self, tokens, hidden, start, n_chains, depth):
        """Chains begin at rows start[b] + c, c < n_chains. Yields per depth s: y [B, C, E], which says the token at
        start + c + s + 2, all tokens before it taken from `tokens` (one that is beyond the end is 0: mask it)."""
        layer, c = self.layers[0], self.c
        B, T = tokens.shape
        grow, group = torch.arange(B, device=tokens.device)[:, None], c.n_heads // c.n_kv_heads
        position = torch.arange(T, device=tokens.device).expand(B, T)
        following = F.pad(tokens[:, 1:], (0, 1))
        x = self.joined(following, hidden)
        k0, v0 = layer.kv(x, position)
        rows = start[:, None] + torch.arange(n_chains, device=tokens.device)  # [B, C]
        hidden_keys = torch.arange(T, device=tokens.device) > rows[..., None]  # [B, C, T]
        y, own = x[grow, rows.clamp(max=T - 1)], []
        for s in range(depth):
            at = rows + s
            if s > 0:
                y = self.joined(following[grow, at.clamp(max=T - 1)], y)
                own.append(layer.kv(y, at))
            q = layer.q(y, at).view(B, n_chains, c.n_kv_heads, group, c.head_dim)
            scores = torch.einsum("bcgnd,btgd->bgnct", q, k0).float() * c.head_dim ** -0.5
            scores = [scores.masked_fill(hidden_keys[:, None, None], float("-inf"))]
            scores += [torch.einsum("bcgnd,bcgd->bgnc", q, k).float()[..., None] * c.head_dim ** -0.5 for k, _ in own]
            p = torch.softmax(torch.cat(scores, -1), -1).to(v0.dtype)
            a = torch.einsum("bgnct,btgd->bcgnd", p[..., :T], v0)
            for i, (_, v) in enumerate(own):
                a = a + p[..., T + i].permute(0, 3, 1, 2)[..., None] * v[:, :, :, None]
            y = rms(layer.behind(y, a), self.norm, c.eps)
            yield y


class DraftModel(Draft):
    kind, lag = "model", 1

    def __init__(self, config, weights, target):
        super().__init__(config, weights, target, config.n_layers)

    def outputs(self, tokens, hidden, start, n_chains, depth):
        """As EagleHead.outputs, but row i says token i + 1. `hidden` is not looked at."""
        B, T = tokens.shape
        position = torch.arange(T, device=tokens.device).expand(B, T)
        x = self.embed(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, position, use_reentrant=False) if x.is_cuda and self.training else layer(x, position)
        y = rms(x, self.norm, self.c.eps)
        grow = torch.arange(B, device=tokens.device)[:, None]
        rows = start[:, None] + torch.arange(n_chains, device=tokens.device)
        for s in range(depth):
            yield y[grow, (rows + s).clamp(max=T - 1)]


def draft_of(config, weights, target):
    return (EagleHead if "fc.weight" in weights else DraftModel)(config, weights, target)


def fresh_eagle(target_config, target, d2t):
    """A head that begins as the target's last layer over its own last hidden state."""
    E, last = target_config.width, f"layers.{target_config.n_layers - 1}."
    w = {"layers.0." + k[len(last):]: v for k, v in target.items() if k.startswith(last)}
    head = target.get("lm_head.weight", target["embed_tokens.weight"])
    w |= {"d2t": d2t, "lm_head.weight": head[d2t], "norm.weight": target["norm.weight"], "enorm.weight": torch.ones(E),
          "hnorm.weight": torch.ones(E), "fc.weight": torch.cat([0.01 * torch.randn(E, E), torch.eye(E)], 1)}
    for name in ("self_attn.o_proj", "mlp.down_proj"):  # the residual it adds to has RMS 1 here, not a last layer's
        w[f"layers.0.{name}.weight"] = 0.03 * w[f"layers.0.{name}.weight"]
    return target_config, w


def fresh_model(target_config, target, d2t, layers):
    w = {}
    for i, source in enumerate(layers):
        w |= {f"layers.{i}." + k.split(".", 2)[2]: v for k, v in target.items() if k.startswith(f"layers.{source}.")}
    head = target.get("lm_head.weight", target["embed_tokens.weight"])
    w |= {"d2t": d2t, "lm_head.weight": head[d2t], "norm.weight": target["norm.weight"]}
    return Config(**(vars(target_config) | {"n_layers": len(layers)})), w
