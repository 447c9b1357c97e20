"""The last lines of a run."""

import unittest

import context  # noqa: F401

import parts
import report
from report import StageResult
from results import Case, Program


class LackTest(unittest.TestCase):
    def test_reasons_of_tests_lead_to_what_was_lacking(self):
        for why, title in {
            "python3 has no PyTorch with NumPy; tools/setup --with-torch installs it": "PyTorch",
            "no scontrol here; tools/setup --with-slurm installs it": "Slurm",
            "no sacct here; tools/test_slurm installs it": "a user-mode Linux",
            "no etcd here; tools/setup --with-etcd installs it": "etcd",
            "no newer etcd here (DDPRUN_TEST_NEWER_ETCD); tools/setup --with-etcd installs it": "a newer etcd",
            "no chromium here; tools/setup --with-browser installs it": "a browser",
            "no Prometheus here; tools/setup --with-prometheus installs it": "Prometheus",
            "no python3-kubernetes here; tools/setup --with-kubernetes installs it": "Kubernetes' models",
            "no libnccl.so.2, neither the system's nor that of tools/setup --with-nccl": "NCCL and CUDA's headers",
            "no nccl.h of NCCL 2.32 or newer, or no cuda_runtime.h, in /usr/include": "NCCL and CUDA's headers",
            "no cuda.h of CUDA 12 or newer in /usr/include": "NCCL and CUDA's headers",
            "no cublas_v2.h of cuBLAS 12 or newer, or no cuda_runtime.h, in /usr": "NCCL and CUDA's headers",
            "no nvml.h is here (it comes with a CUDA toolkit)": "a CUDA toolkit",
            "there is no gdb here": "gdb and py-spy",
            "there is no py-spy here (DDPRUN_TEST_PY_SPY names one)": "gdb and py-spy",
            "there is neither eu-stack nor gdb here": "eu-stack",
            "no hosts of our own here: unshare: Operation not permitted": "rights or a kernel's feature",
            "no freezer of cgroup v1 here": "rights or a kernel's feature",
            "fanotify permission events are not available here": "rights or a kernel's feature",
            "only root can become another user": "rights or a kernel's feature",
            "a mount is not permitted here": "rights or a kernel's feature",
        }.items():
            with self.subTest(why):
                lack = parts.lack_of(why)
                self.assertEqual(lack.title, title)
                self.assertTrue(lack.remedy)

    def test_an_unknown_reason_is_shown_as_such(self):
        self.assertEqual(parts.lack_of("the moon is full"), parts.Lack("the moon is full", ""))

    def test_each_lack_has_one_line_and_those_with_a_remedy_come_first(self):
        reasons = ["the moon is full"] * 5 + ["no etcd here; tools/setup --with-etcd installs it"] + [
            "x has no PyTorch with NumPy; tools/setup --with-torch installs it", "y; tools/setup --with-torch installs it"]
        self.assertEqual(list(parts.lines(reasons, ["no x here; tools/setup --with-etcd", "y; tools/setup --with-slurm"])), [
            "skipped for want of PyTorch: 2 cases (tools/setup --with-torch)",
            "skipped for want of etcd: 1 case and 1 script (tools/setup --with-etcd)",
            "skipped for want of Slurm: 1 script (tools/setup --with-slurm)",
            "skipped: 5 cases: the moon is full"])


def program(label, passed=1, failed=0, **more):
    return Program(label, True, "PASSED", not failed, passed=passed, failed=failed, **more)


class EndingTest(unittest.TestCase):
    PLAIN = [program("//a:t", 8, skips=["no etcd here; tools/setup --with-etcd installs it"],
                     cases=[Case("a/x_test.cc", f"case {i}", float(i), "passed") for i in range(12)]),
             program("//a:u", 2, is_reused=True, cases=[Case("a/u_test.cc", "reused", 99.0, "passed")]),
             Program("//a:s", False, "PASSED", True, seconds=5.5)]
    ASAN = [program("//a:t", 3, 1, seconds=50.0)]

    def ending(self, ring, failed=(), runs=None, tenth=""):
        stages = [StageResult("setup", 1.0, "passed"), StageResult("plain", 61.5, "passed")]
        return report.ending(ring, stages, [("plain", self.PLAIN), ("asan", self.ASAN)] if runs is None else runs, list(failed), tenth)

    def test_the_very_last_line_counts_each_case_of_the_plain_run_once(self):
        self.assertEqual(self.ending(1)[-1], "10 passed, 0 failed, 1 skipped")
        self.assertEqual(self.ending(1, runs=[])[-1], "0 passed, 0 failed, 0 skipped")

    def test_the_sanitizers_have_lines_of_their_own_above_that_of_the_plain_run(self):
        lines = self.ending(1)
        asan = lines.index("asan: 3 passed, 1 failed, 0 skipped (1 test programs, 0 of them scripts)")
        plain = lines.index("plain: 10 passed, 0 failed, 1 skipped (3 test programs, 1 of them scripts, 1 of them reused from the cache)")
        self.assertLess(asan, plain)

    def test_what_failed_is_named_just_before(self):
        self.assertEqual(self.ending(1, ["asan", "setup of slurm"])[-2], "failed: asan, setup of slurm")

    def test_what_the_rings_above_add_is_said(self):
        for ring, words in ((0, ["--ci", "--nightly"]), (1, ["--nightly"]), (2, [])):
            text = [line.split()[1] for line in self.ending(ring) if line.startswith("tools/test ")]
            self.assertEqual(text, words)

    def test_the_tenth_is_named(self):
        self.assertIn("of --nightly this run had mutants", self.ending(1, tenth="mutants"))

    def test_what_a_limit_of_time_has_cut_is_named(self):
        stages = [StageResult("asan", 1.0, "not finished"), StageResult("tsan", 0.0, "not begun"), StageResult("two", 0.0, "passed")]
        lines = report.ending(1, stages, [], [])
        self.assertIn("cut short by a limit of time: asan, tsan; tools/test --nightly has all of it", lines)
        self.assertFalse([line for line in self.ending(1) if "cut short" in line])

    def test_the_stages_have_a_table_of_their_times(self):
        self.assertEqual(self.ending(0)[:4], [
            "stages:", "  setup     1.0 s  passed", "  plain    61.5 s  passed", "  all      62.5 s"])

    def test_the_ten_slowest_are_named_without_what_was_reused(self):
        lines = self.ending(1)
        start = lines.index("slowest tests:")
        self.assertEqual(lines[start + 1], "     50.0 s  asan  //a:t")
        self.assertEqual(lines[start + 2], "     11.0 s  plain  a/x_test.cc: case 11")
        self.assertIn("      5.5 s  plain  //a:s", lines[start:start + 11])
        self.assertEqual(lines[start + 11], "skipped for want of etcd: 1 case (tools/setup --with-etcd)")

    def test_tools_test_PATH_ends_with_its_times_as_well(self):
        lines = report.ending_of_paths("asan", [StageResult("//a:t", 2.5, "passed")], self.PLAIN)
        self.assertEqual(lines[:3], ["stages:", "  //a:t     2.5 s  passed", "  all       2.5 s"])
        self.assertEqual(lines[4], "     11.0 s  asan  a/x_test.cc: case 11")
        self.assertEqual(lines[-1], "10 passed, 0 failed, 1 skipped")
        self.assertEqual(report.ending_of_paths("plain", [], []), [])


if __name__ == "__main__":
    unittest.main()
