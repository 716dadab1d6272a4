#!/usr/bin/env python3
"""Truth: the definitions (EAGLE's row, the kept-token recursion, Q4_1) as slow loops; goldens of the real model made
with another implementation; and that the recipe runs end to end on a tiny model. Exit 77 (skipped) without torch.

    python recipe_test.py SOURCE_DIR [PILOTFISH]

Writes a report as GoogleTest does (GTEST_OUTPUT=json:FILE): scripts/test.sh counts by it what ran and what did not.
"""
import contextlib
import io
import json
import os
import pathlib
import runpy
import subprocess
import sys
import tempfile
import unittest


def report(cases):
    """cases: (class, name, reason it was skipped or "", what failed or "")"""
    to = os.environ.get("GTEST_OUTPUT", "")
    if not to.startswith("json:"):
        return
    tests = [{"classname": c, "name": n, "result": "SKIPPED" if skipped else "COMPLETED"}
             | ({"skipped": [{"message": skipped}]} if skipped else {})
             | ({"failures": [{"failure": failed}]} if failed else {}) for c, n, skipped, failed in cases]
    path = pathlib.Path(to.removeprefix("json:"))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"testsuites": [{"testsuite": tests}]}))


try:
    import numpy as np
    import torch
    from safetensors.torch import save_file
except ImportError as e:
    why = f"{e}; scripts/train_draft/README.md says how to install what the recipe needs"
    print(f"skipped: {why}")
    report([("train_draft_test", "recipe", why, "")])
    sys.exit(77)

SOURCE = pathlib.Path(sys.argv[1])
PILOTFISH = pathlib.Path(sys.argv[2]) if len(sys.argv) > 2 else None
RECIPE = SOURCE / "scripts/train_draft"
TARGET = SOURCE / "models/SmolLM2-135M-Instruct.Q4_1.gguf"
sys.path.insert(0, str(RECIPE))
from acceptance import n_steps  # noqa: E402
from models import DraftModel, EagleHead, Target, draft_of, q4_1, rms, rope  # noqa: E402
from weights import Config, load  # noqa: E402

WIDTH, HEADS, KV_HEADS, HEAD_DIM, FFN, VOCAB = 64, 4, 2, 16, 96, 320


def tiny_config(n_layers):
    return Config(n_layers=n_layers, width=WIDTH, ffn=FFN, n_heads=HEADS, n_kv_heads=KV_HEADS, head_dim=HEAD_DIM, eps=1e-5,
                  theta=10000.0, context=512, vocab=VOCAB, eos=2, bos=1)


def tiny_weights(n_layers, seed=0):
    g = torch.Generator().manual_seed(seed)
    def normal(*shape, scale=0.08):
        return scale * torch.randn(*shape, generator=g)
    w = {"embed_tokens.weight": normal(VOCAB, WIDTH, scale=0.5), "norm.weight": 1 + normal(WIDTH)}
    for i in range(n_layers):
        shapes = {"self_attn.q_proj": (HEADS * HEAD_DIM, WIDTH), "self_attn.k_proj": (KV_HEADS * HEAD_DIM, WIDTH),
                  "self_attn.v_proj": (KV_HEADS * HEAD_DIM, WIDTH), "self_attn.o_proj": (WIDTH, HEADS * HEAD_DIM),
                  "mlp.gate_proj": (FFN, WIDTH), "mlp.up_proj": (FFN, WIDTH), "mlp.down_proj": (WIDTH, FFN)}
        w |= {f"layers.{i}.{n}.weight": normal(*s) for n, s in shapes.items()}
        w |= {f"layers.{i}.{n}.weight": 1 + normal(WIDTH) for n in ("input_layernorm", "post_attention_layernorm")}
    return w


def tiny_eagle(target):
    d2t = torch.arange(3, 3 + 96)
    w = {k: v for k, v in tiny_weights(1, 5).items() if k.startswith("layers")}
    return EagleHead(tiny_config(1), w | {
        "d2t": d2t, "lm_head.weight": target["embed_tokens.weight"][d2t], "norm.weight": torch.ones(WIDTH),
        "enorm.weight": torch.ones(WIDTH), "hnorm.weight": torch.ones(WIDTH),
        "fc.weight": torch.cat([0.3 * torch.eye(WIDTH), torch.eye(WIDTH)], 1)}, target)


def slow_layer(layer, x, position):
    """One row after another, one head after another: what causal attention means."""
    c = layer.c
    q, (k, v) = layer.q(x[None], position[None])[0], [t[0] for t in layer.kv(x[None], position[None])]
    out = torch.zeros(len(x), c.n_heads, c.head_dim)
    for i in range(len(x)):
        for h in range(c.n_heads):
            g = h // (c.n_heads // c.n_kv_heads)
            p = torch.softmax(k[:i + 1, g] @ q[i, h] / c.head_dim ** 0.5, 0)
            out[i, h] = p @ v[:i + 1, g]
    return layer.behind(x[None], out[None])[0]


