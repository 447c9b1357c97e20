"""Logs: lines that four workers write, through the launcher to a console and to files."""

import os
import shutil
import subprocess
import time

from harness import DIST, BenchError, compile_program, interleave, torchrun

WORKERS = 4
LINES = 500_000  # of each worker
LINES_OF_TORCHRUN = 50_000  # so that its part takes no minutes
DDPRUN = os.path.join(DIST, "ddprun")


def logs_case(scratch, runs):
    """Lines per second from the first one on the console to the launcher's end; all must arrive in both places."""
    worker = compile_program(scratch, "process", "line_worker")
    peer = torchrun()
    folder = os.path.join(scratch, "logs")
    rows = []
    for name, filters in (("logs to console and files", []),
                          ("the same, 1 line of 100 copied", ["--duplicate-stdout-filters=99 of rank"])):
        options = ["--standalone", f"--nproc-per-node={WORKERS}", "-t", "1", f"--log-dir={folder}", *filters]

        def measure(program, lines, copied=bool(filters)):
            return lines_per_second(program + [worker, str(lines)], folder, WORKERS * lines, copied)

        def measure_peer(measure=measure, options=options):
            return measure([*peer, *options, "--no-python"], LINES_OF_TORCHRUN)

        competitors = {
            "ddprun": lambda measure=measure, options=options: measure([DDPRUN, *options], LINES),
            "torchrun": measure_peer if peer else None,
        }
        rows += interleave(name, "lines/s", competitors, max(1, runs // 3))
    return rows


def lines_per_second(command, folder, lines, is_copied):
    shutil.rmtree(folder, ignore_errors=True)
    start, on_console = None, 0
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL) as launcher:
        while chunk := launcher.stdout.read1(1 << 20):
            start = start or time.monotonic()
            on_console += chunk.count(b"\n")
        code = launcher.wait()
    end = time.monotonic()
    if code != 0:
        raise BenchError(f"{os.path.basename(command[0])}: exit {code}")
    in_files, copies = count_lines(folder, "stdout.log"), count_lines(folder, "filtered_stdout.log")
    if on_console != lines or in_files != lines or copies != (lines // 100 if is_copied else 0):
        raise BenchError(f"of {lines} lines {on_console} reached the console, {in_files} the files; {copies} copied")
    return lines / (end - start)


def count_lines(folder, wanted):
    lines = 0
    for parent, _, names in os.walk(folder):
        if wanted in names:
            with open(os.path.join(parent, wanted), "rb") as file:
                lines += file.read().count(b"\n")
    return lines
