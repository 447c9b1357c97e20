"""The figures of README.md: few turns of some cases, beside torchrun, in ten minutes.

The figures go to readme.json beside this file, and as a table into the marked block of README.md. A test
compares the two.
"""

import json
import os
import signal
import subprocess
import time

import fault_cases
from harness import HERE, REPO, BenchError, Row, interleave, torchrun, wait_until, write_json
from launcher_cases import DDPRUN, ENV, memory_case, start_beside_torchrun

JSON = os.path.join(HERE, "readme.json")
BEGIN, END = "<!-- figures: tools/bench/run --only readme -->", "<!-- end of figures -->"
TURNS = {"worker SIGKILL, one node": 10, "worker SIGKILL, two nodes": 5, "network of a node cut off, `--nnodes=1:2`": 1}
HANG_S = 60  # as long as torchrun is watched with a stopped rank

# Of each row of the table: its task and its words.
SHOWN = (
    ("start 4 x true", "start and end 4 workers"),
    ("agent memory", "memory of the launcher, 4 workers"),
    ("F01 worker SIGKILL, one node: all run again", "a worker is killed: all run again, one node"),
    ("F01 worker SIGKILL, two nodes: all run again", "a worker is killed: all run again, two nodes"),
    ("F21 network of a node cut off, `--nnodes=1:2`: all run again",
     "a node is cut off, `--nnodes=1:2`: the others go on"),
    ("a rank hangs in an all-reduce", "a rank hangs in an all-reduce: it is named"),
    ("exit code", "exit code of a job if its first failing worker exits with 7"),
)


def readme_case(scratch, runs):
    """`runs` of the short cases; the faults have turns of their own."""
    if not torchrun():
        raise BenchError("the table compares with torchrun: tools/setup --with-torch installs it")
    rows = start_beside_torchrun(scratch, runs) + memory_case(scratch, min(runs, 5))
    for fault in fault_cases.FAULTS:
        if fault.name in TURNS:
            rows += fault_cases.one_fault(scratch, fault, TURNS[fault.name])
    launchers = {"ddprun": [DDPRUN], "torchrun": [*torchrun(), "--no-python"]}
    rows += [hang_row(scratch, who, launcher) for who, launcher in launchers.items()]
    return rows + interleave("exit code", "", {
        who: (lambda launcher=launcher: exit_code([*launcher, "--nproc-per-node=2", "sh", "-c", "exit 7"]))
        for who, launcher in launchers.items()}, 1)


def exit_code(command):
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, env=ENV,
                          check=False).returncode


def hang_row(scratch, who, launcher):
    """Seconds from the SIGSTOP of one of four ranks until the launcher's output names it."""
    row = Row("a rank hangs in an all-reduce", who, "s")
    marks = os.path.join(scratch, f"hang.{who}")
    worker = fault_cases.compile_worker(scratch, "hang_worker")
    with open(marks + ".log", "w+", encoding="utf-8") as log, subprocess.Popen(
            [*launcher, "--nproc-per-node=4", worker, marks], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env=ENV) as job:
        victim = None
        try:
            up = wait_until(lambda: len(lines_of(marks)) == 4 and lines_of(marks), "the first steps of 4 ranks")
            victim = next(int(line.split()[3]) for line in up if line.split()[1] == "2")
            os.kill(victim, signal.SIGSTOP)
            since = time.monotonic()
            wait_until(lambda: any("rank 2" in line for line in lines_of(log.name)), "rank 2 is named", HANG_S)
            row.values.append(time.monotonic() - since)
        except BenchError as error:
            row.error = str(error)
        finally:
            if victim:
                os.kill(victim, signal.SIGCONT)
            job.terminate()
            try:
                job.wait(40)
            except subprocess.TimeoutExpired:
                job.kill()
    return row


def lines_of(path):
    if not os.path.exists(path):
        return []
    with open(path, encoding="utf-8") as file:
        return file.read().split("\n")[:-1]


def shown(figure):
    """A row of the JSON as a cell: its median, or that it did not come in time."""
    if figure["error"]:
        return figure["error"].partition(":")[0]
    median = figure["median"]
    if figure["unit"] == "MiB":
        return f"{median:.0f} MiB"
    if figure["unit"] == "":
        return f"{median:.0f}"
    seconds = median / 1e3 if figure["unit"] == "ms" else median
    if seconds >= 10:
        return f"{seconds:.0f} s"
    return f"{seconds:.1f} s" if seconds >= 1 else f"{seconds * 1e3:.2g} ms" if seconds < 0.1 else f"{seconds * 1e3:.0f} ms"


def block(document):
    """The marked block of README.md: a table and the conditions under which it was measured."""
    figures = {(row["task"], row["who"]): row for row in document["rows"]}
    machine = document["machine"]
    lines = ["| | torchrun | ddprun |", "|---|---|---|"]
    for task, words in SHOWN:
        lines.append(f"| {words} | {shown(figures[task, 'torchrun'])} | {shown(figures[task, 'ddprun'])} |")
    return "\n".join([
        BEGIN, *lines, "",
        f"Medians on a machine with {machine['cores']} cores, PyTorch {machine['versions']['torch'].partition('+')[0]}. "
        f"The load was {machine['load_before']:.1f} before.", END])


def replace_block(text, document):
    """README.md with the block of `document` between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"README.md has no block between {BEGIN} and {END}")
    return before + block(document) + after


def write(about, rows):
    """Writes the JSON and the block. A figure that does not exist is only one that did not come in time."""
    for row in rows:
        if row.error and not row.error.startswith("not within"):
            raise BenchError(f"README.md stays as it is: {row.task}, {row.who}: {row.error}")
    write_json(JSON, about, rows)
    with open(JSON, encoding="utf-8") as file:
        document = json.load(file)
    path = os.path.join(REPO, "README.md")
    with open(path, encoding="utf-8") as file:
        text = replace_block(file.read(), document)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
