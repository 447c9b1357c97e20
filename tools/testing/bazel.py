"""Bazel as tools/lib.sh starts it, and other functions of that file."""

import os
import signal
import subprocess
import sys

REPOSITORY = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
STOPS_IN_S = 30  # Bazel, once it is told to


def words(function, *arguments):
    """The command line that calls a function of tools/lib.sh."""
    return ("bash", "-c", 'set -euo pipefail; source tools/lib.sh; "$@"', "tools/test", function, *arguments)


def answer(function, *arguments):
    """What the function prints."""
    return subprocess.run(words(function, *arguments), cwd=REPOSITORY, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          text=True, check=True).stdout


def set_environment():
    """What Bazel passes to tests, and the part of its key that takes a while to find."""
    for name, function in (("DDPRUN_TEST_PYTHON", "test_python"), ("DDPRUN_TEST_NEWER_ETCD", "newer_etcd"),
                           ("DDPRUN_TEST_PY_SPY", "py_spy"), ("DDPRUN_SYSTEM", "system_hash")):
        os.environ[name] = answer(function).strip()


def folder(*flags):
    """Where Bazel leaves what it has built with these flags."""
    return answer("bazel_", "info", *flags, "bazel-bin").strip()


def query(expression):
    """The targets of an expression, as XML."""
    return answer("query", expression, "--output=xml")


def run(command, limit_s=None, environment=None):
    """Runs a command; its status, and whether it was ended at its limit."""
    process = subprocess.Popen(command, cwd=REPOSITORY, stdin=subprocess.DEVNULL, start_new_session=True,
                               env=None if environment is None else {**os.environ, **environment})
    try:
        return process.wait(timeout=limit_s), False
    except subprocess.TimeoutExpired:
        _end(process)
        return process.returncode, True
    except BaseException:
        _end(process)
        raise


def _end(process):
    for number in (signal.SIGINT, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(timeout=STOPS_IN_S)
            return
        except subprocess.TimeoutExpired:
            print(f"tools/test: {process.args[0]} does not end by a signal", file=sys.stderr)


def side_by_side(programs_per_core, cores):
    """Flags that run so many tests for each core: on a larger machine they are enough as they are."""
    if cores > 4 or programs_per_core == 1:
        return ()
    return (f"--jobs={programs_per_core * cores}", f"--local_cpu_resources=HOST_CPUS*{programs_per_core}")
