"""libtorch with ddp/torch.h beside Python's DistributedDataParallel over Gloo, on one PyTorch: some five minutes."""

import os
import shlex

import ddp_cases
from ddp_cases import MODELS, RANKS, SECONDS, lines, ratio, shown
from harness import DIST, HERE, NO_TORCH, REPO, BenchError, Row, run, torch_python

OURS, PYTHON = "ddprun, libtorch", "Python, Gloo"
FIGURES = {"bare": ("bare", "ms", "without DDP"), "sync": ("sync", "ms", "with DDP"),
           "cost": ("sync", "more_ms", "cost of DDP")}


def libtorch_case(scratch, runs):
    python = torch_python()
    if not python:
        return [Row("libtorch", OURS, "ms", error=NO_TORCH)]
    program = compile_with_torch(scratch, python)
    rows = []
    for model, (hidden, layers) in MODELS.items():
        for ranks in RANKS:
            arguments = ["--ranks", str(ranks), "--hidden", hidden, "--layers", layers, "--seconds", SECONDS]
            commands = {OURS: [program, *arguments],
                        PYTHON: [python, os.path.join(HERE, "ddp", "torch_bench.py"), *arguments]}
            for who, found in ddp_cases.in_turns(commands, max(3, runs // 5)).items():
                for way, key, text in FIGURES.values():
                    where = task(model, ranks, text)
                    rows.append(Row(where, who, "ms", error=found) if isinstance(found, str)
                                else Row(where, who, "ms", [ways[way][key] for ways in found]))
    return rows


def compile_with_torch(scratch, python):
    """libtorch_bench against the libtorch of this Python's PyTorch and dist/, as docs/library/libtorch.md says."""
    torch = run([python, "-c", "import importlib.util as i; print(*i.find_spec('torch').submodule_search_locations)"]).strip()
    if not os.path.exists(os.path.join(torch, "include", "torch", "csrc", "api", "include", "torch", "torch.h")):
        raise BenchError(f"{torch} has no headers of libtorch")
    program = os.path.join(scratch, "libtorch_bench")
    absl = shlex.split(run(["pkg-config", "--libs", "absl_statusor", "absl_status", "absl_strings"]))
    sources = [os.path.join(REPO, path) for path in ("tools/bench/ddp/libtorch_bench.cc", "tools/bench/ddp/turns.cc",
                                                     "bench/median.cc")]
    run(["g++", "-std=c++20", "-O2", *sources, "-o", program, "-I", REPO, "-I", f"{DIST}/include",
         "-isystem", f"{torch}/include", "-isystem", f"{torch}/include/torch/csrc/api/include",
         "-L", f"{DIST}/lib", "-l:libddp.a", "-L", f"{torch}/lib", "-ltorch", "-ltorch_cpu", "-lc10",
         f"-Wl,-rpath,{torch}/lib", *absl, "-ldl", "-pthread"], 300)
    return program


def task(model, ranks, text):
    return f"libtorch, {model}, {ranks} ranks, {text}"


def markdown(rows):
    """The table of docs/internals/benchmark-ddp.md."""
    medians = {(row.task, row.who): row.median for row in rows}
    cells = [("parameters", "ranks", "without DDP", "Python", "with DDP", "Python, Gloo", "DDP costs", "Python, Gloo",
              "Python / libtorch, with DDP")]
    for model in MODELS:
        for ranks in RANKS:
            pairs = [[medians.get((task(model, ranks, text), who)) for who in (OURS, PYTHON)]
                     for _, _, text in FIGURES.values()]
            cells.append((model, str(ranks), *(shown(value, "ms") for pair in pairs for value in pair),
                          ratio(pairs[1][1], pairs[1][0])))
    return lines(*cells)
