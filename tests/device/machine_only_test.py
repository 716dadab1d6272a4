#!/usr/bin/env python3
"""Truth: the sources of the tests. A test of tests/kernels or tests/backend_cuda whose body or
fixture, or a function or a type of its file or of a header beside it that they use, asks the PTX
machine for measures, launches, its free memory, another device or a fault that is survived stands in
machine_only.txt, but where it asks on_machine() first; and no line there names a test that does not.
Tests of several devices are no part of what runs on one. A death test uses no device: it runs in a
fork of a process that has used it, where CUDA refuses every call."""
import fnmatch
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).parent
MACHINE = r"\b(clear_measures|kernel_measures|measure|measures_text|line_measures|unreached_\w+|take_launches|" \
          r"host_calls|clear_host_calls|print_findings|described_device|registered_ptx|replace_ptx|cuda_free_bytes)\s*[(=]" \
          r"|settings\(\)\.device(\.\w+|_memory_bytes)? = "
TEST = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST)\((\w+),\s*(\w+)\)(.*?)^}", re.M | re.S)
FUNCTION = re.compile(r"^(?:[\w:<>*&,\s]+?\s[*&]?)(\w+)\([^;{}]*\)\s*(?:const )?\{(.*?)^}", re.M | re.S)
TYPE = re.compile(r"^(?:class|struct) (\w+)\b[^;{]*\{(.*?)^};", re.M | re.S)
DEVICE = r"\b(cuda[A-Z]\w+\(|cuda_check\(|Device(Array|Buffer|Memory)\b)"
# Full names as GoogleTest makes them.
NAMES = {"TEST": "{0}.{1}", "TEST_F": "{0}.{1}", "TEST_P": "All/{0}.{1}/0", "TYPED_TEST": "{0}/0.{1}"}


def asking(text, question, also=()):
    """names of the functions and types of this text that ask, directly or through each other"""
    found, text = set(also), TEST.sub("", text)
    bodies = FUNCTION.findall(text) + TYPE.findall(text)
    while True:
        more = {name for name, body in bodies if asks(body, question, found - {name})} - found
        if not more:
            return found
        found |= more


def asks(body, question, names):
    if question is MACHINE and "on_machine()" in body:
        return False
    return bool(re.search(question, body) or any(re.search(rf"\b{n}\b\s*(<[^;()]*>)?\s*[({{\w]", body) for n in names))


def of_headers(folder, question):
    common = set()
    for header in sorted(folder.glob("*.h")):
        text = re.sub(r"^inline ", "", header.read_text(), flags=re.M)
        common |= {re.sub("^.*::", "", f) for f in asking(text, question)}
    return common


def main():
    patterns = [line for line in (HERE / "machine_only.txt").read_text().split("\n") if line and line[0] != "#"]
    bad, used = [], set()
    for folder in "kernels", "backend_cuda":
        common, on_device = (of_headers(HERE.parent / folder, q) for q in (MACHINE, DEVICE))
        lists = (HERE.parent / folder / "CMakeLists.txt").read_text()
        several = re.findall(r"ptxvm_test\(cuda_sharded_test (.*?)\)", lists, re.S)
        for path in sorted((HERE.parent / folder).glob("*.cc")):
            if path.name in " ".join(several).split():
                continue
            text = path.read_text()
            names, users = asking(text, MACHINE, common), asking(text, DEVICE, on_device)
            for kind, suite, name, body in TEST.findall(text):
                full = NAMES[kind].format(suite, name)
                matching = [p for p in patterns if fnmatch.fnmatchcase(full, p)]
                if re.search(r"\b(EXPECT|ASSERT)_(DEATH|EXIT)\(", body) and asks(body, DEVICE, users):
                    bad.append(f"{path.name}: {full} dies in a fork that may not use the device")
                if (kind != "TEST" and suite in names) or asks(body, MACHINE, names):
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
