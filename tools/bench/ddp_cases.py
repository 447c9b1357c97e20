"""DistributedDataParallel beside PyTorch's over Gloo, what it costs, all-reduce among 8 ranks, and ddp::Spawn.

Long cases take a fifth of the runs: some seven minutes in all on two cores.
"""

import json
import os
import statistics

import allreduce_cases
from harness import HERE, NO_TORCH, BenchError, Row, Timer, build, compile_program, interleave, run, torch_python

LIMIT_S = 120
SECONDS = "2"  # of a run for a small network; the large one takes its three turns
# Widths of the hidden layers and their number: 784-512-512-10, and 784 - 6 x 2048 - 10.
MODELS = {"0.67 M": ("512", "2"), "22.6 M": ("2048", "6")}
RANKS = (1, 2, 4)
WAYS = {"bare": "without DDP", "no_sync": "no_sync", "sync": "with DDP", "late": "with DDP, no overlap",
        "compare": "ReplicaCheck", "exposed": "exposed by last_reduction"}
TORCH = "PyTorch, Gloo"


def ddp_case(scratch, runs):
    program = os.path.join(build("//tools/bench/ddp:ddp_bench"), "tools/bench/ddp/ddp_bench")
    turns = max(1, runs // 5)
    rows = []
    for model, shape in MODELS.items():
        for ranks in RANKS:
            rows += step_rows(program, model, shape, ranks, turns)
    rows += sweep_rows(program, turns)
    for dtype, ranks in (("f32", (8,)), ("bf16", (2, 4, 8))):
        competitors = allreduce_cases.programs(scratch, dtype)
        del competitors["ddprun tcp"]
        for n in ranks:
            rows += allreduce_rows(dtype, n, competitors, turns)
    rows += interleave("flight recorder", "ns", {"ddprun": lambda: 1e6 * ways(run([program, "recorder"]))["recorder"]["ms"]},
                       turns)
    return rows + spawn_rows(scratch, program, runs)


def ways(output):
    """{way: what a program says of it}."""
    found = [json.loads(line) for line in output.split("\n") if line.startswith("{")]
    if not found:
        raise BenchError(f"no figures: {output.strip()[-200:]}")
    return {way["way"]: way for way in found}


def step_rows(program, model, shape, ranks, turns):
    arguments = ["--ranks", str(ranks), "--hidden", shape[0], "--layers", shape[1], "--seconds", SECONDS]
    commands = {"ddprun": [program, "step", *arguments],
                TORCH: torch_python() and [torch_python(), os.path.join(HERE, "ddp", "torch_bench.py"), *arguments]}
    rows = []
    for who, values in in_turns(commands, turns).items():
        if isinstance(values, str):
            rows.append(Row(step_task(model, ranks, "sync"), who, "ms", error=values))
            continue
        for way in WAYS:
            measured = [found["sync"].get("exposed_ms") if way == "exposed" else found.get(way, {}).get("ms")
                        for found in values]
            if None not in measured:
                rows.append(Row(step_task(model, ranks, way), who, "ms", measured))
    return rows


def in_turns(commands, turns):
    """{who: [ways of each turn], or the text of its error}."""
    found = {who: [] if command else NO_TORCH for who, command in commands.items()}
    for _ in range(turns):
        for who, command in commands.items():
            if isinstance(found[who], str):
                continue
            try:
                found[who].append(ways(run(["timeout", "-k", "5", str(LIMIT_S), *command], LIMIT_S + 20,
                                           {**os.environ, "OMP_NUM_THREADS": "1"})))
            except (BenchError, ValueError, KeyError) as error:
                found[who] = f"{type(error).__name__}: {error}"
    return found


def step_task(model, ranks, way):
    return f"DDP, {model}, {ranks} ranks, {WAYS[way]}"


def sweep_rows(program, turns):
    hidden, layers = MODELS["22.6 M"]
    command = [program, "sweep", "--ranks", "2", "--hidden", hidden, "--layers", layers, "--seconds", SECONDS]
    found = in_turns({"ddprun": command}, max(1, turns - 1))["ddprun"]
    if isinstance(found, str):
        return [Row("bucket_cap_mb", "ddprun", "ms", error=found)]
    return [Row(f"bucket_cap_mb {cap}", who, "ms", [ways_[cap][key] for ways_ in found],
                note=f"{found[0][cap]['buckets']} buckets")
            for cap in found[0] for who, key in (("ddprun", "ms"), ("ddprun, exposed", "exposed_ms"))]


def allreduce_rows(dtype, ranks, competitors, turns):
    rows = []
    for who, values in allreduce_cases.measure(ranks, competitors, turns).items():
        for size, name in allreduce_cases.SIZES.items():
            task = f"all-reduce, {dtype}, {ranks} ranks, {name}"
            rows.append(Row(task, who, "us", error=values) if isinstance(values, str)
                        else Row(task, who, "us", values[size]))
    return rows


def spawn_rows(scratch, program, runs):
    timer, loop = Timer(scratch), compile_program(scratch, "process", "spawn_loop")
    commands = {"ddprun": [program, "spawn", "--ranks", "4"], "ddprun, forming a group": [program, "group", "--ranks", "4"],
                "bare spawn loop": [loop, "4", program, "nothing"]}
    return interleave("Spawn of 4", "ms", {who: lambda command=command: timer(command)[0] * 1e3
                                           for who, command in commands.items()}, runs)


def markdown(rows):
    """The tables of docs/benchmarks.md."""
    medians = {(row.task, row.who): row.median for row in rows}
    parts = [step_table(medians), cost_table(medians), sweep_table(rows)]
    parts += [allreduce_table(medians, dtype, ranks) for dtype, ranks in (("f32", 8), ("bf16", 2), ("bf16", 4), ("bf16", 8))]
    return "\n\n".join(parts + [spawn_table(rows)])


def lines(*cells):
    rows = [f"| {' | '.join(row)} |" for row in cells]
    return "\n".join([rows[0], "|" + "---|" * len(cells[0]), *rows[1:]])


def shown(value, unit="", digits=3):
    """Three digits that count."""
    if value is None:
        return "-"
    if unit == "us" and value >= 1000:
        value, unit = value / 1000, "ms"
    text = f"{value:.{digits}g}"
    return (f"{value:.0f}" if "e" in text else text) + (f" {unit}" if unit else "")


def ratio(top, bottom):
    return "-" if not top or not bottom else f"{top / bottom:.2f}"


def less(value, other):
    return None if value is None or other is None else value - other


def step_table(medians):
    cells = [("parameters", "ranks", "without DDP", "PyTorch", "with DDP", "PyTorch", "exposed", "PyTorch",
              "PyTorch / ddprun, with DDP")]
    for model in MODELS:
        for ranks in RANKS:
            row = []
            for way in ("bare", "sync"):
                row += [shown(medians.get((step_task(model, ranks, way), who)), "ms") for who in ("ddprun", TORCH)]
            sync, no_sync = ([medians.get((step_task(model, ranks, way), who)) for who in ("ddprun", TORCH)]
                             for way in ("sync", "no_sync"))
            exposed = [shown(less(a, b), "ms", 2) if ranks > 1 else "-" for a, b in zip(sync, no_sync)]
            cells.append((model, str(ranks), *row, *exposed, ratio(sync[1], sync[0])))
    return lines(*cells)


def cost_table(medians):
    cells = [("parameters", "ranks", "DDP's overhead", "overlap on, off", "exposed by `last_reduction`",
              "ReplicaCheck: a comparison", "steps between two at 0.1 %")]
    for model in MODELS:
        for ranks in RANKS:
            bare, sync, late, compare, exposed = (medians.get((step_task(model, ranks, way), "ddprun"))
                                                  for way in ("bare", "sync", "late", "compare", "exposed"))
            overhead = "-" if ranks > 1 or not bare or not sync else f"{100 * (sync / bare - 1):+.1f} %"
            cells.append((model, str(ranks), overhead, "-" if ranks == 1 else f"{shown(sync, 'ms')}, {shown(late, 'ms')}",
                          "-" if ranks == 1 else shown(exposed, "ms", 2), shown(compare, "ms"),
                          "-" if not compare or not sync else f"{1000 * compare / sync:,.0f}"))
    recorder = medians.get(("flight recorder", "ddprun"))
    return lines(*cells) + f"\n\nThe flight recorder takes {shown(recorder, 'ns')} for each operation."


def sweep_table(rows):
    cells = [("`bucket_cap_mb`", "buckets", "step", "exposed")]
    steps = [row for row in rows if row.task.startswith("bucket_cap_mb ") and row.who == "ddprun"]
    exposed = {row.task: row.median for row in rows if row.who == "ddprun, exposed"}
    for row in steps:
        cells.append((row.task.split()[1], row.note.split()[0], shown(row.median, "ms"), shown(exposed[row.task], "ms")))
    return lines(*cells)


def allreduce_table(medians, dtype, ranks):
    whos = ["ddprun shm, arena", "ddprun shm, private", "Gloo"] + (["Open MPI"] if dtype == "f32" else [])
    cells = [("size", *(who.removeprefix("ddprun ") for who in whos), "Gloo / arena", "Gloo / private")]
    for name in allreduce_cases.SIZES.values():
        row = [medians.get((f"all-reduce, {dtype}, {ranks} ranks, {name}", who)) for who in whos]
        cells.append((name, *(shown(value, "us") for value in row), ratio(row[2], row[0]), ratio(row[2], row[1])))
    return f"### {ranks} ranks, {dtype}\n\n" + lines(*cells)


def spawn_table(rows):
    cells = [("4 processes, start to end", "median (smallest to largest)")]
    for row in rows:
        if row.task == "Spawn of 4" and row.values:
            who = {"ddprun": "ddp::Spawn", "ddprun, forming a group": "ddp::Spawn of ranks that form a group"}.get(row.who, row.who)
            cells.append((who, f"{statistics.median(row.values):.1f} ms ({min(row.values):.1f}-{max(row.values):.1f})"))
    return lines(*cells)
