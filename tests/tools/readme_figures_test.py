#!/usr/bin/env python3
"""The figures that README.md shows are those that tools/bench/run measured."""

import json
import os
import sys
import unittest

REPO = os.path.join(os.path.dirname(os.path.abspath(__file__)), "../..")
sys.path.insert(0, os.path.join(REPO, "tools/bench"))

import readme_cases  # noqa: E402


def figure(unit, median, error=None):
    return {"unit": unit, "median": median, "error": error}


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
        self.assertEqual(shown(figure("s", None, "not within 90 s: a round of 2 ranks")), "not within 90 s")
        self.assertEqual(shown(figure("", 7)), "7")

    def test_a_readme_without_the_marks_is_refused(self):
        with self.assertRaises(readme_cases.BenchError):
            readme_cases.replace_block("# ddprun\n", {"machine": {}, "rows": []})


if __name__ == "__main__":
    unittest.main()
