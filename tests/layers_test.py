#!/usr/bin/env python3
"""Truth: the plan of the house (README, "The rooms"). Fails when a room includes a room that it may
not know, when includes form a cycle, when a file outgrows its limit, or when a path of one machine
is written into the tree."""
import pathlib
import re
import sys

# Room -> the rooms that it may include besides itself. Every arrow points down.
BASE = {"base"}
ROOMS = {
    "base": set(),
    "proto": set(),
    "kernels": BASE,
    "sampling": BASE,
    "model": BASE,
    "text": BASE,
    "kv": BASE,
    "batch": BASE | {"kv", "sampling"},
    "backend": BASE | {"kernels", "batch", "model", "sampling"},
    "scheduler": BASE | {"batch", "kv"},
    "speculation": BASE | {"backend", "batch", "sampling", "kv"},
    "engine": BASE | {"kernels", "sampling", "model", "kv", "batch", "backend", "scheduler", "speculation"},
    "server": BASE | {"engine", "batch", "text", "proto"},
    # A program beside `cli`: it also measures the step itself, its drafters and the text of a stream.
    "bench": BASE | {"proto", "text", "backend", "speculation", "engine"},
}
ROOMS["cli"] = set(ROOMS) - {"bench"}
# load_text: how the files of a model become its tokenizer and its template; what a message of the server costs.
ROOMS["bench"] |= {"cli", "server"}
ROOMS["main"] = ROOMS["cli"] | {"cli"}
# A room may use what the types of its neighbours are made of.
THROUGH = {
    "backend": {"kv"},      # Batch speaks of KV slots
    "server": {"sampling"},  # Request holds sampling parameters
    "bench": {"batch", "model", "sampling", "kv", "scheduler"},
}
LIMITS = {".h": 150, ".cc": 400, ".cpp": 400, ".cu": 500, ".cuh": 300}


def room_of(parts):
    if parts[0] in ("kernels", "bench"):
        return parts[0]
    return parts[1] if len(parts) > 2 else "main"


def files(root, *folders):
    for folder in folders:
        yield from (f for f in sorted((root / folder).rglob("*")) if f.suffix in LIMITS)


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    bad = []
    includes = {}
    for f in files(root, "src", "kernels", "bench"):
        rel = f.relative_to(root)
        room = room_of(rel.parts)
        text = f.read_text()
        n = text.count("\n")
        limit = LIMITS[f.suffix] * (2 if room == "bench" else 1)
        if n > limit:
            bad.append(f"{rel}: {n} lines, the limit is {limit}")
        if room not in ROOMS:
            bad.append(f"{rel}: no room is called '{room}'")
            continue
        may = ROOMS[room] | THROUGH.get(room, set()) | {room}
        for path in re.findall(r'^\s*#include "([^"]+)"', text, re.M):
            other = path.split("/")[0]
            if "/" not in path or other not in ROOMS:
                bad.append(f"{rel}: includes \"{path}\", which names no room")
            elif other not in may:
                bad.append(f"{rel}: {room} may not include {other}")
            else:
                includes.setdefault(str(rel), []).append(path)
    bad += cycles(root, includes)
    for f in files(root, "tests"):
        n = f.read_text().count("\n")
        if n > 2 * LIMITS[f.suffix]:
            bad.append(f"{f.relative_to(root)}: {n} lines, the limit is {2 * LIMITS[f.suffix]}")
    for f in files(root, "src", "kernels", "bench", "tests"):
        for path in re.findall(r'"/(?:home|root|work)/[^"]*"', f.read_text()):
            bad.append(f"{f.relative_to(root)}: a path of one machine: {path}")
    print("\n".join(bad) or "layers ok")
    return 1 if bad else 0


def cycles(root, includes):
    """Files that include each other in a circle."""
    def resolve(path):
        for base in ("src", "."):
            if (root / base / path).exists():
                return str((root / base / path).resolve().relative_to(root))
        return None

    graph = {f: [r for r in map(resolve, paths) if r] for f, paths in includes.items()}
    state, found = {}, []

    def visit(f, trail):
        state[f] = "open"
        for g in graph.get(f, []):
            if state.get(g) == "open":
                found.append("cycle: " + " -> ".join(trail + [f, g]))
            elif g not in state:
                visit(g, trail + [f])
        state[f] = "done"

    for f in graph:
        if f not in state:
            visit(f, [])
    return found


if __name__ == "__main__":
    sys.exit(main())
