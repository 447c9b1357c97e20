#!/usr/bin/env python3
"""variables.py: ddprun knows each DDPRUN_ variable that the project reads or sets, and no other.

Reads from standard input the paths of the project's files. `ddprun` warns of a variable that looks like one of ours and is
none, by the list `known` in launcher/cli/cli.cc. A variable is a whole string in a source: "DDPRUN_TOKEN". What is wrong is
one line each.
"""

import re
import sys

SOURCES = ("bench/", "examples/", "launcher/", "process/", "python/", "rendezvous/", "worker_runtime/")
LIST = "launcher/cli/cli.cc"


def text_of(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        return file.read()


def main():
    paths = [path for path in sys.stdin.read().split("\n") if path.startswith(SOURCES)]
    used = {}
    for path in paths:
        if path.endswith((".cc", ".h", ".py", ".sh")):
            for name in re.findall(r"[\"']DDPRUN_([A-Z][A-Z0-9_]*)[\"']", text_of(path)):
                used.setdefault(name, path)
    listed = re.search(r"known = \{([^}]*)\}", text_of(LIST) if LIST in paths else "")
    known = set(re.findall(r'"(\w+)"', listed.group(1))) if listed else set()
    found = [] if known and used else [f"variables: no list `known` in {LIST}, or no variable was given"]
    found += [f"{used[name]}: {LIST} does not know DDPRUN_{name}" for name in sorted(used.keys() - known)]
    found += [f"{LIST}: nothing reads or sets DDPRUN_{name}" for name in sorted(known - used.keys())]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


main()
