#!/usr/bin/env python3
"""Lists the files that a package has as documents: README.md, CHANGELOG.md, SECURITY.md, the pages
for users in docs/, and each file that a relative link leads to from there. So no link is dead."""

import os
import pathlib
import sys

REPOSITORY = pathlib.Path(__file__).resolve().parents[2]
FIRST = ("README.md", "CHANGELOG.md", "SECURITY.md")
INTERNALS = "docs/internals/"  # for those who change ddprun: only what the others link to
sys.path.insert(0, str(REPOSITORY / "tools/lint_checks"))
sys.dont_write_bytecode = True

import links  # noqa: E402


def files_of(target):
    """A folder stands for its files."""
    path = REPOSITORY / target
    if path.is_dir():
        return [str(each.relative_to(REPOSITORY)) for each in path.rglob("*") if each.is_file()]
    return [target]


def documents():
    pages = files_of("docs")
    waiting = [*FIRST, *(p for p in pages if p.endswith(".md") and not p.startswith(INTERNALS))]
    found = set()
    while waiting:
        name = waiting.pop()
        if name in found:
            continue
        found.add(name)
        if name.endswith(".md"):
            text = (REPOSITORY / name).read_text(encoding="utf-8")
            for _, link in links.links(text):
                path = link.partition("#")[0]
                if path:
                    waiting += files_of(os.path.normpath(os.path.join(os.path.dirname(name), path)))
    return sorted(found)


if __name__ == "__main__":
    print("\n".join(documents()))
