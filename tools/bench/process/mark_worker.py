"""mark_worker.py FILE: what mark_worker.c does, in Python and without PyTorch: appends "<rank> <restart
count> <pid> <CLOCK_MONOTONIC ns>" to FILE, then waits to be killed."""

import os
import sys
import time

now = time.monotonic_ns()
line = f"{os.environ['RANK']} {os.environ.get('TORCHELASTIC_RESTART_COUNT', 0)} {os.getpid()} {now}\n"
file = os.open(sys.argv[1], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
os.write(file, line.encode())  # One write: lines of several workers do not mix.
time.sleep(120)  # Not for ever: a worker that lost its launcher must not outlive the benchmark by much.