class Definitions(unittest.TestCase):
    def test_steps_by_hand(self):
        # All kept, K = 4: five tokens in one step. None kept: a step each.
        self.assertEqual(n_steps(torch.ones(5, 4), 4), 1)
        self.assertEqual(n_steps(torch.zeros(5, 4), 4), 5)
        # Two tokens, K = 1, the first kept with 1/2: half the time 1 step, else 2.
        self.assertAlmostEqual(n_steps(torch.tensor([[0.5], [0.0]]), 1), 1.5)
        # Three tokens, K = 2, each kept with 1/2. N(2) = 1; N(1) = 1 + 1/2; N(0) = 1 + 1/2 N(1) + 1/4 N(2) = 2.
        self.assertAlmostEqual(n_steps(torch.full((3, 2), 0.5), 2), 2.0)

    def test_q4_1_is_sixteen_levels_per_group_and_lets_the_gradient_through(self):
        w = torch.randn(4, 64, requires_grad=True)
        seen = q4_1(w)
        for group, of in zip(seen.detach().view(-1, 32), w.detach().view(-1, 32)):
            self.assertLessEqual(len(group.unique()), 16)
            step = float(of.max() - of.min()) / 15
            # half a step, and binary16's rounding of scale (15 steps of it) and minimum: 2^-11 of each
            self.assertLessEqual(float((group - of).abs().max()), step * (0.5 + 15 * 2 ** -11) + float(of.abs().max()) * 2 ** -11 + 1e-6)
        seen.sum().backward()
        self.assertTrue(torch.equal(w.grad, torch.ones_like(w)))

    def test_chains_of_a_head_are_rows_fed_one_by_one(self):
        target = tiny_weights(2)
        head = tiny_eagle(target).eval()
        tokens = torch.randint(3, VOCAB, (2, 12), generator=torch.Generator().manual_seed(1))
        hidden = torch.randn(2, 12, WIDTH, generator=torch.Generator().manual_seed(2))
        start = torch.tensor([3, 5])
        with torch.no_grad():
            found = list(head.outputs(tokens, hidden, start, 4, 3))
            for b in range(2):
                for c in range(4):
                    first = int(start[b]) + c
                    x = head.joined(tokens[b, 1:first + 2], hidden[b, :first + 1])
                    for s in range(3):
                        out = slow_layer(head.layers[0], x, torch.arange(len(x)))
                        y = rms(out[-1], head.norm, 1e-5)
                        self.assertLess(float((found[s][b, c] - y).abs().max()), 1e-4, (b, c, s))
                        if s < 2:
                            x = torch.cat([x, head.joined(tokens[b, first + s + 2][None], y[None])])

    def test_padding_is_not_seen(self):
        target = tiny_weights(2)
        model = Target(tiny_config(2), target)
        tokens = torch.randint(3, VOCAB, (1, 9), generator=torch.Generator().manual_seed(3))
        padded = torch.nn.functional.pad(tokens, (0, 5))
        self.assertLess(float((model(tokens)[0] - model(padded)[0, :9]).abs().max()), 1e-5)


class RealModel(unittest.TestCase):
    def setUp(self):
        if not TARGET.exists():
            self.skipTest("models/ holds no SmolLM2; scripts/get_model.sh fetches it")

    def test_weights_and_hidden_states_are_those_of_another_implementation(self):
        config, weights = load(TARGET)
        for name, golden in json.loads((SOURCE / "tests/golden/weights_sample.json").read_text()).items():
            t = weights.get(name.removeprefix("model.")) if isinstance(golden, dict) else None
            if t is None:
                continue
            self.assertEqual(list(t.shape), golden["shape"])
            self.assertTrue(np.allclose(t.reshape(-1)[:16].numpy(), golden["gguf_f32_first16"], rtol=0, atol=1e-6), name)
        case = json.loads((SOURCE / "tests/golden/eagle.json").read_text())["cases"][0]
        hidden = Target(config, weights)(torch.tensor([case["input_ids"]]))[0]
        # the golden was made from the BF16 weights, which this file holds in four bits: the file's own error is the bound
        cosine = torch.cosine_similarity(hidden[-1], torch.tensor(case["last_hidden"]), 0)
        self.assertGreater(float(cosine), 0.99)
        logits = hidden[-1].bfloat16() @ weights["embed_tokens.weight"].bfloat16().T
        self.assertEqual(int(logits.argmax()), case["first_token"])


