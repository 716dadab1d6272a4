#!/usr/bin/env python3
"""copy_gguf.py IN OUT BF16|Q4_0: the same model with every quantised matrix in one type, so that all
programs run the same weights: BF16 (dequantised, then rounded to nearest even, as Pilotfish does at
load), or Q4_0, the 4-bit type that the peers repack at run time. Runs in the environment that run.py
makes. Metadata and plain tensors are copied."""
import os
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type


def main():
    source, target, wanted = sys.argv[1:]
    kind_of_file = {"BF16": gguf.LlamaFileType.MOSTLY_BF16, "Q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}[wanted]
    reader = gguf.GGUFReader(source)
    architecture = reader.fields["general.architecture"].contents()
    writer = gguf.GGUFWriter(target + ".part", architecture)
    for name, field in reader.fields.items():
        if name.startswith("GGUF.") or name in ("general.architecture", "general.file_type"):
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(name, field.contents(), kind, inner)
    writer.add_file_type(kind_of_file)
    for t in reader.tensors:
        if t.tensor_type in (Type.F32, Type.F16, Type.BF16):
            writer.add_tensor(t.name, t.data, raw_dtype=t.tensor_type)
            continue
        values = gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float32)
        writer.add_tensor(t.name, gguf.quants.quantize(values, Type[wanted]), raw_dtype=Type[wanted])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    os.rename(target + ".part", target)  # whole or not at all


if __name__ == "__main__":
    main()
