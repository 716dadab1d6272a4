#!/usr/bin/env python3
"""Truth: the sources of the tests. A test of tests/kernels or tests/backend_cuda whose body or
fixture, or a function of its file that they call, asks the PTX machine for measures, launches or a
fault that is survived stands in machine_only.txt, but where it asks on_machine() first; and no line
there names a test that does not. Tests of several devices are no part of what runs on one."""
import fnmatch
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
MACHINE = r"\b(clear_measures|kernel_measures|measure|measures_text|line_measures|unreached_\w+|take_launches|" \
          r"host_calls|clear_host_calls|print_findings|described_device|registered_ptx|replace_ptx|cuda_free_bytes)\s*[(=]"
TEST = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)(.*?)^}", re.M | re.S)
FUNCTION = re.compile(r"^(?:[\w:<>*&,\s]+?\s[*&]?)(\w+)\([^;{}]*\)\s*(?:const )?\{(.*?)^}", re.M | re.S)
FIXTURE = re.compile(r"^(?:class|struct) (\w+)\b[^;{]*\{(.*?)^};", re.M | re.S)
# Full names as GoogleTest makes them.
NAMES = {"TEST": "{0}.{1}", "TEST_F": "{0}.{1}", "TEST_P": "All/{0}.{1}/0", "TYPED_TEST": "{0}/0.{1}"}


def asking(text, also=()):
    """names of the functions of this text that ask the machine, directly or through each other"""
    found, bodies = set(also), FUNCTION.findall(TEST.sub("", text))
    while True:
        more = {name for name, body in bodies if asks(body, found)} - found
        if not more:
            return found
        found |= more


def asks(body, functions):
    if "on_machine()" in body:
        return False
    return re.search(MACHINE, body) or any(re.search(rf"\b{f}(<\w+>)?\(", body) for f in functions)


def main():
    patterns = [line for line in (HERE / "machine_only.txt").read_text().split("\n") if line and line[0] != "#"]
    bad, used = [], set()
    for folder in "kernels", "backend_cuda":
        common = set()
        for header in sorted((HERE.parent / folder).glob("*.h")):
            common |= {re.sub("^.*::", "", f) for f in asking(re.sub(r"^inline ", "", header.read_text(), flags=re.M))}
        lists = (HERE.parent / folder / "CMakeLists.txt").read_text()
        several = re.findall(r"ptxvm_test\(cuda_sharded_test (.*?)\)", lists, re.S)
        for path in sorted((HERE.parent / folder).glob("*.cc")):
            if path.name in " ".join(several).split():
                continue
            text = path.read_text()
            functions = asking(text, common)
            fixtures = {name for name, body in FIXTURE.findall(text) if asks(body, functions)}
            for kind, suite, name, body in TEST.findall(text):
                full = NAMES[kind].format(suite, name)
                matching = [p for p in patterns if fnmatch.fnmatchcase(full, p)]
                if suite in fixtures or asks(body, functions):
                    used |= set(matching)
                    if not matching:
                        bad.append(f"{path.name}: {full} asks the PTX machine and is not in machine_only.txt")
                elif matching:
                    bad.append(f"{path.name}: {full} would run on a device, but {matching[0]} leaves it out")
    bad += [f"machine_only.txt: {p} names no test that asks the machine" for p in patterns if p not in used]
    print("\n".join(bad) or f"{len(patterns)} patterns, as the tests say")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
