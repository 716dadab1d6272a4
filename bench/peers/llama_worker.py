#!/usr/bin/env python3
"""llama.cpp, or its fork ik_llama.cpp, behind the same requests as `pilotfish-bench worker`: one JSON
object a line. Runs in the environment that run.py makes for it. Only the C interface of either does the
work; Python picks the token of the highest logit, looks n-grams up and drives the loop.

  {"op": "info"}                          -> system: what the library was built for
  {"op": "tokenize", "text": "..."}       -> tokens (markers parsed)
  {"op": "decode", "prompts": [[ids], ...], "n": 128, "k": 0, "ngram": 3}
                                          -> load_s, prefill_s, decode_s, steps, drafted, accepted, tokens
  {"op": "rows", "m": 8, "seconds": 0.05} -> step_s of m sequences together, behind 64 tokens
"""
import argparse
import ctypes
import json
import sys
import time

import numpy as np

CONTEXT = 64  # tokens before a measured row; as in the other worker


def simple_ngram(tokens, n, k):
    """llama.cpp's ngram-simple: what followed the last earlier place of the last n tokens."""
    if len(tokens) <= n:
        return []
    text = np.asarray(tokens, dtype=np.intc)
    windows = np.lib.stride_tricks.sliding_window_view(text[:-1], n)
    places = np.flatnonzero((windows == text[-n:]).all(axis=1))
    return [] if places.size == 0 else text[places[-1] + n:places[-1] + n + k].tolist()


class LlamaCpp:
    """llama.cpp by the package llama-cpp-python."""

    def __init__(self):
        import llama_cpp
        from llama_cpp.llama_speculative import LlamaPromptLookupDecoding
        self.api, self.lookup_class = llama_cpp, LlamaPromptLookupDecoding
        self.log = llama_cpp.llama_log_callback(lambda level, text, data: None)  # lives as long as we
        llama_cpp.llama_log_set(self.log, ctypes.c_void_p(0))

    def lookup(self, tokens, n, k):
        """llama-cpp-python's prompt lookup: the first place, longer n-grams first."""
        return self.lookup_class(n, k)(np.asarray(tokens, dtype=np.intc)).tolist()

    def tokenizer(self, model):
        return model.vocab

    def set_model(self, params, repack):
        params.use_mmap = True  # it repacks what it can without being told

    def set_context(self, params):
        params.kv_unified, params.no_perf = True, True

    def begin(self, context):
        self.memory = self.api.llama_get_memory(context)

    def clear(self, context):
        self.api.llama_memory_clear(self.memory, False)

    def keep(self, context, sequence, n):
        self.api.llama_memory_seq_rm(self.memory, sequence, n, -1)

    def system(self):
        return self.api.llama_print_system_info().decode()


class IkLlamaCpp:
    """ik_llama.cpp by the package ik-llama-cpp-python, whose bindings lack a few functions."""

    def __init__(self):
        from ik_llama_cpp import _ctypes_api
        self.api, library = _ctypes_api, _ctypes_api._lib
        callback = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)
        self.log = callback(lambda level, text, data: None)  # lives as long as we
        library.llama_log_set.argtypes, library.llama_log_set.restype = [callback, ctypes.c_void_p], None
        library.llama_log_set(self.log, None)
        self.remove = library.llama_kv_cache_seq_rm
        self.remove.argtypes = [ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32]
        self.remove.restype = ctypes.c_bool
        library.llama_print_system_info.restype = ctypes.c_char_p
        self.library = library

    def lookup(self, tokens, n, k):
        raise RuntimeError("ik-llama-cpp-python has no prompt lookup")

    def tokenizer(self, model):
        return model.model  # its llama_tokenize takes the model

    def set_model(self, params, repack):
        params.repack_tensors, params.use_mmap = repack, not repack

    def set_context(self, params):
        # Its flash attention ends the process (S > 0) where a row sees nothing of another sequence's keys.
        params.flash_attn = False

    def begin(self, context):
        pass

    def clear(self, context):
        self.api.llama_kv_cache_clear(context)

    def keep(self, context, sequence, n):
        self.remove(context, sequence, n, -1)

    def system(self):
        return self.library.llama_print_system_info().decode()


