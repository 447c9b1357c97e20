"""All-reduce among the ranks of this machine beside Gloo and Open MPI.

Every program does the same per iteration: each rank writes its whole buffer, all meet in a barrier,
and the all-reduce in place is timed. Its figure is the median, over iterations, of the slowest rank.
"""

import json
import os
import shutil
import tempfile

from harness import HERE, BenchError, Row, build, run

LIMIT_S = 120
SIZES = {4 << 10: "4 KiB", 64 << 10: "64 KiB", 1 << 20: "1 MiB", 25 << 20: "25 MiB", 100 << 20: "100 MiB"}
# Starts $2 ranks of Gloo's program $1, which meet in the folder $3, with the other arguments; fails if one fails.
GLOO_RANKS = """
pids=() code=0 program=$1 ranks=$2
shift 2
for ((rank = 0; rank < ranks; rank++)); do
  RANK=$rank WORLD_SIZE=$ranks timeout -k 5 %d "$program" "$@" &
  pids+=($!)
done
for pid in "${pids[@]}"; do wait "$pid" || code=$?; done
exit "$code"
""" % LIMIT_S


def allreduce_case(scratch, runs):
    competitors, rows = programs(scratch, "f32"), []
    for ranks in (2, 4):
        rows += tabulate(ranks, measure(ranks, competitors, max(1, runs // 3)))
    return rows


def programs(scratch, dtype):
    """{who: function of the number of ranks that returns the output}. Open MPI has no bfloat16."""
    ours = os.path.join(build("//tools/bench/allreduce:allreduce_bench"), "tools/bench/allreduce/allreduce_bench")
    gloo, mpi = compile_peer(scratch, "gloo_bench", "g++", "-lgloo", "-lpthread"), \
        compile_peer(scratch, "mpi_bench", "mpicxx")

    def ddprun(backend, memory):
        return lambda ranks: limited(ours, "--ranks", str(ranks), "--backend", backend, "--memory", memory,
                                     "--dtype", dtype)

    def open_mpi(ranks):
        return limited("mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", str(ranks), mpi())

    def gloo_ranks(ranks):
        folder = tempfile.mkdtemp(dir=scratch)
        try:
            return run(["bash", "-c", GLOO_RANKS, "bash", gloo(), str(ranks), folder,
                        *(["bf16"] if dtype == "bf16" else [])], LIMIT_S + 20)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    found = {"ddprun shm, arena": ddprun("shm", "arena"), "ddprun shm, private": ddprun("shm", "private"),
             "ddprun tcp": ddprun("tcp", "private"), "Gloo": gloo_ranks, "Open MPI": open_mpi}
    if dtype == "bf16":
        del found["Open MPI"]
    return found


def limited(*command):
    return run(["timeout", "-k", "5", str(LIMIT_S), *command], LIMIT_S + 20)


def compile_peer(scratch, name, compiler, *libraries):
    """Returns a function that builds the program when it is first needed, and gives its path."""
    def path():
        out = os.path.join(scratch, name)
        if not os.path.exists(out):
            run([compiler, "-O2", "-std=c++17", os.path.join(HERE, "allreduce", name + ".cc"), *libraries, "-o", out],
                300)
        return out
    return path


def measure(ranks, competitors, turns):
    """Runs the competitors in turns. {who: {bytes: [us]}, or the text of its error}."""
    found = {who: {size: [] for size in SIZES} for who in competitors}
    for _ in range(turns):
        for who, program in competitors.items():
            if isinstance(found[who], str):
                continue
            try:
                results = [json.loads(line) for line in program(ranks).split("\n") if line.startswith("{")]
                times = {result["bytes"]: result["us"] for result in results}
                for size in SIZES:
                    found[who][size].append(times[size])
            except (BenchError, ValueError, KeyError) as error:
                found[who] = f"{type(error).__name__}: {error}"
    return found


def tabulate(ranks, found):
    def row(task, who, size):
        values = found[who]
        return Row(task, who, "us", error=values) if isinstance(values, str) else Row(task, who, "us", values[size])
    rows = []
    for size, name in SIZES.items():
        task = f"all-reduce, {ranks} ranks, {name}"
        rows += [row(task, who, size) for who in ("ddprun shm, arena", "ddprun shm, private", "Gloo", "Open MPI")]
    for size, name in SIZES.items():
        task = f"all-reduce over tcp, {ranks} ranks, {name}"
        rows += [row(task, who, size) for who in ("ddprun tcp", "Gloo")]
    return rows