class EndToEnd(unittest.TestCase):
    def run_step(self, script, *args):
        """As its command line would, in this process: importing torch again takes longer than the step."""
        said, argv = io.StringIO(), sys.argv
        sys.argv = [script, *map(str, args)]
        try:
            with contextlib.redirect_stdout(said):
                runpy.run_path(str(RECIPE / script), run_name="__main__")
        except SystemExit as end:
            self.assertEqual(end.code, 0, f"{script}: {said.getvalue()}")
        finally:
            sys.argv = argv
        return said.getvalue()

    def test_from_text_to_a_file_that_the_tool_reads(self):
        with tempfile.TemporaryDirectory() as folder:
            at = pathlib.Path(folder)
            self.make_target(at / "target")
            self.make_text(at / "text.jsonl", at / "held.jsonl")
            model = ("--model", at / "target", "--threads", 1, "--device", "cpu")
            said = self.run_step("features.py", *model, "--text", at / "text.jsonl", "--held", at / "held.jsonl", "--out", at / "f")
            self.assertIn("40 texts read, 1 left out", said)
            self.run_step("features.py", *model, "--text", at / "held.jsonl", "--out", at / "h")
            train = (*model, "--features", at / "f", "--rows", 512, "--lr", "2e-2", "--validation", "0.1")
            for kind in ("eagle", "model"):
                out = at / kind
                self.run_step("train.py", *train, "--kind", kind, "--vocabulary", 128, "--layers", "0,1", "--steps", 100,
                              "--overlap", 0.5, "--quantized", "--out", out)
                self.run_step("export.py", out / "best.pt", out / "folder")
                self.run_step("train.py", *train, "--init", out / "folder", "--lora", 4, "--kinds", "b", "--steps", 4, "--out", at / (kind + "_lora"))
                self.check_lora(out / "folder", at / (kind + "_lora"), kind)
                drafts = [out / "folder"]
                if PILOTFISH and PILOTFISH.exists():
                    done = subprocess.run([PILOTFISH, "quantize", out / "folder", out / "q.gguf", "--type", "q4_1", "--threads", "1"],
                                          capture_output=True, text=True)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    drafts.append(out / "q.gguf")
                self.run_step("evaluate.py", *model, "--features", at / "h", "--draft", *drafts, "--json", out / "e.json")
                found = json.loads((out / "e.json").read_text())["drafts"]
                for draft in drafts:  # the answers repeat one pattern: whoever learned anything keeps much of it
                    self.assertGreater(found[str(draft)]["0.0"]["E"], 1.5, (kind, draft))

    def make_target(self, folder):
        """A target whose text is a pattern: after t comes t + 1, whatever its layers add."""
        folder.mkdir()
        w = tiny_weights(2)
        w["lm_head.weight"] = w["embed_tokens.weight"].roll(1, 0) * 4
        for name in w:
            if "o_proj" in name or "down_proj" in name:
                w[name] *= 0.05
        save_file({k if k == "lm_head.weight" else "model." + k: v.contiguous() for k, v in w.items()}, folder / "model.safetensors")
        (folder / "config.json").write_text(json.dumps(tiny_config(2).hugging_face(2, "model", VOCAB)))

    def make_text(self, text, held):
        def line(i, first):
            prompt = [1] + [(first * 7 + j * j) % 300 + 3 for j in range(14)]
            answer = [(first + j) % 100 + 100 for j in range(24)]
            return json.dumps({"id": str(i), "kind": "ab"[i % 2], "temperature": 0.0 if i % 3 else 0.7, "prompt": prompt, "answer": answer}) + "\n"
        text.write_text("".join(line(i, i * 5) for i in range(40)))
        held.write_text(line(3, 15) + line(1000, 1) + line(1001, 52))  # the first one stands among the texts too

    def check_lora(self, before, run, kind):
        """Adapters change the last layers and the head, and nothing else."""
        was = load(before)[1]
        now = {k.removeprefix("model."): v for k, v in torch.load(run / "last.pt", weights_only=True)["tensors"].items()}
        for name, t in was.items():
            moved = not torch.equal(t.float(), now[name].float())
            adapted = name == "lm_head.weight" or name == "fc.weight" or "_proj" in name
            self.assertEqual(moved, adapted, f"{kind} {name}")


class Recorder(unittest.TextTestResult):
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.ran = []

    def startTest(self, test):
        super().startTest(test)
        self.ran.append(test)

    def cases(self):
        skipped = {t.id(): why for t, why in self.skipped}
        failed = {t.id(): what for t, what in self.failures + self.errors}
        return [(type(t).__name__, t._testMethodName, skipped.get(t.id(), ""), failed.get(t.id(), "")) for t in self.ran]


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    tests = unittest.defaultTestLoader.loadTestsFromModule(sys.modules[__name__])
    result = unittest.TextTestRunner(resultclass=Recorder, verbosity=2).run(tests)
    report(result.cases())
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main())
