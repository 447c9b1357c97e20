#!/usr/bin/env python3
"""style.py FILE...: what clang-format does not see.

C++ files: at most 800 lines, functions of at most 70, a header guard DDPRUN_<PATH>_H_. Shell scripts:
`bash -n`, and at most 800 lines. From 400 lines on a file gets a warning, which is no breach. Files of tests
may be longer, and so may the bodies of their cases. The rows of a table, a list in braces, count nowhere.
Every breach is one line: path, line, what and how much.
"""

import re
import subprocess
import sys

MANY_FILE_LINES = 400
MAX_FILE_LINES = 800
MAX_FUNCTION_LINES = 70

# Comments, strings and character literals: blanked, so that their braces do not count. Lines stay.
LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)
# A block that is not a function although brackets may stand before it.
NOT_FUNCTION = re.compile(r"^\s*(?:namespace|class|struct|union|enum|extern|if|for|while|switch|do|else|try|catch)\b")
CASE = re.compile(r"^\s*(?:TEST_CASE|SCENARIO)\w*\s*\(")
# What stands before the brace of a list: `rows[] =`, `return`, `= Rows`, `Add(`.
BEFORE_LIST = re.compile(r"(?:(?<![=!<>])=|\breturn\b)[\w:<>,\s]*$|[(,]\s*$")
# What stands before that of a function without a name: `[this] {`, `[](int rank) -> int {`.
BEFORE_BODY = re.compile(r"(?:\)|\]|\bmutable|->\s*[\w:<>&*\s]+)\s*$")
LEADING = re.compile(r"^(?:\s*(?:template\s*<[^{}]*?>|\[\[.*?\]\]|#[^\n]*\n|(?:public|private|protected)\s*:))+", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


class Block:
    """An outermost function (with its signature), an outermost list, or a body of code within a list."""

    def __init__(self, kind, first):
        self.kind, self.first, self.last, self.rows = kind, first, first, 0

    def lines(self):
        return self.last - self.first + 1 - self.rows


def kind_of(before, around):
    """What a brace opens. before: the statement so far, around: the kinds of the blocks that are open."""
    if "body" in around:
        return None
    if "list" in around:
        return "body" if BEFORE_BODY.search(before) else None
    if NOT_FUNCTION.match(before):
        return None
    if BEFORE_LIST.search(before):
        return "list"
    if around or "(" not in before:
        return None
    return "case" if CASE.match(before) else "function"


def blocks(text):
    """Yields every function, test case and list, each with its last line and the rows of the lists in it."""
    code = LITERAL.sub(blank, text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    stack = []
    start = 0  # Where the statement begins.
    for position, char in enumerate(code):
        if char == "{":
            kind = kind_of(LEADING.sub("", code[start:position]), [block.kind for block in stack if block])
            begin = position
            if kind in ("function", "case"):
                begin = start + len(code[start:position]) - len(code[start:position].lstrip())
            stack.append(Block(kind, code.count("\n", 0, begin) + 1) if kind else None)
            if kind != "list":
                start = position + 1
        elif char == "}":
            block = stack.pop() if stack else None
            if block:
                block.last = code.count("\n", 0, position) + 1
                inner = max(0, block.last - block.first - 1)
                if block.kind == "list":
                    block.rows += inner
                for around in filter(None, stack):
                    if block.kind == "list":
                        around.rows += block.rows
                    elif block.kind == "body" and around.kind == "list":
                        around.rows -= inner
                yield block
            # The statement goes on after a list: a constructor's initialisers may hold some.
            if not block or block.kind != "list":
                start = position + 1
        elif char == ";":
            start = position + 1


def guard_of(path):
    path = path.replace("worker_runtime/include/", "")
    return "DDPRUN_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"


def check_length(path, lines):
    if lines > MAX_FILE_LINES:
        yield f"{path}:1: file of {lines} lines, at most {MAX_FILE_LINES}"
    elif lines > MANY_FILE_LINES:
        yield f"{path}:1: warning: file of {lines} lines, more than {MANY_FILE_LINES}: does it hold one idea?"


def check_cpp(path, text):
    rows = 0
    for block in blocks(text):
        if block.kind == "list":
            rows += block.rows
        elif block.kind == "function" and block.lines() > MAX_FUNCTION_LINES:
            yield f"{path}:{block.first}: function of {block.lines()} lines, at most {MAX_FUNCTION_LINES}"
    if not path.startswith("tests/"):
        yield from check_length(path, text.count("\n") - rows)
    if path.endswith(".h"):
        found = re.search(r"^#ifndef (\S+)\n#define (\S+)$", text, re.M)
        # A text that several files include on purpose refuses everybody else.
        if not found and '#error "include from ' in text:
            return
        if not found or found.group(1) != found.group(2):
            yield f"{path}:1: no header guard {guard_of(path)}"
        elif not re.fullmatch(r"DDPRUN_[A-Z0-9_]+_H_", found.group(1)):
            yield f"{path}:1: header guard {found.group(1)}, expected {guard_of(path)}"


def check_shell(path, text):
    if not path.startswith("tests/"):
        yield from check_length(path, text.count("\n"))
    result = subprocess.run(["bash", "-n", path], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        yield f"{path}:1: bash -n: {result.stderr.strip()}"


def check(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    lines = text.split("\n")
    is_cpp = path.endswith((".h", ".cc", ".c", ".cu"))
    is_shell = path.endswith(".sh") or lines[0].startswith("#!") and "bash" in lines[0]
    if (is_cpp or is_shell) and text and not text.endswith("\n"):
        yield f"{path}:{len(lines)}: no newline at the end"
    if is_cpp:
        yield from check_cpp(path, text)
    elif is_shell:
        yield from check_shell(path, text)


def main(paths):
    if not paths:
        print("style: no file was given")
        return 1
    found = [line for path in paths for line in check(path)]
    for line in found:
        print(line)
    return 1 if any(": warning: " not in line for line in found) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
