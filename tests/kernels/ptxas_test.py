#!/usr/bin/env python3
"""Truth: the table beside this file, ptxas_budget.txt: what each kernel may take on each
architecture. Nothing may spill, take more registers, static shared memory or barriers than its
line says, or be missing on either side; and with them, its threads and the dynamic shared memory of
its launches, as many blocks must fit a multiprocessor as its line says (NVIDIA's calculator).

  ptxas_test.py BUILD_FOLDER/kernels [--update]

--update writes the table anew from the build; dynamic memory and threads are those of the tests'
launches (BUILD_FOLDER/ptx-figures, of ctest -L ptx), where they were run, else as before.
scripts/ptx_table.py holds the launches to the table."""
import json
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("ptxas_budget.txt")
HEAD = """# kernel                                                    arch  registers  shared  barriers  dynamic  threads  blocks
# shared: static bytes; dynamic: what a launch adds at most; threads: of a block at most; blocks: that
# fit a multiprocessor with all of these, at least. No kernel may spill.
# Written by tests/kernels/ptxas_test.py --update; judge the difference before you commit it.
"""


def plain(name):
    """namespaces and the parameter list go; the template arguments stay"""
    name = re.sub(r"_INTERNAL_\w+::|_GLOBAL__N__\w+::|\(anonymous namespace\)::|pf::kernels::|pf::", "", name)
    name = re.sub(r"^void ", "", name)
    name = re.sub(r"\((?![^<>]*>).*$", "", name) if "<" not in name else name[: closing(name)]
    return re.sub(r"\((?:int|bool|unsigned int)\)", "", name).replace(" ", "")


def closing(name):
    depth = 0
    for i, c in enumerate(name):
        depth += (c == "<") - (c == ">")
        if c == ">" and depth == 0:
            return i + 1
    return len(name)


def read(report):
    """(kernel, arch) -> (registers, shared, barriers, spilled bytes)"""
    found, at = {}, None
    for line in report.read_text().splitlines():
        if m := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            at = [m[1], m[2], 0]
        elif at and (m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            at[2] = int(m[1]) + int(m[2])
        elif at and (m := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            barriers = re.search(r"used (\d+) barriers", line)
            numbers = int(m[1]), int(shared[1]) if shared else 0, int(barriers[1]) if barriers else 0, at[2]
            found[at[0], at[1]] = numbers
            at = None
    return found


def names_of(mangled):
    """mangled names -> those of the table"""
    mangled = list(mangled)
    out = subprocess.run(["c++filt"], input="\n".join(mangled), text=True, capture_output=True, check=True).stdout
    return [plain(n) for n in out.splitlines()]


def launches(build):
    """kernel -> (dynamic shared bytes, threads), the most of all tests' launches"""
    found = {}
    for path in sorted((build / "ptx-figures").glob("*.json")):
        figures = json.loads(path.read_text())
        for name, f in zip(names_of(f["kernel"] for f in figures), figures):
            most = found.get(name, (0, 0))
            found[name] = max(most[0], f["dynamic_shared"]), max(most[1], f["threads"])
    return found


def blocks_of(build, asked):
    """[(arch, registers, static, dynamic, threads, barriers)] -> [(blocks, share of warps)]"""
    lines = "".join(" ".join(map(str, a)) + "\n" for a in asked)
    tool = build / "tests" / "ptx_occupancy"
    if not tool.exists():
        sys.exit(f"no {tool}: build the target ptx_occupancy first")
    out = subprocess.run([tool], input=lines, text=True, capture_output=True, check=True).stdout
    return [(int(n), float(share)) for n, share in map(str.split, out.splitlines())]


def read_table():
    """(kernel, arch) -> [registers, shared, barriers, dynamic, threads, blocks]"""
    lines = (line for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    return {(k, a): list(map(int, numbers)) for k, a, *numbers in map(str.split, lines)}


def images(folder):
    """(kernel, arch) -> (registers, shared, barriers, spilled bytes)"""
    found = {}
    for report in sorted(folder.glob("*.ptxas")):
        raw = read(report)
        for name, (key, numbers) in zip(names_of(k for k, _ in raw), raw.items()):
            found[name, key[1]] = numbers
    return found


def write_table(build, found):
    old, ran = {k: row for (k, _), row in read_table().items()}, launches(build)
    rows = []
    for (kernel, arch), (registers, shared, barriers, _) in sorted(found.items()):
        dynamic, threads = ran.get(kernel) or old[kernel][3:5]
        rows.append((kernel, arch, registers, shared, barriers, dynamic, threads))
    counts = blocks_of(build, [(a, r, s, d, t, b) for _, a, r, s, b, d, t in rows])
    TABLE.write_text(HEAD + "".join(
        f"{k:<56} {a:>6} {r:>10} {s:>7} {b:>9} {d:>8} {t:>8} {n:>7}\n"
        for (k, a, r, s, b, d, t), (n, _) in zip(rows, counts)))


def main():
    folder = pathlib.Path(sys.argv[1])
    found = images(folder)
    if not found:
        sys.exit(f"no reports in {folder}: build the target pf_kernels first")
    if "--update" in sys.argv:
        write_table(folder.parent, found)
    budget = read_table()
    bad = [f"{k} {a}: in the table, but not in the build" for k, a in budget if (k, a) not in found]
    both = sorted(found.keys() & budget.keys())
    asked = [(k[1], *found[k][:2], *budget[k][3:5], found[k][2]) for k in both]
    blocks = {k: n for k, (n, _) in zip(both, blocks_of(folder.parent, asked))}
    for key, (*used, spilled) in sorted(found.items()):
        kernel = " ".join(key)
        if spilled:
            bad.append(f"{kernel}: {spilled} bytes spilled")
        if key not in budget:
            bad.append(f"{kernel}: not in {TABLE.name}")
            continue
        for what, n, most in zip(("registers", "shared bytes", "barriers"), used, budget[key]):
            if n > most:
                bad.append(f"{kernel}: {n} {what}, the budget is {most}")
        if blocks[key] < budget[key][5]:
            bad.append(f"{kernel}: {blocks[key]} blocks fit a multiprocessor, the budget is {budget[key][5]}")
    print("\n".join(bad) or f"{len(found)} kernel images within their budgets")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
