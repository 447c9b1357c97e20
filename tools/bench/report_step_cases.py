"""What one call of ddprun.report_step() takes: with a page as an agent makes it, and without one."""

import os
import sys

from harness import HERE, REPO, interleave, run

CALLS = 100_000
PROGRAM = os.path.join(HERE, "report_step", "calls.py")


def report_step_case(_scratch, runs):
    def measure(*options):
        environment = {**os.environ, "PYTHONPATH": os.path.join(REPO, "python"), "PYTHONDONTWRITEBYTECODE": "1"}
        environment.pop("DDPRUN_COUNTERS_FD", None)
        return float(run([sys.executable, PROGRAM, str(CALLS), *options], env=environment))

    return interleave("report_step in Python", "ns/call", {
        "ddprun": lambda: measure("--page"),
        "ddprun, without a page": measure,
    }, runs)