class Model:
    def __init__(self, peer, path, threads, repack, max_rows=512, sequences=64, context=4096):
        api, self.peer = peer.api, peer
        self.api = api
        api.llama_backend_init()
        params = api.llama_model_default_params()
        peer.set_model(params, repack)
        self.model = api.llama_model_load_from_file(path.encode(), params)
        if not self.model:
            sys.exit(f"llama_worker: {path} cannot be loaded")
        self.vocab = api.llama_model_get_vocab(self.model)
        self.width = api.llama_vocab_n_tokens(self.vocab)
        c = api.llama_context_default_params()
        c.n_ctx, c.n_batch, c.n_ubatch = context, max_rows, max_rows  # cells of all sequences
        c.n_seq_max = sequences
        c.n_threads = c.n_threads_batch = threads
        peer.set_context(c)
        self.context = api.llama_init_from_model(self.model, c)
        if not self.context:
            sys.exit("llama_worker: no context")
        peer.begin(self.context)
        self.batch = api.llama_batch_init(max_rows, 0, 1)

    def tokenize(self, text):
        data = text.encode()
        out = (self.api.llama_token * (len(data) + 8))()
        n = self.api.llama_tokenize(self.peer.tokenizer(self), data, len(data), out, len(out), False, True)
        return list(out[:n])

    def forward(self, rows):
        """rows: (token, position, sequence, wants logits). The row numbers with logits."""
        b, wanted = self.batch, []
        for i, (token, position, sequence, logits) in enumerate(rows):
            b.token[i], b.pos[i], b.n_seq_id[i], b.logits[i] = token, position, 1, logits
            b.seq_id[i][0] = sequence
            if logits:
                wanted.append(i)
        b.n_tokens = len(rows)
        if self.api.llama_decode(self.context, b) != 0:
            raise RuntimeError("llama_decode failed")
        return wanted

    def best(self, row):
        pointer = self.api.llama_get_logits_ith(self.context, row)
        return int(np.ctypeslib.as_array(pointer, shape=(self.width,)).argmax())

    def clear(self):
        self.peer.clear(self.context)

    def keep(self, sequence, n):
        self.peer.keep(self.context, sequence, n)

    def decode(self, prompts, n, k, ngram, propose):
        self.clear()
        began = time.perf_counter()
        texts, firsts = [list(p) for p in prompts], []
        for s, prompt in enumerate(prompts):
            for at in range(0, len(prompt), 512):
                part = prompt[at:at + 512]
                last = at + len(part) == len(prompt)
                rows = [(t, at + i, s, last and i == len(part) - 1) for i, t in enumerate(part)]
                wanted = self.forward(rows)
            firsts.append(self.best(wanted[0]))
        for text, first in zip(texts, firsts):
            text.append(first)
        decoding = time.perf_counter()
        counts = {"steps": 0, "drafted": 0, "accepted": 0}
        ends = [len(p) + n for p in prompts]
        while any(len(t) < e for t, e in zip(texts, ends)):
            self.round(texts, ends, k, ngram, propose, counts)
        ended = time.perf_counter()
        return {"load_s": self.load_s, "prefill_s": decoding - began, "decode_s": ended - decoding, **counts,
                "tokens": [t[len(p):] for t, p in zip(texts, prompts)]}

    def round(self, texts, ends, k, ngram, propose, counts):
        """One token or more for every unfinished text: its draft is verified in the same batch."""
        rows, drafts = [], []
        for s, text in enumerate(texts):
            left = ends[s] - len(text)
            if left <= 0:
                continue
            draft = propose(text, ngram, min(k, left - 1)) if k > 0 and left > 1 else []
            drafts.append((s, draft, len(rows)))
            for i, token in enumerate([text[-1]] + draft):
                rows.append((token, len(text) - 1 + i, s, True))
        self.forward(rows)
        counts["steps"] += 1
        for s, draft, row in drafts:
            counts["drafted"] += len(draft)
            for i in range(len(draft) + 1):
                token = self.best(row + i)
                texts[s].append(token)
                if i == len(draft) or draft[i] != token:
                    break
                counts["accepted"] += 1
            self.keep(s, len(texts[s]) - 1)

    def rows(self, m, seconds):
        self.clear()
        for s in range(m):
            self.forward([(5 + i, i, s, False) for i in range(CONTEXT)])
        rows = [(5, CONTEXT, s, True) for s in range(m)]

        def step():
            for row in self.forward(rows):
                self.best(row)
            for s in range(m):
                self.keep(s, CONTEXT)

        step()
        n, began = 0, time.perf_counter()
        while True:
            step()
            n += 1
            took = time.perf_counter() - began
            if took >= seconds:
                return {"step_s": took / n}


def answer(model, r):
    if r["op"] == "info":
        return {"system": model.peer.system()}
    if r["op"] == "tokenize":
        return {"tokens": model.tokenize(r["text"])}
    if r["op"] == "decode":
        propose = model.peer.lookup if r.get("lookup") else simple_ngram
        return model.decode(r["prompts"], r["n"], r["k"], r.get("ngram", 3), propose)
    if r["op"] == "rows":
        return model.rows(r["m"], r["seconds"])
    return {"error": "op is none of info, tokenize, decode, rows"}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--ik", action="store_true", help="ik_llama.cpp in place of llama.cpp")
    parser.add_argument("--repack", action="store_true", help="its run-time repack (--ik)")
    o = parser.parse_args()
    peer = IkLlamaCpp() if o.ik else LlamaCpp()
    began = time.perf_counter()
    model = Model(peer, o.model, o.threads, o.repack)
    model.load_s = time.perf_counter() - began
    for line in sys.stdin:
        print(json.dumps(answer(model, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
