"""Weights from GGUF files and Hugging Face folders, under one set of names (Hugging Face's, without "model.").

A GGUF file keeps the rows of q and k interleaved for the architecture "llama"; here they stand as Hugging Face has
them, so that RoPE turns pairs (d, d + head_dim / 2) whatever the file was.
"""
import json
import pathlib
import struct

import numpy as np
import torch

GGUF_NAMES = {
    "token_embd": "embed_tokens", "output_norm": "norm", "output": "lm_head", "fc": "fc", "enorm": "enorm",
    "hnorm": "hnorm", "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj",
}


class Config:
    def __init__(self, **fields):
        self.__dict__.update(fields)

    @staticmethod
    def of_hugging_face(c):
        width, heads = c["hidden_size"], c["num_attention_heads"]
        return Config(n_layers=c["num_hidden_layers"], width=width, ffn=c["intermediate_size"], n_heads=heads,
                      n_kv_heads=c.get("num_key_value_heads", heads), head_dim=c.get("head_dim", width // heads),
                      eps=c["rms_norm_eps"], theta=float(c["rope_theta"]), context=c["max_position_embeddings"],
                      vocab=c["vocab_size"], eos=c.get("eos_token_id", 2), bos=c.get("bos_token_id", 1))

    def hugging_face(self, n_layers, kind, n_head_tokens):
        """config.json of a draft of this width for `pilotfish quantize`."""
        return {"architectures": ["LlamaEagleDraft" if kind == "eagle" else "LlamaForCausalLM"], "model_type": "llama",
                "hidden_size": self.width, "intermediate_size": self.ffn, "num_hidden_layers": n_layers,
                "num_attention_heads": self.n_heads, "num_key_value_heads": self.n_kv_heads, "head_dim": self.head_dim,
                "hidden_act": "silu", "rms_norm_eps": self.eps, "rope_theta": self.theta,
                "max_position_embeddings": self.context, "vocab_size": self.vocab, "draft_vocab_size": n_head_tokens,
                "attention_bias": False, "mlp_bias": False, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
                "bos_token_id": self.bos, "eos_token_id": self.eos}


def blocks(raw, dtype, size, n):
    return np.frombuffer(raw, np.uint8, n // 32 * size).reshape(-1, size), lambda at: \
        np.frombuffer(raw, np.uint8, n // 32 * size).reshape(-1, size)[:, at:at + 2].copy().view(dtype).astype(np.float32)


def nibbles(q):
    return np.concatenate([q & 15, q >> 4], 1).astype(np.float32)


def dequantize(raw, kind, n):
    """f32 [n] of a GGUF tensor's bytes."""
    if kind == 0:
        return np.frombuffer(raw, np.float32, n)
    if kind == 1:
        return np.frombuffer(raw, np.float16, n).astype(np.float32)
    if kind == 30:
        return (np.frombuffer(raw, np.uint16, n).astype(np.uint32) << 16).view(np.float32)
    if kind == 26:
        return np.frombuffer(raw, np.int32, n)
    if kind == 2:  # Q4_0: d, then 32 nibbles around 8
        b, f16 = blocks(raw, np.float16, 18, n)
        return (f16(0) * (nibbles(b[:, 2:]) - 8)).reshape(-1)
    if kind == 3:  # Q4_1: d, m, then 32 nibbles
        b, f16 = blocks(raw, np.float16, 20, n)
        return (f16(0) * nibbles(b[:, 4:]) + f16(2)).reshape(-1)
    if kind == 8:  # Q8_0: d, then 32 bytes
        b, f16 = blocks(raw, np.float16, 34, n)
        return (f16(0) * b[:, 2:].view(np.int8).astype(np.float32)).reshape(-1)
    raise ValueError(f"tensor type {kind} is not known (known: F32, F16, BF16, I32, Q4_0, Q4_1, Q8_0)")


class GgufReader:
    SCALARS = {0: "<B", 1: "<b", 2: "<H", 3: "<h", 4: "<I", 5: "<i", 6: "<f", 7: "<?", 10: "<Q", 11: "<q", 12: "<d"}

    def __init__(self, path):
        self.data, self.at = np.memmap(path, np.uint8, "r"), 0
        if bytes(self.data[:4]) != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        self.at = 8
        n_tensors, n_entries = self.scalar("<Q"), self.scalar("<Q")
        self.meta = {}
        for _ in range(n_entries):
            key = self.text()
            self.meta[key] = self.value(self.scalar("<I"))
        self.tensors = {}
        for _ in range(n_tensors):
            name = self.text()
            shape = [self.scalar("<Q") for _ in range(self.scalar("<I"))][::-1]
            self.tensors[name] = (shape, self.scalar("<I"), self.scalar("<Q"))
        align = self.meta.get("general.alignment", 32)
        self.first = (self.at + align - 1) // align * align

    def scalar(self, form):
        size = struct.calcsize(form)
        value, = struct.unpack(form, bytes(self.data[self.at:self.at + size]))
        self.at += size
        return value

    def text(self):
        n = self.scalar("<Q")
        self.at += n
        return bytes(self.data[self.at - n:self.at]).decode("utf-8", "replace")

    def value(self, kind):
        if kind == 8:
            return self.text()
        if kind == 9:
            of, n = self.scalar("<I"), self.scalar("<Q")
            return [self.value(of) for _ in range(n)]
        return self.scalar(self.SCALARS[kind])

    def tensor(self, name):
        shape, kind, offset = self.tensors[name]
        flat = dequantize(self.data[self.first + offset:].data, kind, int(np.prod(shape)))
        return torch.from_numpy(flat.reshape(shape).copy())


def halves(t, head_dim):
    """Rows of q or k from GGUF's interleaved pairs to Hugging Face's halves."""
    return t.view(-1, head_dim // 2, 2, *t.shape[1:]).transpose(1, 2).reshape(t.shape)


def load_gguf(path):
    file = GgufReader(path)
    arch = file.meta["general.architecture"]
    m = {k[len(arch) + 1:]: v for k, v in file.meta.items() if k.startswith(arch + ".")}
    heads = m["attention.head_count"]
    config = Config(n_layers=m["block_count"], width=m["embedding_length"], ffn=m["feed_forward_length"], n_heads=heads,
                    n_kv_heads=m.get("attention.head_count_kv", heads),
                    head_dim=m.get("attention.key_length", m["embedding_length"] // heads),
                    eps=m["attention.layer_norm_rms_epsilon"], theta=m.get("rope.freq_base", 10000.0),
                    context=m["context_length"], vocab=m.get("vocab_size", 0),
                    eos=file.meta.get("tokenizer.ggml.eos_token_id", 2), bos=file.meta.get("tokenizer.ggml.bos_token_id", 1))
    weights = {}
    for name in file.tensors:
        parts = name.removesuffix(".weight").split(".")
        t = file.tensor(name)
        if parts[-1] in ("attn_q", "attn_k") and arch == "llama":
            t = halves(t, config.head_dim)
        if name == "d2t":
            weights[name] = t.long()
        elif parts[0] == "blk":
            weights[f"layers.{parts[1]}.{GGUF_NAMES[parts[2]]}.weight"] = t
        elif parts[0] in GGUF_NAMES:
            weights[GGUF_NAMES[parts[0]] + ".weight"] = t
    if "embed_tokens.weight" in weights:
        config.vocab = len(weights["embed_tokens.weight"])
    return config, weights


def load_folder(path):
    from safetensors.torch import load_file
    weights = {}
    for file in sorted(path.glob("*.safetensors")):
        if not file.stem.startswith("golden"):
            weights.update(load_file(file))
    named = {k.removeprefix("model."): v.long() if k == "d2t" else v.float() for k, v in weights.items()}
    return Config.of_hugging_face(json.loads((path / "config.json").read_text())), named


def load(path):
    """(Config, {name: f32 tensor}) of a .gguf file or a folder with config.json and .safetensors."""
    path = pathlib.Path(path)
    if path.is_dir() and (path / "config.json").exists():
        return load_folder(path)
    return load_gguf(path / "model.gguf" if path.is_dir() else path)
