#!/usr/bin/env python3
"""Counts the doctest cases of one `bazel test` run from its build event file.

usage: test_summary.py NAME EVENTS.json [COUNTS]

Prints what failed, with the end of its log, and what was skipped, then "NAME: N passed, N failed,
N skipped (...)". With COUNTS, writes "N N N" there. Exit status 1 when anything failed, was not executed in
this very run, or when nothing was executed at all.

Only C++ test programs hold doctest cases; a shell script counts none and is named when it fails. A test
program that ends badly counts at least one failed case, whatever it printed.
"""

import json
import re
import sys
import urllib.parse

CASES = re.compile(r"^\[doctest\] test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed", re.M)
LOG_LINES = 60  # of a failed program's log
NOT_RUN = "was not run (did it build?)"
SKIPPED = re.compile(r"^SKIPPED: (.*)$", re.M)


class Result:
    """What one test program did."""

    def __init__(self, kind):
        self.is_doctest = kind == "cc_test rule"
        self.ran = False
        self.ok = False
        self.status = NOT_RUN
        self.passed = 0
        self.failed = 1 if self.is_doctest else 0
        self.skips = []
        self.log = []

    def read(self, event, text):
        self.ran = not event.get("cachedLocally") and not event.get("executionInfo", {}).get("cachedRemotely")
        self.status = event.get("status", "NO_STATUS") if self.ran else "was taken from a cache, not executed"
        self.ok = self.ran and self.status == "PASSED"
        self.log = text.splitlines()[-LOG_LINES:]
        if not self.is_doctest:
            return
        found = CASES.findall(text)
        if not found:
            self.ok = False
            self.status += " without doctest's summary"
            return
        cases, passed, failed = map(int, found[-1])
        self.skips = SKIPPED.findall(text)
        # A case that calls SkipTest passes in doctest's own count.
        self.passed = max(0, passed - len(self.skips))
        self.failed = failed if self.ok else max(failed, 1)
        if self.ok and cases == 0:
            self.ok = False
            self.status = "holds no test case"


def log_of(event):
    """Text of a test's log, or nothing when it left none."""
    for output in event.get("testActionOutput", []):
        if output.get("name") == "test.log":
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            with open(path, encoding="utf-8", errors="replace") as log:
                return log.read()
    return ""


def read_events(path):
    results = {}
    kinds = {}
    with open(path, encoding="utf-8") as events:
        for line in events:
            event = json.loads(line)
            identity = event.get("id", {})
            if "targetConfigured" in identity and event.get("configured", {}).get("testSize"):
                label = identity["targetConfigured"]["label"]
                kinds[label] = event["configured"]["targetKind"]
                results[label] = [Result(kinds[label])]
            elif "testResult" in identity:
                label = identity["testResult"]["label"]
                result = Result(kinds[label])
                result.read(event["testResult"], log_of(event["testResult"]))
                # The first result replaces "was not run"; shards follow.
                if results[label][0].status == NOT_RUN:
                    results[label] = []
                results[label].append(result)
    return results


def main(arguments):
    name, path = arguments[0], arguments[1]
    results = read_events(path)
    passed = failed = skipped = programs = scripts = bad = 0
    for label in sorted(results):
        for result in results[label]:
            programs += 1
            scripts += result.ok and not result.is_doctest
            bad += not result.ok
            passed += result.passed
            failed += result.failed
            skipped += len(result.skips)
            for why in result.skips:
                print(f"{name}: skipped in {label}: {why}")
            if not result.ok:
                print(f"{name}: FAILED {label}: {result.status}")
                for line in result.log:
                    print(f"  {line}")
    if programs == 0:
        print(f"{name}: no test was executed")
    print(f"{name}: {passed} passed, {failed} failed, {skipped} skipped"
          f" ({programs} test programs, {scripts} of them scripts)")
    if len(arguments) > 2:
        with open(arguments[2], "w", encoding="utf-8") as counts:
            counts.write(f"{passed} {failed} {skipped}\n")
    return 1 if bad or failed or programs == 0 else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
