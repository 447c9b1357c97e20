"""Runs the stages of a plan, one after the other, and remembers how each ended."""

import os
import subprocess
import sys
import time

import bazel
import plan
import report
import results
import threads


def say(text):
    print(f"tools/test: {text}", file=sys.stderr, flush=True)


class Session:
    def __init__(self, scratch, cores):
        self._scratch = scratch
        self._cores = cores
        self._landing_ends = time.monotonic() + plan.LANDING_S
        self._tenth_ends = None
        self.stages = []  # report.StageResult
        self.runs = []  # (name, programs)
        self.failed = []  # names
        self.targets = []

    def run(self, stages):
        """Runs them; False where one has failed that ends the run."""
        for stage in stages:
            if self._limit(stage) == 0:
                self.note(stage.name, 0, "not begun")
            elif isinstance(stage, plan.Tests):
                self._tests(stage)
            elif not self._command(stage) and stage.ends_run:
                return False
        return True

    def note(self, name, seconds, word):
        print(f"{name}: {word} after {seconds:.0f} s", flush=True)
        self.stages.append(report.StageResult(name, seconds, word))
        if word == "FAILED":
            self.failed.append(name)

    def _limit(self, stage):
        """Seconds that are left to a stage; None: as many as it takes. The stages of the tenth share a limit."""
        ends = self._landing_ends
        if stage.is_of_tenth:
            self._tenth_ends = self._tenth_ends or time.monotonic() + plan.TENTH_S
            ends = min(ends, self._tenth_ends)
        elif not getattr(stage, "may_be_cut", False):
            return None
        return max(0.0, ends - time.monotonic())

    def _command(self, stage):
        began = time.monotonic()
        lacking = [name for name in stage.needs if name in self.failed]
        if lacking:
            self.note(stage.name, 0, f"not run, as {', '.join(lacking)} failed,")
            return False
        values = {"scratch": self._scratch, "fuzz_jobs": str(fuzz_jobs(self._cores))}
        words = [word.format(**values) for word in stage.words if word != "{bazel}"]
        if "{bazel}" in stage.words:
            words = bazel.words("bazel_", *words)
        status, is_cut = bazel.run(words, self._limit(stage))
        self.note(stage.name, time.monotonic() - began, "not finished" if is_cut else "FAILED" if status else "passed")
        return status == 0

    def _tests(self, stage):
        began = time.monotonic()
        labels = stage.labels
        if stage.threads_only:
            labels = self._threaded(labels)
            if labels is None:
                self.note(stage.name, time.monotonic() - began, "FAILED")
                return
            say(f"{stage.name}: {len(labels)} of {len(stage.labels)} programs can start a thread")
        status, programs, is_cut = self._bazel_test(stage, labels)
        if is_cut:
            programs = [program for program in programs if not program.is_cut]
            say(f"{stage.name}: its limit came: {len(programs)} of {len(labels)} programs have run")
        for line in report.failures(stage.name, programs) if programs or not is_cut else ():
            print(line)
        print(report.count_line(stage.name, programs), flush=True)
        self.runs.append((stage.name, programs))
        counts = results.count(programs)
        is_bad = counts.bad or counts.failed or not is_cut and (status or not programs)
        self.note(stage.name, time.monotonic() - began, "FAILED" if is_bad else "not finished" if is_cut else "passed")

    def _bazel_test(self, stage, labels):
        """(Bazel's status, programs, whether the limit ended it)."""
        stem = os.path.join(self._scratch, stage.name.replace(" ", "_"))
        write(stem + ".labels", labels)
        write(stem + ".build", stage.build or labels)
        events = stem + ".json"
        write(events, ())
        flags = ("--keep_going", *stage.flags, *stage.test_flags)
        # First all of the build, then the tests: a compiler beside them takes the time that they wait for.
        began = time.monotonic()
        say(f"{stage.name}: building")
        built, is_cut = bazel.run(bazel.words("bazel_", "build", *flags, f"--target_pattern_file={stem}.build"),
                                  self._limit(stage))
        if is_cut:
            return built, [], True
        say(f"{stage.name}: running, after {time.monotonic() - began:.0f} s of building")
        ran, is_cut = bazel.run(
            bazel.words("bazel_", "test", *flags, "--flaky_test_attempts=1", "--test_summary=none", "--test_output=summary",
                        *bazel.side_by_side(stage.side_by_side, self._cores),
                        f"--build_event_json_file={events}", f"--target_pattern_file={stem}.labels"), self._limit(stage))
        with open(events, encoding="utf-8") as lines:
            return built or ran, results.read(lines), is_cut

    def _threaded(self, labels):
        """Those that can start a thread; None where the answer cannot be trusted."""
        probes = (plan.THREADED, plan.SINGLE)
        status, _ = bazel.run(bazel.words("bazel_", "build", *plan.OPT, *probes))
        programs = threads.Programs(bazel.folder(*plan.OPT))
        if status or not programs.can(plan.THREADED) or programs.can(plan.SINGLE):
            say(f"{plan.THREADED} starts a thread and {plan.SINGLE} does not: that was not found")
            return None
        return threads.choose(labels, self.targets, programs.can)


def write(path, lines):
    with open(path, "w", encoding="utf-8") as file:
        file.writelines(line + "\n" for line in lines)


def fuzz_jobs(cores):
    """Two for each core where there are four at most, as some targets wait; else one."""
    return 2 * cores if cores <= 4 else cores


def tsan_flags():
    """Where the address randomisation cannot be switched off, the thread sanitizer may still work."""
    done = subprocess.run(("setarch", "-R", "true"), stdin=subprocess.DEVNULL, capture_output=True, check=False)
    if done.returncode == 0:
        return ("--config=tsan",)
    say("tsan: setarch -R is not permitted here")
    return ("--config=tsan", "--run_under=")
