#!/usr/bin/env python3
"""Truth: the table beside this file, ptxas_budget.txt: what each kernel may take on each
architecture. Nothing may spill, take more registers, static shared memory or barriers than its
line says, or be missing on either side.

  ptxas_test.py BUILD_FOLDER [--update]     --update writes the table anew from the build"""
import pathlib
import re
import subprocess
import sys

TABLE = pathlib.Path(__file__).with_name("ptxas_budget.txt")
HEAD = """# kernel                                                    arch  registers  shared  barriers
# shared: static bytes; what a launch adds is in the kernel's own file. No kernel may spill.
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


def main():
    found = {}
    for report in sorted(pathlib.Path(sys.argv[1]).glob("*.ptxas")):
        raw = read(report)
        names = subprocess.run(["c++filt"], input="\n".join(k for k, _ in raw), text=True,
                               capture_output=True, check=True).stdout.splitlines()
        for name, (key, numbers) in zip(names, raw.items()):
            found[plain(name), key[1]] = numbers
    if not found:
        sys.exit(f"no reports in {sys.argv[1]}: build the target pf_kernels first")
    if "--update" in sys.argv:
        rows = [f"{k:<56} {a:>6} {r:>10} {s:>7} {b:>9}\n" for (k, a), (r, s, b, _) in sorted(found.items())]
        TABLE.write_text(HEAD + "".join(rows))
    budget = {}
    for line in TABLE.read_text().splitlines():
        if line and not line.startswith("#"):
            kernel, arch, *numbers = line.split()
            budget[kernel, arch] = tuple(map(int, numbers))
    bad = [f"{k} {a}: in the table, but not in the build" for k, a in budget if (k, a) not in found]
    for (kernel, arch), (*used, spilled) in sorted(found.items()):
        if spilled:
            bad.append(f"{kernel} {arch}: {spilled} bytes spilled")
        if (kernel, arch) not in budget:
            bad.append(f"{kernel} {arch}: not in {TABLE.name}")
            continue
        for what, n, most in zip(("registers", "shared bytes", "barriers"), used, budget[kernel, arch]):
            if n > most:
                bad.append(f"{kernel} {arch}: {n} {what}, the budget is {most}")
    print("\n".join(bad) or f"{len(found)} kernel images within their budgets")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
