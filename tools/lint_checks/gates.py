#!/usr/bin/env python3
"""gates.py: the gates of tests are in no source of the product, and each is listed with the tests that use it.

Reads from standard input the paths of the project's files. tests/gates/gates.h has lines for each gate,
"//   kGate  tests/a_test.cc tests/b_test.cc", and its constant. What is wrong is one line each.
"""

import re
import sys

PRODUCT = ("bench/", "examples/", "launcher/", "process/", "proto/", "python/", "rendezvous/", "worker_runtime/")
HEADER = "tests/gates/gates.h"


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main():
    paths = [path for path in sys.stdin.read().split("\n") if path]
    found = []
    for path in paths:
        if path.startswith(PRODUCT):
            found += [f"{path}: the product names {name}" for name in re.findall(r"DDPRUN_TEST_\w*", text_of(path))]
    header = text_of(HEADER) if HEADER in paths else ""
    listed = {}
    for gate, files in re.findall(r"^//   (k\w+) +(tests/.*)$", header, re.M):
        listed.setdefault(gate, set()).update(files.split())
    gates = dict(re.findall(r'char (k\w+)\[\] = "(DDPRUN_TEST_\w+)"', header))
    tests = {path: text_of(path) for path in paths if path.startswith("tests/") and not path.startswith("tests/gates/")}
    if not gates or not tests:
        found.append(f"gates: no gate of {HEADER} or no test was given")
    for gate in sorted(gates.keys() | listed.keys()):
        word = re.compile(rf"\b({gate}|{gates.get(gate, gate)})\b")
        used = {path for path, text in tests.items() if word.search(text)}
        found += [f"{path} uses {gate}: {HEADER} does not list it" for path in sorted(used - listed.get(gate, set()))]
        found += [f"{path} does not use {gate}: {HEADER} lists it" for path in sorted(listed.get(gate, set()) - used)]
        if gate not in gates or not used:
            found.append(f"{HEADER}: {gate} is no gate, or no test uses it")
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


main()
