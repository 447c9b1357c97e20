"""Stages are run one after the other, and each is told of."""

import contextlib
import io
import json
import subprocess
import tempfile
import unittest
from unittest import mock

import context  # noqa: F401

import main
import session
from plan import Command, Tests


class FakeBazel:
    """Stands for the module: each command has its status, and tests leave events."""

    def __init__(self, statuses=(), events=(), cut=()):
        self.commands = []
        self.limits = []
        self._statuses = dict(statuses)
        self._events = events
        self._cut = cut

    def words(self, function, *arguments):
        return (function, *arguments)

    def set_environment(self):
        pass

    def query(self, expression):
        if "query" in self._statuses:
            raise subprocess.CalledProcessError(self._statuses["query"], ["bazel"])
        return '<query version="2"/>'

    def side_by_side(self, programs_per_core, cores):
        return ()

    def run(self, words, limit_s=None):
        name = " ".join(words[:2]) if words[0] == "bazel_" else words[0]
        self.commands.append(name)
        self.limits.append(limit_s)
        if name == "bazel_ test":
            path = next(word.partition("=")[2] for word in words if word.startswith("--build_event_json_file="))
            with open(path, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(event) + "\n" for event in self._events)
        return self._statuses.get(name, 0), name in self._cut


def ran(label, status="PASSED"):
    return [{"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": "sh_test rule", "testSize": "SMALL"}},
            {"id": {"testResult": {"label": label}}, "testResult": {"status": status}}]


def cut_off(label, kind="cc_test"):
    """What an interrupted Bazel leaves of a test that ran, and of one that it had not begun."""
    return [{"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": f"{kind} rule", "testSize": "SMALL"}},
            {"id": {"testResult": {"label": label, "run": 1, "shard": 2}}, "aborted": {"reason": "USER_INTERRUPTED"}}]


class SessionTest(unittest.TestCase):
    def run_stages(self, stages, **fake):
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as self.out, \
                contextlib.redirect_stderr(io.StringIO()), mock.patch.object(session, "bazel", FakeBazel(**fake)) as self.bazel:
            run = session.Session(scratch, 2)
            self.has_gone_on = run.run(stages)
            return run

    def words(self, run):
        return [(stage.name, stage.word) for stage in run.stages]

    def test_a_failure_does_not_hide_the_rest(self):
        run = self.run_stages([Command("one", ("one",)), Command("two", ("two",)), Tests("plain", ("//a:t",))],
                              statuses={"one": 1}, events=ran("//a:t"))
        self.assertEqual(self.words(run), [("one", "FAILED"), ("two", "passed"), ("plain", "passed")])
        self.assertEqual((run.failed, self.has_gone_on), (["one"], True))

    def test_some_failures_end_the_run(self):
        run = self.run_stages([Command("style", ("style",), ends_run=True), Command("two", ("two",))], statuses={"style": 1})
        self.assertEqual((self.words(run), self.has_gone_on), ([("style", "FAILED")], False))

    def test_what_needs_a_stage_that_failed_is_not_run_and_said_so(self):
        run = self.run_stages([Command("build", ("build",)), Command("readme", ("readme",), needs=("build",))], statuses={"build": 1})
        self.assertEqual(self.words(run), [("build", "FAILED"), ("readme", "not run, as build failed,")])
        self.assertEqual(self.bazel.commands, ["build"])

    def test_all_is_built_before_the_tests_and_what_does_not_build_fails(self):
        run = self.run_stages([Tests("plain", ("//a:t",))], statuses={"bazel_ build": 1}, events=ran("//a:t"))
        self.assertEqual(self.bazel.commands, ["bazel_ build", "bazel_ test"])
        self.assertEqual(run.failed, ["plain"])

    def test_a_failed_test_fails_its_stage_and_is_shown(self):
        run = self.run_stages([Tests("plain", ("//a:t",))], statuses={"bazel_ test": 3}, events=ran("//a:t", "FAILED"))
        self.assertEqual(run.failed, ["plain"])
        self.assertIn("plain: FAILED //a:t: FAILED", self.out.getvalue())

    def test_no_test_at_all_is_a_failure(self):
        run = self.run_stages([Tests("plain", ("//a:t",))])
        self.assertEqual(run.failed, ["plain"])
        self.assertIn("no test was executed", self.out.getvalue())

    def test_the_stages_of_the_tenth_share_a_limit_and_no_other_has_one(self):
        self.run_stages([Command("one", ("one",)), Command("two", ("two",), is_of_tenth=True), Tests("t", ("//a:t",), is_of_tenth=True)],
                        events=ran("//a:t"))
        self.assertIsNone(self.bazel.limits[0])
        self.assertTrue(all(0 < limit <= session.plan.TENTH_S for limit in self.bazel.limits[1:]))
        self.assertEqual(sorted(self.bazel.limits[1:], reverse=True), self.bazel.limits[1:])

    def test_what_a_landing_can_do_without_ends_with_its_time_and_nothing_else_does(self):
        stages = [Tests("plain", ("//a:t",)), Tests("asan", ("//a:t",), may_be_cut=True), Command("two", ("two",), is_of_tenth=True)]
        run = self.run_stages(stages, events=ran("//a:t"))
        self.assertEqual(self.bazel.limits[:2], [None, None])
        self.assertTrue(all(session.plan.TENTH_S < limit <= session.plan.LANDING_S for limit in self.bazel.limits[2:4]))
        with mock.patch.object(session.plan, "LANDING_S", -1):
            run = self.run_stages(stages, events=ran("//a:t"))
        self.assertEqual((self.words(run), run.failed), ([("plain", "passed"), ("asan", "not begun"), ("two", "not begun")], []))

    def test_what_the_limit_leaves_no_time_for_is_not_begun(self):
        with mock.patch.object(session.plan, "TENTH_S", -1):
            run = self.run_stages([Command("one", ("one",), is_of_tenth=True), Command("two", ("two",))])
        self.assertEqual(self.words(run), [("one", "not begun"), ("two", "passed")])

    def test_what_the_limit_cuts_off_is_no_failure_but_what_had_failed_is(self):
        cut = ran("//a:t") + ran("//a:u", "INCOMPLETE") + ran("//a:v")[:1] + cut_off("//a:x") + cut_off("//a:y", "sh_test")
        run = self.run_stages([Tests("t", ("//a:t",), is_of_tenth=True)], statuses={"bazel_ test": 8}, events=cut, cut=["bazel_ test"])
        self.assertEqual((self.words(run), run.failed), ([("t", "not finished")], []))
        for failed in (ran("//a:w", "FAILED"), ran("//a:y", "FAILED")[1:]):  # by itself, and one shard beside a cut one
            run = self.run_stages([Tests("t", ("//a:t",), is_of_tenth=True)], events=cut + failed, cut=["bazel_ test"])
            self.assertEqual(run.failed, ["t"])

    def test_what_was_cut_off_without_a_limit_is_a_failure(self):
        for events in (cut_off("//a:t"), ran("//a:t")[:1], ran("//a:t") + cut_off("//a:t", "sh_test")):
            self.assertEqual(self.run_stages([Tests("t", ("//a:t",))], events=events).failed, ["t"])


