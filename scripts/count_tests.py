#!/usr/bin/env python3
"""Counts test cases of finished builds: count_tests.py BUILD... Prints what failed and was skipped
(with the reason), then "N passed, N failed, N skipped". A ctest entry that left no GoogleTest report
counts as one case, judged by ctest; exit 1 when anything failed."""
import json
import pathlib
import re
import sys


def ctest_entries(build):
    """Name -> passed, of the last ctest run."""
    log = build / "Testing/Temporary/LastTest.log"
    text = log.read_text(errors="replace") if log.exists() else ""
    entries = {}
    for block in re.split(r"\n(?=\d+/\d+ Testing: )", text):
        name = re.search(r"Testing: (\S+)", block)
        if name:
            entries[name[1]] = "Test Passed." in block, "***Skipped" in block or "Test Skipped" in block
    return entries


def main():
    passed, failed, skipped = 0, [], []
    for build in map(pathlib.Path, sys.argv[1:]):
        for name, (ok, was_skipped) in ctest_entries(build).items():
            report = build / "test-results" / f"{name}.json"
            try:
                cases = [c for s in json.loads(report.read_text())["testsuites"] for c in s["testsuite"]]
            except (OSError, ValueError, KeyError):
                cases = None
            if cases is None:
                if was_skipped:
                    skipped.append((name, "see its output"))
                elif ok:
                    passed += 1
                else:
                    failed.append(f"{build.name}: {name} (no report: it crashed, ran too long or is no GoogleTest)")
                continue
            n_failed = 0
            for c in cases:
                full = f"{c['classname']}.{c['name']}"
                if c.get("failures"):
                    failed.append(f"{build.name}: {full}")
                    n_failed += 1
                elif c["result"] == "SKIPPED":
                    reasons = [m["message"].splitlines()[-1] for m in c.get("skipped", []) if m.get("message")]
                    skipped.append((full, "; ".join(reasons) or "no reason given"))
                elif c["result"] == "COMPLETED":
                    passed += 1
            if not ok and n_failed == 0:
                failed.append(f"{build.name}: {name} (ended badly after its last case)")
    for name, reason in skipped:
        print(f"skipped: {name}: {reason}")
    for name in failed:
        print(f"FAILED: {name}")
    if not passed and not failed:
        failed.append("no test ran")
    print(f"{passed} passed, {len(failed)} failed, {len(skipped)} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
