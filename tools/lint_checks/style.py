#!/usr/bin/env python3
"""style.py FILE...: what clang-format does not see.

C++ files: at most 400 lines, functions of at most 70, a header guard DDPRUN_<PATH>_H_. Shell scripts:
`bash -n`, and at most 400 lines. Every breach is one line: path, line, what and how much.
"""

import re
import subprocess
import sys

MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 70

# Comments, strings and character literals: blanked, so that their braces do not count. Lines stay.
LITERAL = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(?P<tag>[^(\s]{0,16})\(.*?\)(?P=tag)"|"(?:\\.|[^"\\\n])*"'
    r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S)
# A block that is not a function although brackets may stand before it.
NOT_FUNCTION = re.compile(r"^\s*(?:namespace|class|struct|union|enum|extern|if|for|while|switch|do|else|try|catch)\b")
LEADING = re.compile(r"^(?:\s*(?:template\s*<[^{}]*?>|\[\[.*?\]\]|#[^\n]*\n|(?:public|private|protected)\s*:))+", re.S)


def blank(match):
    return re.sub(r"[^\n]", " ", match.group(0))


def functions(text):
    """Yields (first line, last line) of every outermost function body with its signature."""
    code = LITERAL.sub(blank, text)
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, code, flags=re.M)
    stack = []  # True for a function's brace.
    start = 0   # Where the text before the next brace begins.
    opened = 0
    for position, char in enumerate(code):
        if char == "{":
            before = LEADING.sub("", code[start:position])
            # A constructor's initialisers may hold braces: the body follows ")" or "}" then.
            is_function = (not any(stack) and "(" in before and not NOT_FUNCTION.match(before)
                           and not re.search(r"=\s*$", before))
            if is_function:
                lead = len(code[start:position]) - len(code[start:position].lstrip())
                opened = start + lead
            stack.append(is_function)
            start = position + 1
        elif char == "}":
            if stack and stack.pop():
                yield code.count("\n", 0, opened) + 1, code.count("\n", 0, position) + 1
            start = position + 1
        elif char == ";":
            start = position + 1


def guard_of(path):
    path = path.replace("worker_runtime/include/", "")
    return "DDPRUN_" + re.sub(r"[^A-Z0-9]", "_", path.upper()) + "_"


def check_cpp(path, text):
    for first, last in functions(text):
        if last - first + 1 > MAX_FUNCTION_LINES:
            yield f"{path}:{first}: function of {last - first + 1} lines, at most {MAX_FUNCTION_LINES}"
    if path.endswith(".h"):
        found = re.search(r"^#ifndef (\S+)\n#define (\S+)$", text, re.M)
        # A text that several files include on purpose refuses everybody else.
        if not found and '#error "include from ' in text:
            return
        if not found or found.group(1) != found.group(2):
            yield f"{path}:1: no header guard {guard_of(path)}"
        elif not re.fullmatch(r"DDPRUN_[A-Z0-9_]+_H_", found.group(1)):
            yield f"{path}:1: header guard {found.group(1)}, expected {guard_of(path)}"


def check_shell(path):
    result = subprocess.run(["bash", "-n", path], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if result.returncode != 0:
        yield f"{path}:1: bash -n: {result.stderr.strip()}"


def check(path):
    with open(path, encoding="utf-8", errors="replace") as file:
        text = file.read()
    lines = text.split("\n")
    is_cpp = path.endswith((".h", ".cc", ".c", ".cu"))
    is_shell = path.endswith(".sh") or lines[0].startswith("#!") and "bash" in lines[0]
    if is_cpp or is_shell:
        if len(lines) - 1 > MAX_FILE_LINES:
            yield f"{path}:1: file of {len(lines) - 1} lines, at most {MAX_FILE_LINES}"
        if text and not text.endswith("\n"):
            yield f"{path}:{len(lines)}: no newline at the end"
    if is_cpp:
        yield from check_cpp(path, text)
    elif is_shell:
        yield from check_shell(path)


def main(paths):
    if not paths:
        print("style: no file was given")
        return 1
    breaches = [breach for path in paths for breach in check(path)]
    for breach in breaches:
        print(breach)
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
