#!/usr/bin/env python3
"""codemap.py [--print [FOLDER...]]: each header of the product begins with a comment that says what is in it.

Reads from standard input the paths of the project's files; a header without such a comment is one line. --print:
what the headers say, by folder, of those folders and all below them, or of all: git ls-files | codemap.py --print
launcher/agent. The first sentence of the comment is printed, and [pure] where the header says so.
"""

import re
import sys

ROOTS = ("bench/", "launcher/", "process/", "rendezvous/", "worker_runtime/")
COMMENT = re.compile(r"/\*.*?\*/|(?://[^\n]*\n)+", re.S)
PURE = "[pure]"


def sentence(text):
    """The first sentence of the comment on a file's first line; empty when there is none."""
    comment = COMMENT.match(text)
    if not comment:
        return ""
    lines = [re.sub(r"^\s*(//|/\*|\*/|\*)|\*/\s*$", "", line).strip() for line in comment[0].splitlines()]
    paragraph = " ".join(lines).replace(PURE, " ")
    return re.match(r".*?(?:\.(?=\s|$)|:(?=\s*$)|$)", " ".join(paragraph.split()))[0]


def is_pure(text):
    comment = COMMENT.match(text)
    return comment is not None and PURE in comment[0]


def show(headers, folders):
    shown = None
    for path in sorted(headers, key=lambda path: path.rsplit("/", 1)):
        folder, name = path.rsplit("/", 1)
        if folders and not f"{folder}/".startswith(tuple(wanted.rstrip("/") + "/" for wanted in folders)):
            continue
        if folder != shown:
            print(f"{folder}/" if shown is None else f"\n{folder}/")
            shown = folder
        print(f"  {name}: {sentence(headers[path])}{' ' + PURE if is_pure(headers[path]) else ''}")
    return 0 if shown else 1


def main(arguments):
    headers = {}
    for path in sys.stdin.read().split("\n"):
        if path.startswith(ROOTS) and path.endswith(".h"):
            with open(path, encoding="utf-8") as file:
                headers[path] = file.read()
    if not headers:
        print("codemap: no header was given")
        return 1
    if arguments[:1] == ["--print"]:
        return show(headers, arguments[1:])
    found = [path for path in sorted(headers) if len(sentence(headers[path]).split()) < 2]
    for path in found:
        print(f"{path}:1: no comment on the first line says what is in it")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
