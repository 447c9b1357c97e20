"""The trainer: step time at 1, 2 and 4 ranks."""

import json
import os

from harness import DIST, REPO, BenchError, Row, run


def train_case(scratch, runs):
    data = os.path.join(scratch, "digits")
    if not os.path.isdir(data):
        run([os.path.join(DIST, "make_digits"), data], 120)
    rows = []
    for backend in ("shm", "tcp"):
        for ranks in (1, 2, 4):
            if ranks == 1 and backend == "tcp":
                continue
            rows += steps(scratch, data, backend, ranks, runs)
    return rows


def steps(scratch, data, backend, ranks, runs):
    who = f"ddprun train, {'local' if ranks == 1 else backend}"
    task = f"trainer step, {ranks} ranks, batch 64 each"
    step_ms, exposed, rate = [], [], []
    summary = os.path.join(scratch, "summary.json")
    for _ in range(max(1, runs // 4)):
        command = [os.path.join(DIST, "ddprun"), "--standalone", f"--nproc-per-node={ranks}",
                   os.path.join(DIST, "train"), "--data", data, "--epochs", "1", "--batch_size", "64",
                   "--backend", backend if ranks > 1 else "auto", "--summary_file", summary]
        try:
            run(command, 300, cwd=scratch)
            with open(summary, encoding="utf-8") as file:
                result = json.load(file)
        except (BenchError, OSError, ValueError) as error:
            return [Row(task, who, "ms", error=str(error))]
        step_ms.append(result["step_ms"])
        exposed.append(100 * result["exposed_communication_share"])
        rate.append(result["samples_per_second"])
    return [Row(task, who, "ms", step_ms),
            Row(task + ", exposed communication", who, "%", exposed),
            Row(task + ", samples/s", who, "1/s", rate)]
