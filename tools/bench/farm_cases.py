"""A farm of real agents on this machine, one worker each: how the rendezvous scales with nodes.

The first agent hosts the coordinator. A second ddprun, say one built before a change, is measured in turns
with ours when $DDPRUN_BENCH_OTHER names it, and ours with a token.
"""

import os
import signal
import subprocess
import time

from harness import BenchError, Row, wait_until
from launcher_cases import DDPRUN, ENV, c_worker, free_port, status_mib

COUNTS = (64, 256, 1024)
LIMIT_S = 120
# A farm of a thousand agents loads the machine for seconds: a few runs tell what there is to tell.
MAX_RUNS = 3


class Farm:
    """`count` agents of one job. Ends them all on exit."""

    def __init__(self, scratch, program, count, env):
        self.count = count
        self.marks = os.path.join(scratch, f"farm.{time.monotonic_ns()}")
        self.log = open(self.marks + ".log", "w", encoding="utf-8")
        command = [program, f"--nnodes={count}", "--nproc-per-node=1", "--rdzv-id=farm", "--rdzv-backend=c10d",
                   f"--rdzv-endpoint=127.0.0.1:{free_port()}", *c_worker(scratch), self.marks]
        self.agents = []
        for _ in range(count):
            self.agents.append(subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
                                                env={**ENV, **env}))
        self.started_ns = time.monotonic_ns()

    def workers(self):
        """(pid, ns) of the workers that run."""
        ended = next((agent for agent in self.agents if agent.poll() is not None), None)
        if ended:
            raise BenchError(f"an agent of {self.count} ended with {ended.returncode} before all ran, see {self.log.name}")
        if not os.path.exists(self.marks):
            return []
        with open(self.marks, encoding="utf-8") as marks:
            fields = [line.split() for line in marks.read().split("\n")[:-1]]
        return [(int(pid), int(ns)) for _, _, pid, ns in fields]

    def start_s(self):
        """From the last agent's start to the last worker's first line."""
        workers = wait_until(lambda: len(self.workers()) >= self.count and self.workers(),
                             f"{self.count} workers", LIMIT_S)
        return (max(ns for _, ns in workers) - self.started_ns) / 1e9

    def host(self):
        """The pid of the agent that listens: it has the most descriptors, a connection for each agent."""
        return max(self.agents, key=lambda agent: len(os.listdir(f"/proc/{agent.pid}/fd"))).pid

    def end_s(self):
        """From the death of a worker to the end of the last agent."""
        pid, _ = self.workers()[self.count // 2]
        killed = time.monotonic()
        os.kill(pid, signal.SIGKILL)
        codes = {agent.wait(LIMIT_S) for agent in self.agents}
        seconds = time.monotonic() - killed
        if codes != {137}:
            raise BenchError(f"the agents of {self.count} ended with {sorted(codes)} instead of 137, see {self.log.name}")
        return seconds

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for ending in (signal.SIGTERM, signal.SIGKILL):
            for agent in self.agents:
                if agent.poll() is None:
                    agent.send_signal(ending)
            deadline = time.monotonic() + 20
            for agent in self.agents:
                try:
                    agent.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    pass
        self.log.close()


def cpu_s(pid):
    """Processor time of a process so far, user and system."""
    with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
        fields = stat.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def measure(scratch, program, count, env):
    """One farm's figures: task, unit, value."""
    with Farm(scratch, program, count, env) as farm:
        start = farm.start_s()
        host = farm.host()
        cpu, memory = cpu_s(host), status_mib(host, "VmHWM")
        return [("last start to last worker", "s", start), ("coordinator's agent, CPU until then", "s", cpu),
                ("coordinator's agent, peak memory", "MiB", memory),
                ("worker death to last agent's end", "s", farm.end_s())]


def farm_case(scratch, runs):
    programs = {"ddprun": (DDPRUN, {}), "ddprun, token": (DDPRUN, {"DDPRUN_TOKEN": "t" * 64})}
    if os.environ.get("DDPRUN_BENCH_OTHER"):
        programs["other ddprun"] = (os.environ["DDPRUN_BENCH_OTHER"], {})
    rows = {}
    for count in COUNTS:
        failed = set()
        for _ in range(min(runs, MAX_RUNS)):
            for who, (program, env) in programs.items():
                if who in failed:
                    continue
                try:
                    figures = measure(scratch, program, count, env)
                except (BenchError, OSError, subprocess.TimeoutExpired) as error:
                    failed.add(who)
                    rows[(count, "farm", who)] = Row(f"farm of {count}", who, "", error=str(error))
                    continue
                for task, unit, value in figures:
                    row = rows.setdefault((count, task, who), Row(f"farm of {count}: {task}", who, unit))
                    row.values.append(value)
    return list(rows.values())
