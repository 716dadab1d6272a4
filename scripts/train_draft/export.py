#!/usr/bin/env python3
"""Writes a checkpoint of train.py as a folder with config.json and model.safetensors (BF16), adapters merged in:

    python export.py runs/NAME/best.pt OUT_FOLDER
    pilotfish quantize OUT_FOLDER models/drafts/NAME/model.gguf --type q4_1
"""
import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

from weights import Config


def main():
    parser = argparse.ArgumentParser(description="Write a checkpoint as a model folder.")
    parser.add_argument("checkpoint")
    parser.add_argument("out")
    args = parser.parse_args()
    state = torch.load(args.checkpoint, map_location="cpu", weights_only=True)
    out = pathlib.Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    tensors = {k: (v if k == "d2t" else v.bfloat16()).contiguous() for k, v in state["tensors"].items()}
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config = Config(**state["config"]).hugging_face(state["n_layers"], state["kind"], len(tensors["d2t"]))
    (out / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    n = sum(v.numel() for k, v in tensors.items() if k != "d2t")
    print(f"{out}: {state['kind']}, {n} parameters, step {state['step']}, best held-back E {state['best']:.4f}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError, KeyError) as e:
        print(f"export.py: {e}", file=sys.stderr)
        sys.exit(2)
