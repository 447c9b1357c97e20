#!/usr/bin/env python3
"""compile_database.py ROOT OUTPUT EXTERNAL: what Bazel compiles, as clangd and clang-tidy read it.

Reads the actions (bazel aquery --output=jsonproto) from standard input and prints the compilation database. ROOT
is the folder of the sources; OUTPUT that of what Bazel makes (bazel-out), EXTERNAL that of other repositories
(external): both are named by their full paths, for they are not below ROOT. Exits with 1 when there is no action.
"""

import json
import re
import sys

# A precompiled header and warnings of GCC's are nothing for clang; what may be an error, GCC judges.
DROPPED = re.compile(r"-Winvalid-pch|-Werror(=.*)?|-fpch-.*|-fno-canonical-system-headers|--param=.*|-frandom-seed=.*|-MD")
DROPPED_WITH_NEXT = ("-MF",)
PRECOMPILED = re.compile(r"(pch|precompiled)\.h$")
# Copies of the product with a fault planted, which would hide the originals from who looks for a definition.
COPY = re.compile(r"bazel-out/[^/]+/bin/tests/")
PATH = re.compile(r"(-I|-iquote|-isystem|-include|)(bazel-out|external)(?=/|$)")


def arguments(command, folders):
    """The command line for clang. folders: the full paths of bazel-out and external."""
    kept = [command[0]]
    rest = iter(command[1:])
    for argument in rest:
        if argument in DROPPED_WITH_NEXT:
            next(rest, None)
        elif argument == "-include":
            header = next(rest, "")
            if not PRECOMPILED.search(header):
                kept += [argument, absolute(header, folders)]
        elif not DROPPED.fullmatch(argument):
            kept.append(absolute(argument, folders))
    return kept[:1] + ["-Wno-unknown-warning-option"] + kept[1:]


def absolute(argument, folders):
    return PATH.sub(lambda match: match[1] + folders[match[2]], argument, count=1) if PATH.match(argument) else argument


def source(command):
    """What is compiled; None for a command that compiles nothing."""
    return command[command.index("-c") + 1] if "-c" in command[:-1] else None


def database(actions, root, folders):
    """An entry a source: the first command that compiles it."""
    entries = {}
    for action in actions:
        command = action.get("arguments", [])
        path = source(command)
        if path is not None and path not in entries and not path.endswith(".h") and not COPY.match(path):
            entries[path] = {"directory": root, "file": absolute(path, folders), "arguments": arguments(command, folders)}
    return [entry for _, entry in sorted(entries.items())]


def main(root, output, external):
    entries = database(json.load(sys.stdin).get("actions", []), root, {"bazel-out": output, "external": external})
    if not entries:
        sys.exit("compile_database: no command compiles anything")
    json.dump(entries, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__.splitlines()[0])
    main(*sys.argv[1:])
