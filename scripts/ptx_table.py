#!/usr/bin/env python3
"""One table of what `ctest -L ptx` found out about the kernels without a GPU:

  ptx_table.py [build/release] [--run] [--json FILE]

Per kernel image: PTX instructions that some test reached; shared-memory wavefronts and global
sectors over their ideals, of all launches of all tests together (odd shapes too: budgets of single
launches stand in tests/kernels); and per architecture registers and occupancy (warps over the most
that a multiprocessor holds, NVIDIA's calculator). Last, how many random edits of two kernels the
machine's checks and the oracle noticed. Reads what the tests left in ptx-figures/ and test-results/
and the assembler's reports in kernels/; --run runs these tests first (minutes). Ends with 1 where a kernel was never run, reached less than 95 % of
its instructions or cannot be resident, with 77 where no figures are there."""
import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "kernels"))
from ptxas_test import blocks_of, plain, read, read_table  # noqa: E402

LEAST_REACHED = 0.95
SUMS = ("launches", "wavefronts", "wavefronts_ideal", "sectors", "sectors_ideal")


def figures(build):
    """mangled name -> figures of all test programs together"""
    found = {}
    for path in sorted((build / "ptx-figures").glob("*.json")):
        for f in json.loads(path.read_text()):
            at = found.setdefault(f["kernel"], dict.fromkeys(SUMS, 0) | {"reached": 0, "dynamic": 0})
            for key in SUMS:
                at[key] += f[key]
            at["reached"] = max(at["reached"], f["reached"] / max(1, f["instructions"]))
            at["dynamic"] = max(at["dynamic"], f["dynamic_shared"])
            at["threads"] = max(at.get("threads", 0), f["threads"])
    return found


def images(build):
    """mangled name -> {arch: (registers, static shared, barriers)}"""
    found = {}
    for report in sorted((build / "kernels").glob("*.ptxas")):
        for (name, arch), (registers, shared, barriers, _) in read(report).items():
            found.setdefault(name, {})[arch] = (registers, shared, barriers)
    return found


def mutations(build):
    """[(subject, edits that change it, share that was noticed)] of the last runs: of the machine's samples,
    and of product kernels; of many edits where they were tried, else the few of CI"""
    results, found = build / "test-results", []
    samples = results / "ptxvm_mutation_test.json"
    if samples.exists():
        cases = [c for suite in json.loads(samples.read_text())["testsuites"] for c in suite["testsuite"]]
        found = [("sample " + c["name"], int(c["tried"]), float(c["killed"])) for c in cases if "killed" in c]
    runs = {p.stem.removeprefix("kernel_mutation_"): json.loads(p.read_text())
            for p in results.glob("kernel_mutation_*.json")}
    for name, run in sorted(runs.items()):
        if name.removesuffix("_few") not in runs or not name.endswith("_few"):
            found.append((name.removesuffix("_few"), run["edits"], run["noticed"]))
    return found


def run_tests(build):
    own = ["-E", "^ptx_table$", "--output-on-failure"]
    for which in (["-L", "^ptx$"], ["-C", "long", "-R", "^ptxvm_mutation_test$"]):
        subprocess.run(["ctest", "--test-dir", build, *which, *own], check=True)


def ratio(f, what):
    return f[what] / f[what + "_ideal"] if f[what + "_ideal"] else 1.0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("build", nargs="?", default="build/release", type=pathlib.Path)
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--json", type=pathlib.Path)
    args = parser.parse_args()
    if args.run:
        run_tests(args.build)
    measured, built = figures(args.build), images(args.build)
    if not measured or not built:
        print(f"no figures in {args.build}: run ctest -L ptx there first")
        return 77
    names = dict(zip(built, subprocess.run(["c++filt"], input="\n".join(built), text=True, capture_output=True,
                                           check=True).stdout.splitlines()))
    run = [k for k in built if k in measured]
    archs = sorted({arch for k in built for arch in built[k]})
    asked = [(a, built[k][a][0], built[k][a][1], measured[k]["dynamic"], measured[k]["threads"], built[k][a][2])
             for k in run for a in archs]
    shares = iter(share for _, share in blocks_of(args.build, asked))
    budget = read_table()
    rows, bad = [], [f"{plain(names[k])}: no test runs it" for k in built if k not in measured]
    for k in run:
        f, name = measured[k], plain(names[k])
        by_arch = {a: {"registers": built[k][a][0], "static_shared": built[k][a][1], "occupancy": next(shares)}
                   for a in archs}
        rows.append({"kernel": name, "launches": f["launches"], "reached": round(f["reached"], 4),
                     "wavefronts": round(ratio(f, "wavefronts"), 3), "sectors": round(ratio(f, "sectors"), 3),
                     "dynamic_shared": f["dynamic"], "threads": f["threads"], "arch": by_arch})
        if f["reached"] < LEAST_REACHED:
            bad.append(f"{name}: {f['reached']:.1%} of its instructions reached in any one test program")
        most = budget.get((name, archs[0]))
        if most and (f["dynamic"] > most[3] or f["threads"] > most[4]):
            bad.append(f"{name}: a launch with {f['dynamic']} bytes of dynamic shared memory and {f['threads']} "
                       f"threads, tests/kernels/ptxas_budget.txt says {most[3]} and {most[4]}")
        bad += [f"{name} {a}: no block fits a multiprocessor" for a in archs if by_arch[a]["occupancy"] == 0]
    head = "".join(f"{a + ' reg occ':>15}" for a in archs)
    print(f"{'kernel':<58}{'launches':>9}{'reached':>9}{'banks':>7}{'sectors':>8}{'shared':>8}{head}")
    for r in sorted(rows, key=lambda r: r["kernel"]):
        cells = "".join(f"{r['arch'][a]['registers']:>9}{r['arch'][a]['occupancy']:>6.2f}" for a in archs)
        shared = r["dynamic_shared"] + r["arch"][archs[0]]["static_shared"]
        print(f"{r['kernel'][:57]:<58}{r['launches']:>9}{r['reached']:>9.1%}{r['wavefronts']:>7.2f}"
              f"{r['sectors']:>8.2f}{shared:>8}{cells}")
    print("\n".join(bad) or f"{len(rows)} kernel images, all run, all reached to {LEAST_REACHED:.0%} or more")
    edits = [{"kernel": name, "edits": n, "noticed": round(share, 4)} for name, n, share in mutations(args.build)]
    for e in edits:
        print(f"{e['kernel']}: {e['noticed']:.1%} of {e['edits']} random edits noticed")
    if not edits:
        print("no mutation run in this build: --run, or ctest -C long -L long")
    if args.json:
        args.json.write_text(json.dumps({"kernels": rows, "mutations": edits, "bad": bad}, indent=2) + "\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
