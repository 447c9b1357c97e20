"""What every benchmark shares: running a command under a limit, rows, the table and the JSON file.

A run that exits non-zero or exceeds its limit is an error and never a time.
"""

import functools
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import time

REPO = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
HERE = os.path.join(REPO, "tools", "bench")
DIST = os.path.join(REPO, "dist")


class BenchError(Exception):
    """A run did not do what it should; its figure does not exist."""


class Row:
    """One line of the table: the values of one competitor at one task."""

    def __init__(self, task, who, unit, values=None, error=None, note=""):
        self.task, self.who, self.unit = task, who, unit
        self.values, self.error, self.note = values or [], error, note

    @property
    def median(self):
        return statistics.median(self.values) if self.values else None


def say(text):
    print(f"bench: {text}", file=sys.stderr, flush=True)


def run(command, limit_s=60, env=None, cwd=None):
    """Runs a command to its end and returns its output; raises BenchError otherwise."""
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              timeout=limit_s, text=True, errors="replace", env=env, cwd=cwd, check=False,
                              start_new_session=True)
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{command[0]}: still running after {limit_s} s") from error
    except OSError as error:
        raise BenchError(f"{command[0]}: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip()).split("\n")[-1]
        raise BenchError(f"{os.path.basename(command[0])}: exit {done.returncode}: {last[:200]}")
    return done.stdout + done.stderr


def wait_until(condition, what, limit_s=30):
    """Polls until condition() is true and returns its value."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > deadline:
            raise BenchError(f"not within {limit_s} s: {what}")
        time.sleep(0.005)


class Timer:
    """Runs commands under process/time_command: wall time without Python's own start-up."""

    def __init__(self, scratch):
        self.program = compile_program(scratch, "process", "time_command")

    def __call__(self, command, limit_s=60, env=None):
        """Returns (seconds, peak KiB)."""
        output = run(["timeout", "-k", "5", str(limit_s), self.program] + command, limit_s + 10, env)
        seconds, code, peak_kib = re.findall(r"^time_command: (\S+) (\d+) (\d+)$", output, re.M)[-1]
        if int(code) != 0:
            raise BenchError(f"{os.path.basename(command[0])}: exit {code}: {output.strip()[:200]}")
        return float(seconds), int(peak_kib)


def compile_program(scratch, folder, name, more=()):
    """The program that tools/bench/FOLDER/NAME.c makes, with `more` of the compiler's options."""
    out = os.path.join(scratch, name)
    if not os.path.exists(out):
        run(["gcc", "-O2", "-Wall", "-o", out, os.path.join(HERE, folder, name + ".c"), *more])
    return out


NO_TORCH = "no PyTorch: neither $DDPRUN_TEST_PYTHON nor python3 imports torch; tools/setup --with-torch installs it"


@functools.cache
def torch_python():
    """A Python that imports PyTorch ($DDPRUN_TEST_PYTHON, that of tools/setup --with-torch, python3), or None."""
    ours = run(["bash", "-euo", "pipefail", "-c", "source tools/lib.sh; test_python"], cwd=REPO).strip()
    for python in (ours, shutil.which("python3")):
        if not python:
            continue
        try:
            run([python, "-c", "import torch.distributed"], 120)
            return python
        except BenchError:
            continue
    return None


def torchrun():
    """The installed torchrun as a command, or None."""
    python = torch_python()
    if not python:
        return None
    script = os.path.join(os.path.dirname(python), "torchrun")
    return [script] if os.path.exists(script) else [python, "-m", "torch.distributed.run"]


def interleave(task, unit, competitors, runs):
    """Calls each competitor's function `runs` times, in turns, so that drift of the machine meets all alike.

    The first turn only warms caches. A competitor that fails once is out, with its error. None instead of
    a function: it needs PyTorch, and there is none.
    """
    rows = {who: Row(task, who, unit, error=None if measure else NO_TORCH) for who, measure in competitors.items()}
    for turn in range(runs + 1):
        for who, measure in competitors.items():
            row = rows[who]
            if row.error:
                continue
            try:
                value = measure()
            except BenchError as error:
                row.error, row.values = str(error), []
                continue
            if turn > 0:
                row.values.append(value)
    return list(rows.values())


def table(rows):
    """The rows as text; the ratio is a competitor's median over that of our first row of the same task and unit."""
    ours = {}
    for row in rows:
        if row.who.startswith("ddprun") and row.median:
            ours.setdefault((row.task, row.unit), row.median)
    lines = [("task", "who", "median", "min", "max", "n", "x ours", "")]
    for row in rows:
        if row.error:
            lines.append((row.task, row.who, "error", "", "", "", "", row.error))
            continue
        base = ours.get((row.task, row.unit))
        ratio = "" if not base or row.who.startswith("ddprun") else f"{row.median / base:.2f}"
        lines.append((row.task, row.who, f"{row.median:.4g} {row.unit}", f"{min(row.values):.4g}",
                      f"{max(row.values):.4g}", str(len(row.values)), ratio, row.note))
    widths = [max(len(line[i]) for line in lines) for i in range(7)]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(line, widths + [0])).rstrip()
                     for line in lines)


def machine():
    """Processor, cores and versions: figures mean nothing without them."""
    with open("/proc/cpuinfo", encoding="utf-8") as info:
        model = re.search(r"model name\s*: (.*)", info.read())
    def first_line(*command):
        try:
            return run(list(command), 20).strip().split("\n")[0]
        except BenchError:
            return None
    packages = ["g++-12", "libeigen3-dev", "mpich", "openmpi-bin", "libgloo-dev", "libgrpc++-dev"]
    versions = {}
    for package in packages:
        version = first_line("dpkg-query", "-W", "-f", "${Version}", package)
        if version:
            versions[package] = version
    if shutil.which("etcd"):
        versions["etcd"] = first_line("etcd", "--version")
    if torch_python():
        versions["torch"] = first_line(torch_python(), "-W", "ignore", "-c", "import torch; print(torch.__version__)")
    return {"processor": model.group(1) if model else os.uname().machine, "cores": os.cpu_count(),
            "kernel": os.uname().release, "load_before": os.getloadavg()[0],
            "commit": first_line("git", "-C", REPO, "rev-parse", "--short", "HEAD"),
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "versions": versions}


def as_document(about, rows):
    return {"machine": about, "rows": [
        {"task": row.task, "who": row.who, "unit": row.unit, "median": row.median, "values": row.values,
         "error": row.error, "note": row.note} for row in rows]}


def write_json(path, document):
    with open(path + ".new", "w", encoding="utf-8") as out:
        json.dump(document, out, indent=1)
        out.write("\n")
    os.replace(path + ".new", path)


def build(*targets):
    """Builds optimised benchmark programs and returns the folder they lie in."""
    script = ('source tools/lib.sh; bazel_ build --config=opt "$@" >&2; '
              'echo "bin=$(bazel_ info --config=opt bazel-bin 2>/dev/null)"')
    output = run(["bash", "-euo", "pipefail", "-c", script, "tools/bench", *targets], 3600, cwd=REPO)
    return re.search(r"^bin=(\S+)$", output, re.M).group(1)


class Part:
    """A process that answers each line with one of JSON, and lives until its stdin ends."""

    def __init__(self, program, *arguments):
        self.process = subprocess.Popen([program, *map(str, arguments)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def ready(self):
        line = self.process.stdout.readline()
        if not line:
            raise BenchError(f"{' '.join(self.process.args[1:])}: it ended, see its last line")
        return json.loads(line)

    def ask(self, words):
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.ready()

    def kill(self):
        self.process.kill()
        self.process.wait()

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()
