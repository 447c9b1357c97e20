#!/usr/bin/env python3
"""variables.py: launcher/cli/variable_table.cc has each variable that the project reads or sets, and no other.

Reads from standard input the paths of the project's files. A variable is a whole string in capitals with an
underscore, "DDPRUN_TOKEN" or "RANK=", or any word in capitals that a source asks for: getenv("PATH"). The
variables of options, PET_NNODES, come from the option table. What is wrong is one line each.
"""

import re
import sys

SOURCES = ("bench/", "examples/", "launcher/", "process/", "python/", "rendezvous/", "worker_runtime/")
TABLE = "launcher/cli/variable_table.cc"
# Names in a worker's environment that `ddprun dump` may show; no code asks for their values.
SHOWN = "launcher/dump/shown_environment.cc"
# Status codes, CUDA's errors, torchrun's states and a cipher.
OTHER_WORDS = set("""
ALREADY_EXISTS ASSIGN_WORKER_RANKS DATA_LOSS DEADLINE_EXCEEDED FAILED_PRECONDITION INVALID_ARGUMENT INVALID_DEVICE
NOT_FOUND NO_DEVICE OUT_OF_RANGE PERMISSION_DENIED RESOURCE_EXHAUSTED SYSTEM_DRIVER_MISMATCH SYSTEM_NOT_READY
TLS_AES_128_GCM_SHA256
""".split())
NAME = r"[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)"
WHOLE = re.compile(rf"[\"']({NAME}+)=?[\"']")
ASKED = re.compile(rf"(?:getenv|setenv|Get|TakeSecret|environ\.get|environ|Var(?:iable)?\[\] =)[(\[ ]*[\"']({NAME}*)[\"']")


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main():
    paths = [path for path in sys.stdin.read().split("\n") if path.startswith(SOURCES)]
    rows = dict(re.findall(rf'^    \{{"({NAME}*)", *\n? *(\S+)', text_of(TABLE) if TABLE in paths else "", re.M))
    used, written = {}, set()
    for path in paths:
        if path.endswith((".cc", ".h", ".py", ".sh")) and path not in (TABLE, SHOWN):
            text = text_of(path)
            for name in WHOLE.findall(text) + ASKED.findall(text):
                used.setdefault(name, path)
            written.update(re.findall(rf"[\"']({NAME}*)=?[\"']", text))
    used = {name: path for name, path in used.items() if name not in OTHER_WORDS and not name.startswith("PET_")}
    found = [] if rows and used else [f"variables: no row in {TABLE}, or no variable was given"]
    found += [f"{used[name]}: {TABLE} has no row for {name}" for name in sorted(used.keys() - rows.keys())]
    # What gRPC reads stands in no source of ours.
    found += [
        f"{TABLE}: nothing reads or sets {name}"
        for name in sorted(rows.keys() - written)
        if not rows[name].startswith('"gRPC"')
    ]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


main()