class RingTest(unittest.TestCase):
    def run_ring(self, only=None, **fake):
        with tempfile.TemporaryDirectory() as scratch, contextlib.redirect_stdout(io.StringIO()) as out, \
                contextlib.redirect_stderr(io.StringIO()), mock.patch.object(session, "bazel", FakeBazel(**fake)) as bazel, \
                mock.patch.object(main, "bazel", bazel), mock.patch.object(main.promises, "read_table", lambda: []):
            self.status = main.run_ring(0, scratch, 2, only)
            self.lines = out.getvalue().splitlines()
            self.bazel = bazel

    def test_a_ring_that_passes_ends_with_its_count(self):
        self.run_ring(events=ran("//a:t"))
        self.assertEqual((self.status, self.lines[-1]), (0, "0 passed, 0 failed, 0 skipped"))

    def test_the_stages_that_are_named_run_behind_the_opening(self):
        self.run_ring(only="portable,build")
        names = [line.split()[0] for line in self.lines[self.lines.index("stages:") + 1:] if line.endswith("passed")]
        self.assertEqual(names, ["setup", "style", "tools/testing", "targets", "build", "portable"])

    def test_a_stage_that_is_none_is_refused(self):
        with self.assertRaises(SystemExit) as ended:
            self.run_ring(only="build,prtable")
        self.assertEqual(ended.exception.code, 2)

    def test_a_breach_of_style_ends_it_before_anything_is_built(self):
        self.run_ring(statuses={"tools/lint": 1})
        self.assertEqual((self.status, self.lines[-2:]), (1, ["failed: style", "0 passed, 0 failed, 0 skipped"]))
        self.assertEqual(self.bazel.commands, ["tools/setup", "tools/lint"])

    def test_targets_that_bazel_cannot_tell_are_a_failure(self):
        self.run_ring(statuses={"query": 7})
        self.assertEqual((self.status, self.lines[-2:]), (1, ["failed: targets", "0 passed, 0 failed, 0 skipped"]))

    def test_a_promise_in_another_ring_is_a_failure_and_hides_nothing(self):
        with mock.patch.object(main.promises, "ring_breaches", lambda *_: ["it is not"]):
            self.run_ring(events=ran("//a:t"))
        self.assertEqual((self.status, self.lines[-2]), (1, "failed: targets"))
        self.assertIn("bazel_ test", self.bazel.commands)


class OptionsTest(unittest.TestCase):
    def refused(self, *arguments):
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit) as ended:
            main.parse(arguments)
        self.assertEqual(ended.exception.code, 2)
        return said.getvalue()

    def test_options_that_do_not_go_together_are_refused(self):
        for arguments in (["--ci", "--nightly"], ["--asan"], ["--asan", "--tsan", "x"], ["--ci", "x"], ["--only=plain", "x"], ["--fast"], ["--c"]):
            with self.subTest(arguments):
                self.assertIn("usage", self.refused(*arguments))

    def test_options_that_are_gone_say_what_took_their_place(self):
        self.assertIn("--quick is gone: tools/test", self.refused("--quick"))
        self.assertIn("--nightly", self.refused("--full", "//..."))

    def test_paths_and_rings_are_read(self):
        self.assertEqual(main.parse(["--asan", "a", "b"]).paths, ["a", "b"])
        self.assertTrue(main.parse(["--nightly", "--dry-run"]).dry_run)


if __name__ == "__main__":
    unittest.main()
