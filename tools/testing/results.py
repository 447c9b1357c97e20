"""What a run of `bazel test` did, from its build event file and the log and test.xml of each program.

Only C++ programs hold doctest cases; a script counts none and is named when it fails. A program that ends badly counts
at least one failed case, whatever it printed. Bazel may take the result of a test in its sandbox from its cache: that
is counted, and said. What has no sandbox must have been executed.
"""

import collections
import dataclasses
import json
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree

_CASES = re.compile(r"^\[doctest\] test cases: +(\d+) \| +(\d+) passed \| +(\d+) failed", re.M)
_SKIPPED = re.compile(r"^SKIPPED: (.*)$", re.M)
_SECTION = re.compile(r"^---- (\S+\.cc)\n", re.M)  # tests/support/doctest_main.cc writes one for each file that prints
_FILE_COUNTS = re.compile(r"^\S+\.cc: \d+ passed, \d+ failed", re.M)
_CUT_OFF = {"NO_STATUS", "INCOMPLETE"}  # statuses; an interrupted Bazel mostly leaves an event that has none
_NEVER_REUSED = {"external", "no-sandbox", "local", "exclusive"}  # tags
LOG_LINES = 60  # of a failed file's log
NOT_RUN = "was not run (did it build?)"
NOT_ENDED = "had not ended when Bazel was interrupted"


@dataclasses.dataclass
class Case:
    file: str
    name: str
    seconds: float
    state: str  # "passed", "failed" or "skipped"
    why: str = ""  # it was skipped, or what failed


@dataclasses.dataclass
class Program:
    """What one test program did, all of its shards together."""
    label: str
    is_doctest: bool
    status: str = NOT_RUN
    ok: bool = False
    is_reused: bool = False
    passed: int = 0
    failed: int = 0
    seconds: float = 0.0
    skips: list = dataclasses.field(default_factory=list)  # reasons
    cases: list = dataclasses.field(default_factory=list)  # of its test.xml
    tails: dict = dataclasses.field(default_factory=dict)  # what failed (a source file, else "") -> end of its log

    @property
    def has_run(self):
        return self.status != NOT_RUN

    @property
    def is_cut(self):
        """It has neither passed nor failed."""
        return self.status in (NOT_RUN, NOT_ENDED)


@dataclasses.dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    programs: int = 0
    scripts: int = 0
    reused: int = 0  # programs
    bad: int = 0


def count(programs):
    counts = Counts(programs=len(programs))
    for program in programs:
        counts.passed += program.passed
        counts.failed += program.failed
        counts.skipped += len(program.skips) if program.is_doctest else 0
        counts.scripts += program.ok and not program.is_doctest
        counts.reused += program.is_reused
        counts.bad += not program.ok
    return counts


def _text(event, name):
    """The text of an output of a test, or nothing where it left none."""
    for output in event.get("testActionOutput", []):
        if output.get("name") == name and output.get("uri", "").startswith("file:"):
            path = urllib.parse.unquote(urllib.parse.urlparse(output["uri"]).path)
            try:
                with open(path, encoding="utf-8", errors="replace") as file:
                    return file.read()
            except OSError:
                return ""
    return ""


def _tail(text):
    return text.rstrip("\n").splitlines()[-LOG_LINES:]


def _sections(log):
    """Of each source file, what its child printed."""
    parts = _SECTION.split(log)
    return {file: _FILE_COUNTS.split(text)[0] for file, text in zip(parts[1::2], parts[2::2])}


def _suites(text):
    """The suites of our own test.xml; Bazel writes one in its place where a program leaves none."""
    try:
        root = ElementTree.fromstring(text)
    except ElementTree.ParseError:
        return []
    return [suite for suite in root.iter("testsuite") if suite.get("name", "").endswith((".cc", ".h"))]


def _case(suite, item):
    state, why = "passed", ""
    for child in item:
        if child.tag in ("failure", "error"):
            state, why = "failed", child.get("message") or (child.text or "").strip()
            break
        if child.tag == "skipped":
            state, why = "skipped", child.get("message") or (child.text or "").strip()
    return Case(suite.get("name"), item.get("name", ""), float(item.get("time") or 0), state, why)


