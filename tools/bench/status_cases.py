"""Somebody looks at a job: what that costs the coordinator, the node of rank 0 and all others.

The coordinator, the agent of rank 0 and all other agents, with 8 ranks each, are a process each of
status/status_farm.cc. A dashboard is open for LOOKS seconds; then VIEWERS agents ask at once.
"""

import os
import statistics
import time

from harness import BenchError, Part, Row, build

COUNTS = (64, 256, 1024)
LOOKS = 10
VIEWERS = 100
IDLE_S = 5
FRESH_S = 1.2  # an answer is given to all who ask within a second
HANG_S = 1.5  # a hang is one when it is seen twice
MAX_RUNS = 3


class Job:
    """A job of `count` nodes that runs."""

    def __init__(self, program, count):
        self.parts = []
        try:
            self.coordinator = self.start(program, "coordinator", count)
            port = self.coordinator.ready()["port"]
            self.agents = self.start(program, "agents", port, count, count - 1)
            self.asker = self.start(program, "asker", port, count)
            self.node_bytes = self.agents.ready()["node_bytes"]
            self.asker.ready()
        except BenchError:
            self.__exit__()
            raise

    def start(self, *command):
        self.parts.append(Part(*command))
        return self.parts[-1]

    def use(self):
        """What each part has used so far, and the time."""
        found = {name: getattr(self, name).ask("use") for name in ("coordinator", "asker", "agents")}
        return {**found, "at": time.monotonic()}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for part in reversed(self.parts):
            part.end()


def cores(before, after, part, clock="cpu_ms"):
    """Processor time between two calls of use(), in % of a core."""
    return (after[part][clock] - before[part][clock]) / (after["at"] - before["at"]) / 10


def mib_more(before, after, part):
    """The peak between two calls of use() beyond what was there before."""
    return (after[part]["peak_kib"] - before[part]["rss_kib"]) / 1024


def measure_idle(job):
    """What each part takes while nobody looks, for heartbeats, and use() behind that."""
    job.asker.ask("look")  # what is needed once is there
    time.sleep(FRESH_S)
    before = job.use()
    time.sleep(IDLE_S)
    after = job.use()
    idle = {part: cores(before, after, part) for part in ("coordinator", "asker", "agents")}
    return {**idle, "thread": cores(before, after, "coordinator", "thread_ms")}, after


def measure_dashboard(job, count, before, idle):
    """One look a second; figures of a look are medians over looks."""
    looks = []
    for i in range(LOOKS):
        time.sleep(max(0, before["at"] + i - time.monotonic()))
        looks.append(job.asker.ask("look"))
    time.sleep(max(0, before["at"] + LOOKS - time.monotonic()))
    after = job.use()
    if any(look["problems"] for look in looks):
        raise BenchError(f"the job of {count} nodes was not found well")
    job.asker.ask("hang")
    time.sleep(HANG_S)
    hang = job.asker.ask("hang")
    if not hang["problems"]:
        raise BenchError(f"the hang of {count} nodes was not seen")
    shown = [look for look in looks if "render_ms" in look]
    new = [look["ms"] for look in looks if not look["is_copy"]]
    copies = [look["ms"] for look in looks if look["is_copy"]]
    seconds = after["at"] - before["at"]
    answers = after["agents"]["answered"] - before["agents"]["answered"]
    rows = [
        ("idle: coordinator", "% of a core", idle["coordinator"]),
        ("look: question to last answer", "ms", statistics.median(new)),
        ("look: the longest", "ms", max(new)),
        ("look: bytes of all answers", "KiB", looks[-1]["bytes"] / 1024),
        ("look: bytes of the job as JSON", "KiB", shown[-1]["json_bytes"] / 1024),
        ("look: silent nodes, of all looks", "", sum(look["silent"] for look in looks)),
        ("look: coordinator's thread, CPU", "ms",
         (cores(before, after, "coordinator", "thread_ms") - idle["thread"]) * 10 * seconds / LOOKS),
        ("look: parse and keep, CPU", "ms", statistics.median(look["assemble_ms"] for look in looks)),
        ("look: judge, CPU", "ms", statistics.median(look["judge_ms"] for look in looks)),
        ("look: render, CPU", "ms", statistics.median(look["render_ms"] for look in shown)),
        ("look: judge a hang, CPU", "ms", hang["judge_ms"]),
        ("dashboard: nodes asked, times in 10 s", "", answers / (count - 1)),
        ("dashboard: coordinator, above idle", "% of a core", cores(before, after, "coordinator") - idle["coordinator"]),
        ("dashboard: agent of rank 0", "% of a core", cores(before, after, "asker")),
        ("dashboard: coordinator, more memory", "MiB", mib_more(before, after, "coordinator")),
        ("dashboard: agent of rank 0, more memory", "MiB", mib_more(before, after, "asker")),
    ]
    if copies:
        rows.append(("look: likewise, answered with the last second's", "ms", statistics.median(copies)))
    if answers:
        share = cores(before, after, "agents") - idle["agents"]
        spent = share * 10 * seconds
        rows.append(("an agent elsewhere, CPU an answer", "us", spent * 1e3 / answers))
    return rows


def measure_viewers(job, count):
    time.sleep(FRESH_S)
    before = job.use()
    found = job.agents.ask(f"ask {VIEWERS}")
    after = job.use()
    if found["full"] != VIEWERS:
        raise BenchError(f"only {found['full']} of {VIEWERS} who asked at once heard of all {count} nodes")
    spent = after["coordinator"]["cpu_ms"] - before["coordinator"]["cpu_ms"]
    return [
        (f"{VIEWERS} at once: to the last answer", "ms", found["ms"]),
        (f"{VIEWERS} at once: bytes of all answers", "MiB", found["bytes"] / 2**20),
        (f"{VIEWERS} at once: nodes asked, times", "",
         (after["agents"]["answered"] - before["agents"]["answered"]) / (count - 1)),
        (f"{VIEWERS} at once: coordinator, CPU", "ms", spent),
        (f"{VIEWERS} at once: coordinator, more memory", "MiB", mib_more(before, after, "coordinator")),
    ]


def measure(program, count):
    """One job's figures: task, unit, value."""
    with Job(program, count) as job:
        idle, before = measure_idle(job)
        return [("node's own view as JSON", "bytes", job.node_bytes),
                *measure_dashboard(job, count, before, idle), *measure_viewers(job, count)]


def status_case(_scratch, runs):
    program = os.path.join(build("//tools/bench/status:status_farm"), "tools/bench/status/status_farm")
    rows = {}
    for count in COUNTS:
        for _ in range(min(runs, MAX_RUNS)):
            try:
                figures = measure(program, count)
            except (BenchError, OSError) as error:
                rows[(count, "")] = Row(f"status of {count} nodes", "ddprun", "", error=str(error))
                continue
            for task, unit, value in figures:
                row = rows.setdefault((count, task), Row(f"status of {count}: {task}", "ddprun", unit))
                row.values.append(value)
    return list(rows.values())
