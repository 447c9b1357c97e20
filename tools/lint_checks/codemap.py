#!/usr/bin/env python3
"""codemap.py [CODEMAP]: the modules that ARCHITECTURE.md names and those that there are.

Reads from standard input the paths of the project's files. In the section "### Modules" each folder has an
entry, "- **folder**: `module` what it is; ...". A header that stands in no entry, and a name in one that is no
header, is one line.
"""

import collections
import re
import sys

ROOTS = ("bench/", "launcher/", "process/", "rendezvous/", "worker_runtime/")


def main():
    path = sys.argv[1] if len(sys.argv) > 1 else "ARCHITECTURE.md"
    with open(path, encoding="utf-8") as file:
        text = file.read()
    section = re.search(r"^### Modules\n(.*?)(?=^##|\Z)", text, re.S | re.M)
    named = collections.defaultdict(set)
    for folder, entry in re.findall(r"^- \*\*([a-z0-9_/]+)\*\*:(.*?)(?=^- |\Z)", section[1] if section else "", re.S | re.M):
        named[folder].update(re.findall(r"`([a-z0-9_]+)`", entry))
    there = collections.defaultdict(set)
    for name in sys.stdin.read().split("\n"):
        if name.startswith(ROOTS) and name.endswith(".h"):
            folder, _, header = name.rpartition("/")
            there[folder].add(header[:-2])
    found = [] if there else ["codemap: no header was given"]
    for folder in sorted(named.keys() | there.keys()):
        found += [f"{path}: {folder}/{name}.h is not named in its section Modules" for name in sorted(there[folder] - named[folder])]
        found += [f"{path}: {folder}/{name}.h is named and does not exist" for name in sorted(named[folder] - there[folder])]
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


main()
