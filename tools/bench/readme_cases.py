"""The figures of README.md: few turns of some cases, beside torchrun, in ten minutes.

The figures go to readme.json beside this file, and as a table into the marked block of README.md. A test
compares the two.
"""

import contextlib
import os
import signal
import subprocess
import time

import fault_cases
from harness import (HERE, REPO, BenchError, Row, as_document, interleave, torchrun, wait_until,
                     write_json)
from launcher_cases import DDPRUN, ENV, memory_case, start_beside_torchrun

JSON = os.path.join(HERE, "readme.json")
BEGIN, END = "<!-- figures: tools/bench/run --only readme -->", "<!-- end of figures -->"
TURNS = {"worker SIGKILL, one node": 10, "worker SIGKILL, two nodes": 5, "network of a node cut off, `--nnodes=1:2`": 1}
LAUNCHERS = ("torchrun", "ddprun")  # the columns of the table
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
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=60,
                              env=ENV, check=False).returncode
    except subprocess.TimeoutExpired as error:
        raise BenchError(f"{' '.join(command)}: still running after 60 s") from error


def hang_row(scratch, who, launcher):
    """Seconds from the SIGSTOP of one of four ranks until the launcher's output names it."""
    row = Row("a rank hangs in an all-reduce", who, "s")
    marks = os.path.join(scratch, f"hang.{who}")
    worker = fault_cases.compile_worker(scratch, "hang_worker")
    with open(marks + ".log", "w+", encoding="utf-8") as log:
        job = subprocess.Popen([*launcher, "--nproc-per-node=4", worker, marks],
                               stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=ENV)
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
            end_job(job, marks)
    return row


def end_job(job, marks):
    """Ends a launcher, and those of its workers that it leaves."""
    job.terminate()
    try:
        signal_workers(marks, signal.SIGCONT)
        job.wait(40)
    except subprocess.TimeoutExpired:
        job.kill()
        job.wait(10)
    finally:
        signal_workers(marks, signal.SIGKILL)


def signal_workers(marks, number):
    for pid in {int(line.split()[3]) for line in lines_of(marks)}:
        if fault_cases.is_alive(pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


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
    milliseconds = median if figure["unit"] == "ms" else median * 1e3
    # Rounded first: 999.6 ms is a second.
    number, unit = (milliseconds, "ms") if round(milliseconds) < 1000 else (milliseconds / 1e3, "s")
    return f"{number:.1f} {unit}" if round(number, 1) < 10 else f"{number:.0f} {unit}"


def block(document):
    """The marked block of README.md: a table and the conditions under which it was measured."""
    figures = {(row["task"], row["who"]): row for row in document["rows"]}
    machine = document["machine"]
    lines, single = [f"| | {' | '.join(LAUNCHERS)} |", "|---|---|---|"], []
    for number, (task, words) in enumerate(SHOWN, 1):
        row = [figures[task, who] for who in LAUNCHERS]
        lines.append(f"| {words} | {' | '.join(map(shown, row))} |")
        if all(len(figure["values"]) < 2 for figure in row):
            single.append(str(number))
    torch = machine["versions"]["torch"].partition("+")[0]
    runs = "All rows show medians"
    if single:
        few = f"Row {single[0]} shows" if len(single) == 1 else f"Rows {', '.join(single)} show"
        runs = f"{few} one run, and the others medians"
    return "\n".join([
        BEGIN, *lines, "",
        f"{runs}. The machine has {machine['cores']} cores and PyTorch {torch}.",
        f"Its load was {machine['load_before']:.1f} before.", END])


def replace_block(text, document):
    """README.md with the block of `document` between its marks."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise BenchError(f"README.md has no block between {BEGIN} and {END}")
    return before + block(document) + after


def write(about, rows):
    """Writes the JSON and the block. A figure that does not exist is only one that did not come in time."""
    kept = "README.md stays as it is"
    for row in rows:
        if row.error and not row.error.startswith("not within"):
            raise BenchError(f"{kept}: {row.task}, {row.who}: {row.error}")
    measured = {(row.task, row.who) for row in rows if row.values or row.error}
    for task, _ in SHOWN:
        for who in LAUNCHERS:
            if (task, who) not in measured:
                raise BenchError(f"{kept}: {task}, {who}: no figure; "
                                 "SHOWN must have the names of the measured tasks")
    document = as_document(about, rows)
    path = os.path.join(REPO, "README.md")
    with open(path, encoding="utf-8") as file:
        text = replace_block(file.read(), document)
    write_json(JSON, document)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
