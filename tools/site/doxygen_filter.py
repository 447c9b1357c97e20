#!/usr/bin/env python3
"""Prints a header as Doxygen reads it: doxygen_filter.py FILE. The headers' comments are plain, and
Doxygen takes only those with a mark of its own. Lines keep their numbers."""

import os
import re
import sys

_COMMENT = re.compile(r"^(\s*)(//|/\*)(?! ----)(?=\s|$)(.*)$")  # a line of its own, no heading
_BEHIND = re.compile(r"^(.*\S\s*)(//|/\*)(\s.*)$")  # behind a declaration
_DECLARATION = re.compile(r"[;,{]\s*$|^\s*\w+( = [\w']+)?\s*$")


def _escaped(text):
    """What Doxygen would take for a command, HTML, or a link, outside of `code`."""
    pieces = text.split("`")
    special = r"([\\@#%<>&]|(?<!\w)::(?=\w))(?!/)"
    pieces[::2] = [re.sub(special, r"\\\1", each) for each in pieces[::2]]
    return "`".join(pieces)


class _Text:
    """The lines of one comment. What is indented behind an empty line is code."""

    def __init__(self):
        self._was_empty = self._is_code = False

    def line(self, text):
        if text.strip():
            self._is_code = text.startswith("   ") and (self._was_empty or self._is_code)
        self._was_empty = not text.strip()
        return "   " + text if self._is_code and text.strip() else _escaped(text)


def _lines(name, lines):
    in_block, text = False, _Text()
    for number, line in enumerate(lines):
        comment = _COMMENT.match(line)
        behind = None if comment or in_block else _BEHIND.match(line)
        if in_block:
            in_block = "*/" not in line
            star, rest = re.match(r"(\s*\*?)(.*)", line).groups()
            yield star + text.line(rest)
            continue
        if comment:
            space, opens, rest = comment.groups()
            in_block = opens == "/*" and "*/" not in rest
            mark = "///" if opens == "//" else "/**"
            yield f"{space}{mark}{f' @file {name}' if number == 0 else ''}{text.line(rest)}"
            continue
        text = _Text()
        if behind and behind[1].count('"') % 2 == 0 and _DECLARATION.search(behind[1]):
            yield f"{behind[1]}{behind[2]}{'/' if behind[2] == '//' else '*'}<{_escaped(behind[3])}"
        else:
            yield line


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as header:
        for each in _lines(os.path.basename(sys.argv[1]), header.read().splitlines()):
            print(each)
