#!/usr/bin/env python3
"""short_limits.py FILE...: no test on a real clock has a limit below one second.

A machine that others use stands still for seconds, and such a limit is then over before what it waits for has begun.
A test is on a real clock where it, or a file of tests/ that it includes, names a clock, a thread or a process. Looked
for are literal durations above zero and below a second: `milliseconds(300)`, `300ms`, and `NAME_timeout=0.5`,
`keep_alive_interval=0.5` in options. What is no limit says so on its line or on the one above:

  // lower bound: WHY   the time in which something must not happen, or which must have passed
  // no limit: WHY      an interval, or a delay that the test itself makes

short_limits_known.txt lists files that had breaches before this rule, and how many: no more may come. Every breach is
one line: path, line and what stands there.
"""

import os
import re
import sys

REAL = re.compile(r"\b(?:steady_clock|system_clock|SteadyNow|Clock::now|sleep_for|wait_for|wait_until|std::thread|"
                  r"std::jthread|std::async|condition_variable|Subprocess|Eventually|poll|fork|io_context)\b")
INCLUDE = re.compile(r'^#include "(tests/[^"]+)\.h"', re.M)
UNITS = {"milliseconds": 1e3, "ms": 1e3, "microseconds": 1e6, "us": 1e6, "nanoseconds": 1e9, "ns": 1e9}
NUMBER = r"(\d[\d']*)"
CALL = re.compile(r"\b(milliseconds|microseconds|nanoseconds)[({]" + NUMBER + r"[)}]")
SUFFIX = re.compile(r"(?<![\w.])" + NUMBER + r"(ms|us|ns)\b")
OPTION = re.compile(r"\b\w*(?:timeout|keep_alive_interval)=0?\.\d*[1-9]")
# Between two looks.
INTERVAL = re.compile(r"\b(?:sleep_for|usleep)\(")
EXCUSE = re.compile(r"//.*\b(?:lower bound|no limit): \S")


KNOWN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "short_limits_known.txt")


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
    for match in CALL.finditer(code):
        if 0 < int(match.group(2).replace("'", "")) < UNITS[match.group(1)]:
            yield match.group(0)
    for match in SUFFIX.finditer(code):
        if 0 < int(match.group(1).replace("'", "")) < UNITS[match.group(2)]:
            yield match.group(0)
    for match in OPTION.finditer(code):
        yield match.group(0)


def check(path, texts):
    if not is_on_real_clock(path, texts, set()):
        return
    before = ""
    for number, line in enumerate(read(path, texts).split("\n"), 1):
        if not EXCUSE.search(line) and not EXCUSE.search(before):
            for found in short_ones(line):
                yield (f"{path}:{number}: {found} on a real clock: a limit is a second at least; or say "
                       f"\"// lower bound: why\" or \"// no limit: why\"")
        before = line


def main(paths):
    if not paths:
        print("short_limits: no file was given")
        return 1
    with open(KNOWN, encoding="utf-8") as file:
        known = {path: int(count) for path, count in (line.split() for line in file)}
    texts, is_broken = {}, False
    for path in paths:
        breaches = list(check(path, texts))
        if len(breaches) > known.get(path, 0):
            is_broken = True
            print("\n".join(breaches))
    return 1 if is_broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
