"""What a run of Bazel really executed is counted, and nothing else."""

import json
import os
import tempfile
import unittest

import context  # noqa: F401

import report
import results


def summary(cases, passed, failed):
    return f"[doctest] test cases: {cases:3d} | {passed:3d} passed | {failed} failed | 0 skipped\n"


class Run:
    """A build event file, made up."""

    def __init__(self, folder):
        self._folder = folder
        self._lines = []

    def configured(self, label, kind="cc_test", tags=()):
        self._lines.append({"id": {"targetConfigured": {"label": label}},
                            "configured": {"targetKind": f"{kind} rule", "testSize": "SMALL", "tag": list(tags)}})

    def result(self, label, status, log, xml=None, **more):
        outputs = []
        for name, text in (("test.log", log), ("test.xml", xml)):
            if text is not None:
                path = os.path.join(self._folder, f"{len(self._lines)} {name}")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)
                outputs.append({"name": name, "uri": "file://" + path.replace(" ", "%20")})
        self._lines.append({"id": {"testResult": {"label": label, "run": 1}},
                            "testResult": {"status": status, "testActionOutput": outputs, **more}})

    def one(self, status, log, xml=None, tags=(), **more):
        self._lines.clear()
        self.configured("//a:t", tags=tags)
        self.result("//a:t", status, log, xml, **more)
        return self.read()[0]

    def read(self):
        return results.read(json.dumps(line) for line in self._lines)


def xml(*cases):
    """Of (file, name, what stands in the test case)."""
    files = sorted({file for file, _, _ in cases})
    suites = "".join(f'<testsuite name="{file}">' + "".join(
        f'<testcase classname="{file}" name="{name}" time="0.5">{inside}</testcase>'
        for of, name, inside in cases if of == file) + "</testsuite>" for file in files)
    return f'<?xml version="1.0" encoding="UTF-8"?><testsuites>{suites}</testsuites>'


class ResultsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.run_ = Run(folder.name)

    def expect(self, programs, passed, failed, skipped, bad=0):
        counts = results.count(programs)
        self.assertEqual((counts.passed, counts.failed, counts.skipped, counts.bad), (passed, failed, skipped, bad),
                         [program.status for program in programs])

    def test_cases_and_skipped_ones_are_counted_and_scripts_are_not(self):
        self.run_.configured("//a:t")
        self.run_.configured("//a:u")
        self.run_.configured("//a:s", "sh_test")
        self.run_.result("//a:t", "PASSED", summary(7, 7, 0))
        self.run_.result("//a:u", "PASSED", "SKIPPED: no namespaces\n" + summary(3, 3, 0))
        self.run_.result("//a:s", "PASSED", "ok")
        programs = self.run_.read()
        self.expect(programs, 9, 0, 1)
        self.assertEqual(results.count(programs).scripts, 1)
        self.assertEqual(programs[2].skips, ["no namespaces"])

    def test_failed_cases_are_counted(self):
        self.expect([self.run_.one("FAILED", summary(7, 5, 2))], 5, 2, 0, bad=1)

    def test_a_crash_after_the_summary_is_a_failure(self):
        self.expect([self.run_.one("FAILED", summary(7, 7, 0))], 7, 1, 0, bad=1)

    def test_a_crash_before_the_summary_is_a_failure(self):
        program = self.run_.one("FAILED", "Segmentation fault")
        self.expect([program], 0, 1, 0, bad=1)
        self.assertEqual(program.tails, {"": ["Segmentation fault"]})

    def test_a_time_out_is_a_failure(self):
        self.expect([self.run_.one("TIMEOUT", "")], 0, 1, 0, bad=1)

    def test_a_program_that_passes_without_a_summary_has_failed(self):
        program = self.run_.one("PASSED", "no summary")
        self.expect([program], 0, 1, 0, bad=1)
        self.assertIn("without doctest's summary", program.status)

    def test_a_program_without_a_case_has_failed(self):
        program = self.run_.one("PASSED", summary(0, 0, 0))
        self.expect([program], 0, 0, 0, bad=1)
        self.assertEqual(program.status, "holds no test case")

    def test_a_script_that_fails_is_no_case_but_bad(self):
        self.run_.configured("//a:s", "sh_test")
        self.run_.result("//a:s", "FAILED", "no")
        self.expect(self.run_.read(), 0, 0, 0, bad=1)

    def test_a_script_that_skips_is_no_case_but_says_why(self):
        self.run_.configured("//a:s", "sh_test")
        self.run_.result("//a:s", "PASSED", "SKIPPED: no scontrol here\n")
        programs = self.run_.read()
        self.expect(programs, 0, 0, 0)
        self.assertEqual(programs[0].skips, ["no scontrol here"])

    def test_what_was_not_built_is_a_failure(self):
        self.run_.configured("//a:t")
        self.run_.configured("//a:s", "sh_test")
        programs = self.run_.read()
        self.expect(programs, 0, 1, 0, bad=2)
        self.assertEqual(programs[0].status, results.NOT_RUN)

    def test_a_sandboxed_test_may_come_from_the_cache(self):
        for more in ({"cachedLocally": True}, {"executionInfo": {"cachedRemotely": True}}):
            program = self.run_.one("PASSED", summary(4, 4, 0), **more)
            self.assertTrue(program.is_reused)
            self.expect([program], 4, 0, 0)
        self.assertIn("1 of them reused", report.count_line("plain", [program]))

    def test_a_test_with_real_processes_must_have_been_executed(self):
        for tag in ("external", "no-sandbox"):
            program = self.run_.one("PASSED", summary(4, 4, 0), tags=[tag], cachedLocally=True)
            self.expect([program], 4, 1, 0, bad=1)
            self.assertIn("taken from a cache", program.status)

    def test_shards_are_one_program(self):
        self.run_.configured("//a:t")
        self.run_.result("//a:t", "PASSED", summary(3, 3, 0), testAttemptDurationMillis="1500")
        # More shards than source files: this one has nothing to do.
        self.run_.result("//a:t", "PASSED", summary(0, 0, 0), testAttemptDurationMillis="500")
        self.expect(self.run_.read(), 3, 0, 0)
        self.run_.result("//a:t", "FAILED", "gone")
        programs = self.run_.read()
        self.expect(programs, 3, 1, 0, bad=1)
        self.assertEqual((programs[0].status, programs[0].seconds), ("FAILED without doctest's summary", 2.0))

    def test_shards_that_all_hold_nothing_are_a_failure(self):
        self.run_.configured("//a:t")
        self.run_.result("//a:t", "PASSED", summary(0, 0, 0))
        self.run_.result("//a:t", "PASSED", summary(0, 0, 0))
        self.expect(self.run_.read(), 0, 0, 0, bad=1)

    def test_junit_names_cases_files_times_and_reasons(self):
        program = self.run_.one("PASSED", "SKIPPED: printed\n" + summary(2, 2, 0), xml(
            ("a/x_test.cc", "x: runs", ""), ("a/y_test.cc", "y: skips", '<skipped message="no etcd here"/>')))
        self.expect([program], 1, 0, 1)
        self.assertEqual(program.skips, ["no etcd here"])
        self.assertEqual([(case.file, case.name, case.seconds, case.state) for case in program.cases],
                         [("a/x_test.cc", "x: runs", 0.5, "passed"), ("a/y_test.cc", "y: skips", 0.5, "skipped")])

    def test_a_junit_that_counts_otherwise_than_the_log_is_a_failure(self):
        program = self.run_.one("PASSED", summary(2, 2, 0), xml(("a/x_test.cc", "x: runs", "")))
        self.expect([program], 2, 1, 0, bad=1)
        self.assertIn("2 cases in its log and 1 in its test.xml", program.status)

    def test_a_junit_of_bazels_own_or_a_broken_one_tells_nothing(self):
        bazels = '<testsuites><testsuite name="a/t" tests="1"><testcase name="a/t" status="run" time="3"/></testsuite></testsuites>'
        for text in (bazels, "<testsuites><tests", ""):
            program = self.run_.one("PASSED", "SKIPPED: why\n" + summary(2, 2, 0), text)
            self.expect([program], 1, 0, 1)
            self.assertEqual(program.cases, [])

    def test_a_program_that_dies_tells_by_its_junit_what_it_had_done(self):
        program = self.run_.one("TIMEOUT", "gone", xml(
            ("a/x_test.cc", "x: runs", ""), ("a/y_test.cc", "y: hangs", '<error message="was killed at the limit"/>'),
            ("a/y_test.cc", "y: later", '<error message="was not run"/>')))
        self.expect([program], 1, 2, 0, bad=1)

    def test_a_failure_is_shown_by_source_file(self):
        log = ("---- a/x_test.cc\nSKIPPED: a part\n---- a/y_test.cc\nearly\n" + "".join(f"line {i}\n" for i in range(80)) + "crashed here\n" + summary(1, 0, 1) +
               "a/y_test.cc: 0 passed, 1 failed, 0.1 s\n" + "a/z_test.cc: 9 passed, 0 failed, 0.1 s\n" * 70 + summary(2, 1, 1))
        program = self.run_.one("FAILED", log, xml(
            ("a/x_test.cc", "x: runs", ""), ("a/y_test.cc", "y: late", '<error message="was not run"/>'),
            ("a/y_test.cc", "y: crashes", '<error message="ended by SIGSEGV">more</error>')))
        text = list(report.failures("plain", [program]))
        self.assertEqual(text[:4], [
            "plain: FAILED //a:t: FAILED", "  a/y_test.cc: y: crashes: ended by SIGSEGV",
            "  a/y_test.cc: y: late: was not run", "  the end of the log of a/y_test.cc:"])
        self.assertIn("    crashed here", text)
        self.assertNotIn("    early", text)
        self.assertEqual(len(text), 4 + results.LOG_LINES)

    def test_nothing_at_all_is_said_to_be_nothing(self):
        self.assertEqual(self.run_.read(), [])
        self.assertEqual(list(report.failures("plain", [])), ["plain: no test was executed"])


if __name__ == "__main__":
    unittest.main()
