#!/usr/bin/env python3
"""Finds dead links in Markdown files: links.py FILE...

A relative link names a file that is there, and its part after # a heading of that file.
"""

import functools
import os
import re
import sys


@functools.cache
def anchors(path):
    """Of each heading, as GitHub and mkdocs make them, and those that are written out."""
    found = set()
    with open(path, encoding="utf-8") as file:
        for line in file:
            heading = re.match(r"#+ (.*)", line)
            if heading:
                text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).strip().lower()
                found.add(re.sub(r"[^\w\- ]", "", text).replace(" ", "-"))
            found.update(re.findall(r'<a id="([^"]+)">', line))
    return found


def links(text):
    """(line, target) of each, code left out."""
    without_blocks = re.sub(r"^(```|~~~).*?^\1", lambda m: "\n" * m[0].count("\n"), text, flags=re.S | re.M)
    for number, line in enumerate(without_blocks.splitlines(), 1):
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


def breaches(name):
    with open(name, encoding="utf-8") as file:
        text = file.read()
    for line, target in links(text):
        path, _, anchor = target.partition("#")
        path = os.path.join(os.path.dirname(name), path) if path else name
        if not os.path.exists(path):
            yield f"{name}:{line}: {target}: there is no such file"
        elif anchor and path.endswith(".md") and anchor not in anchors(path):
            yield f"{name}:{line}: {target}: there is no such heading"


def main(names):
    found = [breach for name in names for breach in breaches(name)]
    print("\n".join(found), end="\n" if found else "")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
