#!/usr/bin/env python3
"""short_limits.py FILE...: no test on a real clock has a limit below one second.

A machine that others use stands still for seconds, and such a limit is then over before what it waits for has begun.
A test is on a real clock where it, or a file of tests/ that it includes, names a clock, a thread or a process. Looked
for are literal durations above zero and below a second: `milliseconds(300)`, `milliseconds name{300}`, `300ms`, and
`NAME_timeout=0.5`, `keep_alive_interval=0.5` in options; but not `CHECK(passed >= 300ms)`, `figure == 300ms` and
`passed / 1ms`. What is no limit says so on its line, or in a comment above the statement or block:

  // lower bound: WHY   the time in which something must not happen, or which must have passed
  // no limit: WHY      an interval, a delay that the test itself makes, or a figure that nobody waits for

Every breach is one line: path, line and what stands there.
"""

import os
import re
import sys

REAL = re.compile(r"\b(?:steady_clock|system_clock|SteadyNow|Clock::now|sleep_for|wait_for|wait_until|std::thread|"
                  r"std::jthread|std::async|condition_variable|Subprocess|Eventually|poll|fork|io_context)\b")
INCLUDE = re.compile(r'^#include "(tests/[^"]+)\.h"', re.M)
UNITS = {"milliseconds": 1e3, "ms": 1e3, "microseconds": 1e6, "us": 1e6, "nanoseconds": 1e9, "ns": 1e9}
NUMBER = r"(\d[\d']*)"
CALL = re.compile(r"\b(milliseconds|microseconds|nanoseconds)(?: \w+)?[({]" + NUMBER + r"[)}]")
SUFFIX = re.compile(r"(?<![\w.])" + NUMBER + r"(ms|us|ns)\b")
OPTION = re.compile(r"\b\w*(?:timeout|keep_alive_interval)=0?\.\d*[1-9]")
# Between two looks.
INTERVAL = re.compile(r"\b(?:sleep_for|usleep)\(")
# What has passed, or a figure.
COMPARED = re.compile(r"(?:\b(?:CHECK|REQUIRE|EXPECT)\([^!]* >=?| [!=]=| /) [\w:]*$")
EXCUSE = re.compile(r"//.*\b(?:lower bound|no limit): \S")


def read(path, texts):
    if path not in texts:
        texts[path] = ""
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as file:
                texts[path] = file.read()
    return texts[path]


def is_on_real_clock(path, texts, seen):
    """Whether the file, or one of tests/ that it includes, names a clock, a thread or a process."""
    if path in seen:
        return False
    seen.add(path)
    code = re.sub(r"//[^\n]*", "", read(path, texts))
    if REAL.search(code):
        return True
    stems = INCLUDE.findall(code)
    return any(is_on_real_clock(stem + end, texts, seen) for stem in stems for end in (".h", ".cc"))


def short_ones(line):
    code = line.split("//")[0]
    if INTERVAL.search(code):
        return
    for pattern in CALL, SUFFIX:
        for match in pattern.finditer(code):
            unit, number = sorted(match.groups(), reverse=True)
            is_short = 0 < int(number.replace("'", "")) < UNITS[unit]
            if is_short and not COMPARED.search(code[:match.start()]):
                yield match.group(0)
    for match in OPTION.finditer(code):
        yield match.group(0)


def indent_of(line):
    return len(line) - len(line.lstrip())


def unexcused(text):
    """The lines, with their numbers, that no comment excuses: above a statement or block it does so for all of it."""
    excused = None  # how deep the statement stands that a comment above excuses
    has_begun = False
    for number, line in enumerate(text.split("\n"), 1):
        is_comment = line.lstrip().startswith("//")
        if has_begun and line and (indent_of(line) < excused or
                                   indent_of(line) == excused and line.lstrip()[0] not in ")}"):
            excused, has_begun = None, False
        if is_comment and EXCUSE.search(line):
            excused, has_begun = indent_of(line), False
        elif excused is not None and line and not is_comment:
            has_begun = True
        if excused is None and not EXCUSE.search(line):
            yield number, line


def check(path, texts):
    if not is_on_real_clock(path, texts, set()):
        return
    for number, line in unexcused(read(path, texts)):
        for found in short_ones(line):
            yield (f"{path}:{number}: {found} on a real clock: a limit is a second at least; or say "
                   f"\"// lower bound: why\" or \"// no limit: why\"")


def main(paths):
    if not paths:
        print("short_limits: no file was given")
        return 1
    texts = {}
    breaches = [breach for path in paths for breach in check(path, texts)]
    print("".join(breach + "\n" for breach in breaches), end="")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
