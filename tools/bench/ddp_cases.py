"""DistributedDataParallel beside PyTorch's over Gloo, what it costs, all-reduce among 8 ranks, and ddp::Spawn.

Long cases take a fifth of the runs: some ten minutes in all on two cores.
"""

import json
import os
import statistics

import allreduce_cases
from harness import HERE, NO_TORCH, BenchError, Row, Timer, build, compile_program, interleave, run, torch_python

LIMIT_S = 120
SECONDS = "4"  # about, of a run; three turns of all ways at least
# Widths of the hidden layers and their number: 784-512-512-10, and 784 - 6 x 2048 - 10.
MODELS = {"0.67 M": ("512", "2"), "22.6 M": ("2048", "6")}
RANKS = (1, 2, 4)
# {figure: (way, key of what a program says of it, text)}; a cost is what a step takes more than without DDP.
FIGURES = {"bare": ("bare", "ms", "without DDP"), "sync": ("sync", "ms", "with DDP"),
           "cost": ("sync", "more_ms", "cost of DDP"), "late": ("late", "more_ms", "cost of DDP, no overlap"),
           "exposed": ("sync", "exposed_ms", "exposed by last_reduction"), "compare": ("compare", "ms", "ReplicaCheck")}
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
        for figure, (way, key, _) in FIGURES.items():
            measured = [found.get(way, {}).get(key) for found in values]
            if None not in measured:
                rows.append(Row(step_task(model, ranks, figure), who, "ms", measured))
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


def step_task(model, ranks, figure):
    return f"DDP, {model}, {ranks} ranks, {FIGURES[figure][2]}"


def sweep_rows(program, turns):
    hidden, layers = MODELS["22.6 M"]
    command = [program, "sweep", "--ranks", "2", "--hidden", hidden, "--layers", layers, "--seconds", SECONDS]
    found = in_turns({"ddprun": command}, max(1, turns - 1))["ddprun"]
    if isinstance(found, str):
        return [Row("bucket_cap_mb", "ddprun", "ms", error=found)]
    return [Row(f"bucket_cap_mb {cap}", who, "ms", [ways_[cap][key] for ways_ in found],
                note=f"{found[0][cap]['buckets']} buckets")
            for cap in found[0]
            for who, key in (("ddprun", "ms"), ("ddprun, more", "more_ms"), ("ddprun, exposed", "exposed_ms"))]


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
    """The tables of docs/internals/benchmark-ddp.md."""
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


def step_table(medians):
    cells = [("parameters", "ranks", "without DDP", "PyTorch", "with DDP", "PyTorch", "DDP costs", "PyTorch",
              "PyTorch / ddprun, with DDP")]
    for model in MODELS:
        for ranks in RANKS:
            row = {figure: [medians.get((step_task(model, ranks, figure), who)) for who in ("ddprun", TORCH)]
                   for figure in ("bare", "sync", "cost")}
            cells.append((model, str(ranks), *(shown(value, "ms") for pair in row.values() for value in pair),
                          ratio(*reversed(row["sync"]))))
    return lines(*cells)


def cost_table(medians):
    cells = [("parameters", "ranks", "DDP costs", "of a step", "without overlap", "exposed by `last_reduction`",
              "ReplicaCheck: a comparison", "steps between two at 0.1 %")]
    for model in MODELS:
        for ranks in RANKS:
            bare, sync, cost, late, exposed, compare = (medians.get((step_task(model, ranks, figure), "ddprun"))
                                                        for figure in FIGURES)
            share = "-" if not bare or cost is None else f"{100 * cost / bare:+.1f} %"
            cells.append((model, str(ranks), shown(cost, "ms"), share, shown(late, "ms"), shown(exposed, "ms", 2),
                          shown(compare, "ms"), "-" if not compare or not sync else f"{1000 * compare / sync:,.0f}"))
    recorder = medians.get(("flight recorder", "ddprun"))
    return lines(*cells) + f"\n\nThe flight recorder takes {shown(recorder, 'ns')} for each operation."


def sweep_table(rows):
    cells = [("`bucket_cap_mb`", "buckets", "step", "more than by default", "exposed")]
    medians = {(row.task, row.who): row.median for row in rows}
    for row in rows:
        if row.task.startswith("bucket_cap_mb ") and row.who == "ddprun":
            more, exposed = (shown(medians.get((row.task, f"ddprun, {what}")), "ms") for what in ("more", "exposed"))
            cells.append((row.task.removeprefix("bucket_cap_mb "), row.note.split()[0], shown(row.median, "ms"), more, exposed))
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
