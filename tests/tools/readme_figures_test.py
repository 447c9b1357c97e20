#!/usr/bin/env python3
"""The figures that README.md shows are those that tools/bench/run measured."""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

REPO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(REPO, "tools/bench"))

import harness  # noqa: E402
import readme_cases  # noqa: E402

MACHINE = {"cores": 2, "versions": {"torch": "2.13.0+cpu"}, "load_before": 0.4}


def figure(unit, median, error=None):
    return {"unit": unit, "median": median, "error": error}


def rows(count):
    """Rows of all that the table shows, of `count` runs each."""
    return [harness.Row(task, who, "s", [1.0] * count)
            for task, _ in readme_cases.SHOWN for who in readme_cases.LAUNCHERS]


class ReadmeFiguresTest(unittest.TestCase):
    def test_the_block_is_that_of_the_json(self):
        with open(readme_cases.JSON, encoding="utf-8") as file:
            block = readme_cases.block(json.load(file))
        with open(os.path.join(REPO, "README.md"), encoding="utf-8") as file:
            self.assertIn(block, file.read(), "run tools/bench/run --only readme")

    def test_figures_have_units_and_a_miss_its_limit(self):
        shown = readme_cases.shown
        self.assertEqual([shown(figure("ms", 6.12)), shown(figure("ms", 88.4)), shown(figure("ms", 301)), shown(figure("ms", 1230))],
                         ["6.1 ms", "88 ms", "301 ms", "1.2 s"])
        self.assertEqual([shown(figure("s", 0.0112)), shown(figure("s", 9.61)), shown(figure("s", 30.4)), shown(figure("MiB", 8.6))],
                         ["11 ms", "9.6 s", "30 s", "9 MiB"])
        self.assertEqual([shown(figure("ms", value)) for value in (9.96, 99.6, 999.6, 9960)],
                         ["10 ms", "100 ms", "1.0 s", "10 s"])
        self.assertEqual(shown(figure("s", None, "not within 90 s: a round of 2 ranks")), "not within 90 s")
        self.assertEqual(shown(figure("", 7)), "7")

    def test_a_readme_without_the_marks_is_refused(self):
        with self.assertRaises(readme_cases.BenchError):
            readme_cases.replace_block("# ddprun\n", {"machine": {}, "rows": []})

    def test_the_sentence_names_the_rows_of_one_run(self):
        def sentence(values):
            document = harness.as_document(MACHINE, rows(7))
            for place, each in values.items():
                document["rows"][place]["values"] = each
            return readme_cases.block(document).split("\n\n")[1].split(". ")[0]

        others = "and the others medians"
        self.assertEqual(sentence({}), "All rows show medians")
        self.assertEqual(sentence({1: [1], 4: [1], 5: [1]}), f"Row 3 shows one run, {others}")
        self.assertEqual(sentence({4: [1], 5: [1], 8: [], 9: [1]}),
                         f"Rows 3, 5 show one run, {others}")

    def test_rows_are_written_only_if_the_table_has_all_its_figures(self):
        with tempfile.TemporaryDirectory() as folder:
            readme, figures = pathlib.Path(folder, "README.md"), pathlib.Path(folder, "readme.json")
            with mock.patch.multiple(readme_cases, REPO=folder, JSON=str(figures)):
                readme.write_text("# ddprun\n", encoding="utf-8")
                with self.assertRaisesRegex(readme_cases.BenchError, "has no block"):
                    readme_cases.write(MACHINE, rows(3))
                readme.write_text(f"{readme_cases.BEGIN}\n{readme_cases.END}\n", encoding="utf-8")
                with self.assertRaisesRegex(readme_cases.BenchError, "code, ddprun: no figure"):
                    readme_cases.write(MACHINE, rows(3)[:-1])
                self.assertFalse(figures.exists())
                readme_cases.write(MACHINE, rows(3))
                document = json.loads(figures.read_text(encoding="utf-8"))
                text = readme.read_text(encoding="utf-8")
                self.assertEqual(text, readme_cases.block(document) + "\n")

    def test_the_workers_that_a_launcher_leaves_are_killed(self):
        with tempfile.TemporaryDirectory() as folder:
            program, marks = os.path.join(folder, "hang_worker"), os.path.join(folder, "marks")
            shutil.copy("/bin/sleep", program)
            with subprocess.Popen([program, "600"]) as left, subprocess.Popen(["true"]) as gone:
                gone.wait(60)
                lines = f"up 0 2 {gone.pid} 1 9\nup 1 2 {left.pid} 1 9\n"
                pathlib.Path(marks).write_text(lines, encoding="utf-8")
                try:
                    readme_cases.end_job(gone, marks)
                    self.assertEqual(left.wait(60), -signal.SIGKILL)
                finally:
                    left.kill()

    def test_a_command_that_does_not_end_is_no_figure(self):
        late = subprocess.TimeoutExpired("x", 60)
        with mock.patch.object(subprocess, "run", side_effect=late):
            with self.assertRaisesRegex(readme_cases.BenchError, "ddprun x: still running"):
                readme_cases.exit_code(["ddprun", "x"])


if __name__ == "__main__":
    unittest.main()
