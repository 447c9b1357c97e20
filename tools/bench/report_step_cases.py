"""What it takes a program to tell its agent: a step, in Python and in C++, an operation of a group, and a small
all-reduce that does."""

import json
import os
import sys

from harness import HERE, REPO, build, interleave, run

CALLS_OF_PYTHON = 100_000
CALLS = 1_000_000
FOLDER = os.path.join(HERE, "report_step")


def report_step_case(_scratch, runs):
    all_reduce = os.path.join(build("//tools/bench/allreduce:allreduce_bench"), "tools/bench/allreduce/allreduce_bench")
    program = os.path.join(build("//tools/bench/report_step:report_step_bench"), "tools/bench/report_step/report_step_bench")
    environment = {**os.environ, "PYTHONPATH": os.path.join(REPO, "python"), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("DDPRUN_COUNTERS_FD", None)

    def in_python(*options):
        return float(run([sys.executable, os.path.join(FOLDER, "calls.py"), str(CALLS_OF_PYTHON), *options], env=environment))

    def in_cpp(what):
        return float(run([program, str(CALLS), what], env=environment))

    def small_all_reduce(page):
        return json.loads(run([all_reduce, "--bytes", "4096", "--memory", "private", "--page", page]))["us"]

    return [
        *interleave("report_step in Python", "ns", {
            "ddprun": lambda: in_python("--page"),
            "ddprun, without a page": in_python,
        }, runs),
        *interleave("ReportStep in C++", "ns", {
            "ddprun": lambda: in_cpp("step"),
            "ddprun, without a page": lambda: in_cpp("no_page"),
        }, runs),
        *interleave("an operation, called and done", "ns", {"ddprun": lambda: in_cpp("group")}, runs),
        *interleave("all-reduce of 4 KiB, 2 ranks", "us", {
            "ddprun": lambda: small_all_reduce("yes"),
            "ddprun, without a page": lambda: small_all_reduce("no"),
        }, 3 * runs),
    ]
