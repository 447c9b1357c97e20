#!/usr/bin/env python3
"""Runs the tests of torch.distributed that come with PyTorch over one backend, "gloo" or "ddp", and
prints a line for each: its name, "ok", "skipped" or "failed", and why.

    tests/torch/pytorch_suite.py BACKEND [PATTERN]...      patterns as of fnmatch; default: all

Each test starts three ranks, by fork. A test for Gloo alone runs over "ddp" as well: where it asks,
"ddp" says that it is Gloo. tools/test_pytorch compares the two.
"""

import fnmatch
import os
import re
import sys
import tempfile
import unittest

RANKS = "3"
# Tests that need what no CPU has, or that look for the profiler's events: "ddp" makes none.
LEFT_OUT = re.compile(r"cuda|nccl|gpu|(^|_)(mpi|ucc)(_|$)|profil")


class _GlooInName(str):
    """ "ddp", and equal to "gloo" as well."""

    def __eq__(self, other):
        return str(other) in ("ddp", "gloo")

    def __ne__(self, other):
        return not self == other

    def __hash__(self):
        return hash("gloo")


def _load(backend):
    os.environ.update(
        BACKEND="gloo",
        WORLD_SIZE=RANKS,
        INIT_METHOD="file",
        TEMP_DIR=tempfile.mkdtemp(prefix="pytorch_suite-"),
        TORCH_DISTRIBUTED_DEBUG="INFO",
        OMP_NUM_THREADS="1",
    )
    import torch

    torch.set_num_threads(1)
    from torch.testing._internal.distributed import distributed_test

    if backend == "ddp":
        import ddprun.torch  # noqa: F401

        distributed_test.BACKEND = _GlooInName("ddp")

    class PytorchSuite(
        distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase
    ):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return PytorchSuite


class _OneLine(unittest.TestResult):
    def __init__(self, out):
        super().__init__()
        self._out = out

    def _say(self, test, verdict, why=""):
        self._out.write(f"{test._testMethodName}\t{verdict}\t{why}\n")
        self._out.flush()

    def addSuccess(self, test):
        self._say(test, "ok")

    def addSkip(self, test, reason):
        self._say(test, "skipped", reason)

    def addFailure(self, test, error):
        lines = [each.strip() for each in self._exc_info_to_string(error, test).splitlines()]
        said = [each for each in lines if re.match(r"\w*(Error|Exception)\b.*", each)]
        self._say(test, "failed", " | ".join(dict.fromkeys(said))[:600])
        with open(os.environ["TEMP_DIR"] + "/" + test._testMethodName, "w") as file:
            file.write("\n".join(lines))

    addError = addFailure


def main(backend, *patterns):
    suite_class = _load(backend)
    out = os.fdopen(os.dup(1), "w")
    result = _OneLine(out)
    for name in unittest.TestLoader().getTestCaseNames(suite_class):
        if LEFT_OUT.search(name) or not any(
            fnmatch.fnmatch(name, each) for each in patterns or "*"
        ):
            continue
        unittest.TestSuite([suite_class(name)]).run(result)
    out.write(f"logs of failures: {os.environ['TEMP_DIR']}\n")
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in ("gloo", "ddp"):
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