class _Shard:
    """One test result of the event file."""

    def __init__(self, event, is_doctest, may_be_reused):
        self.status = event["status"]
        self.ok = self.status == "PASSED"
        self.passed = self.failed = self.total = 0
        self.skips, self.cases, self.tails = [], [], {}
        self.seconds = float(event.get("testAttemptDurationMillis", 0)) / 1000
        self.is_reused = bool(event.get("cachedLocally") or event.get("executionInfo", {}).get("cachedRemotely"))
        if self.is_reused and not may_be_reused:
            self._spoil("was taken from a cache, not executed")
        log = _text(event, "test.log")
        if is_doctest:
            self._read_cases(log, _suites(_text(event, "test.xml")))
        else:
            self.skips = _SKIPPED.findall(log)
        if not self.ok and not self.tails:
            self.tails[""] = _tail(log)

    def _spoil(self, status):
        self.ok = False
        self.status = status

    def _read_cases(self, log, suites):
        for suite in suites:
            self.cases += [_case(suite, item) for item in suite.iter("testcase")]
        failed = {case.file for case in self.cases if case.state == "failed"}
        self.tails = {file: _tail(text) for file, text in _sections(log).items() if file in failed}
        self.skips = [case.why for case in self.cases if case.state == "skipped"] if suites else _SKIPPED.findall(log)
        found = _CASES.findall(log)
        if not found:
            self._spoil(self.status + " without doctest's summary")
            self.failed = max(1, sum(case.state == "failed" for case in self.cases))
            self.passed = sum(case.state == "passed" for case in self.cases)
            return
        self.total, passed, failed = map(int, found[-1])
        if self.ok and suites and len(self.cases) != self.total:
            self._spoil(f"counts {self.total} cases in its log and {len(self.cases)} in its test.xml")
        # A case that calls SkipTest passes in doctest's own count.
        self.passed = max(0, passed - len(self.skips))
        self.failed = failed if self.ok else max(failed, 1)


def _gather(program, shards, is_cut):
    """Puts the results of all shards together."""
    program.status = next((shard.status for shard in shards if not shard.ok), NOT_ENDED if is_cut else "PASSED")
    program.ok = program.status == "PASSED"
    program.is_reused = not is_cut and all(shard.is_reused for shard in shards)
    program.passed = sum(shard.passed for shard in shards)
    program.failed = max(sum(shard.failed for shard in shards), int(program.is_doctest and is_cut))
    program.seconds = sum(shard.seconds for shard in shards)
    for shard in shards:
        program.skips += shard.skips
        program.cases += shard.cases
        program.tails.update(shard.tails)
    if program.ok and program.is_doctest and sum(shard.total for shard in shards) == 0:
        program.ok = False
        program.status = "holds no test case"


def read(lines):
    """The programs of a build event file, sorted by label."""
    programs, shards, tags, cut = {}, collections.defaultdict(list), {}, set()
    for line in lines:
        event = json.loads(line)
        identity = event.get("id", {})
        configured = event.get("configured", {})
        if "targetConfigured" in identity and configured.get("testSize"):
            label = identity["targetConfigured"]["label"]
            is_doctest = configured["targetKind"] == "cc_test rule"
            programs[label] = Program(label, is_doctest, failed=int(is_doctest))
            tags[label] = configured.get("tag", [])
        elif "testResult" in identity:
            label = identity["testResult"]["label"]
            result = event.get("testResult", {})
            if result.get("status", "NO_STATUS") in _CUT_OFF:
                cut.add(label)
                continue
            may_be_reused = _NEVER_REUSED.isdisjoint(tags[label])
            shards[label].append(_Shard(result, programs[label].is_doctest, may_be_reused))
    for label in shards.keys() | cut:
        _gather(programs[label], shards[label], label in cut)
    return [programs[label] for label in sorted(programs)]
