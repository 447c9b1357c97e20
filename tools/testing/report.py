"""What tools/test says: texts made of results, nothing else."""

import dataclasses

import parts
import plan
import results

SLOWEST = 10
NOT_REACHED = "was not run"  # a case behind one that has crashed, as tests/support/doctest_main.cc says it
CUT = ("not begun", "not finished")
SHOWN_CASES = 10  # of a failed program


@dataclasses.dataclass
class StageResult:
    name: str
    seconds: float
    word: str  # "passed", "FAILED", "not run: ...", "not finished"


def _of_bad_program(name, program):
    yield f"{name}: FAILED {program.label}: {program.status}"
    failed = [case for case in program.cases if case.state == "failed"]
    failed.sort(key=lambda case: case.why == NOT_REACHED)
    for case in failed[:SHOWN_CASES]:
        first = case.why.strip().splitlines()
        yield f"  {case.file}: {case.name}" + (f": {first[0].strip()}" if first else "")
    if len(failed) > SHOWN_CASES:
        yield f"  and {len(failed) - SHOWN_CASES} more cases"
    for file, tail in program.tails.items():
        yield f"  the end of the log{' of ' + file if file else ''}:"
        yield from (f"    {line}" for line in tail)


def failures(name, programs):
    """What failed in a run, with the end of its log."""
    for program in programs:
        if not program.ok:
            yield from _of_bad_program(name, program)
    if not programs:
        yield f"{name}: no test was executed"


def count_line(name, programs):
    counts = results.count(programs)
    notes = f"{counts.programs} test programs, {counts.scripts} of them scripts"
    if counts.reused:
        notes += f", {counts.reused} of them reused from the cache"
    return f"{name}: {counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped ({notes})"


def stage_table(stages):
    width = max((len(stage.name) for stage in stages), default=0)
    yield "stages:"
    for stage in stages:
        yield f"  {stage.name:{width}} {stage.seconds:7.1f} s  {stage.word}"
    yield f"  {'all':{width}} {sum(stage.seconds for stage in stages):7.1f} s"


def slowest(runs):
    """The slowest cases (of a script: all of it) of all runs, which are (name, programs)."""
    found = []
    for name, programs in runs:
        for program in programs:
            if program.is_reused or not program.has_run:
                continue
            if program.cases:
                found += [(case.seconds, name, f"{case.file}: {case.name}") for case in program.cases]
            else:
                found.append((program.seconds, name, program.label))
    if found:
        yield "slowest tests:"
    for seconds, name, what in sorted(found, key=lambda entry: (-entry[0], entry[1:]))[:SLOWEST]:
        yield f"  {seconds:7.1f} s  {name}  {what}"


def skipped(programs):
    return parts.lines(*([why for program in programs if program.is_doctest == is_doctest for why in program.skips]
                         for is_doctest in (True, False)))


def more(ring):
    """What the rings above add."""
    return [text for at, text in plan.ADDS.items() if at > ring]


def ending(ring, stages, runs, failed, tenth=""):
    """The last lines of a run. `runs` are (name, programs); the cases of the one named plain are counted."""
    by_name = dict(runs)
    counted = by_name.get("plain", [])
    lines = [*stage_table(stages), *slowest(runs), *skipped(counted)]
    lines += [count_line(name, programs) for name, programs in runs if name != "plain"]
    if "plain" in by_name:
        lines.append(count_line("plain", counted))
    if tenth:
        lines.append(f"of --nightly this run had {tenth}")
    cut = [stage.name for stage in stages if stage.word in CUT]
    if cut:
        lines.append(f"cut short by a limit of time: {', '.join(cut)}; tools/test --nightly has all of it")
    lines += more(ring)
    if failed:
        lines.append(f"failed: {', '.join(failed)}")
    counts = results.count(counted)
    lines.append(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return lines


def ending_of_paths(name, stages, programs):
    """The last lines of tools/test PATH; none where it ran no test of Bazel's."""
    if not stages:
        return []
    counts = results.count(programs)
    return [*failures("tools/test", programs), *stage_table(stages), *slowest([(name, programs)]), *skipped(programs),
            f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped"]


def describe(stages, targets):
    """The plan for --dry-run: stages, their programs, and these programs' tags."""
    by_label = {target.label: target for target in targets}
    for stage in stages:
        if isinstance(stage, plan.Command):
            yield f"{stage.name}: {' '.join(stage.words).replace('{bazel}', 'bazel')}"
            continue
        which = "those that can start a thread, of " if stage.threads_only else ""
        yield f"{stage.name}: bazel test {' '.join(stage.flags + stage.test_flags)}, {which}{len(stage.labels)} programs:"
        for label in stage.labels:
            tags = sorted(by_label[label].tags) if label in by_label else []
            yield f"  {label}{' [' + ', '.join(tags) + ']' if tags else ''}"
