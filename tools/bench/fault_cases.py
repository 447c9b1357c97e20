"""Faults of a running job, beside torchrun: until the survivors' workers are told, and until all ranks run again."""

import collections
import math
import os
import random
import signal
import subprocess
import time

import hosts
from harness import DIST, NO_TORCH, BenchError, Row, compile_program, say, torchrun, wait_until
from launcher_cases import DDPRUN, ENV, free_port

PER_NODE = 2
LIMIT_S = 90
PEER = "torchrun"
# PyTorch 2.13's agents do not find the store of their workers in a round with a new agent where they
# share one, so there is a second try without.
PEER_OWN_STORE = "torchrun, TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
# The first node hosts the rendezvous, so that it is known who does.
IS_HOST = ("is_host=1", "is_host=0")

Mark = collections.namedtuple("Mark", "what rank world pid parent ns")
# `number`: of the project's fault list. `victim`: the node that it hits: `target` is that node's agent, or
# one of its workers, which gets `signal`, or its network, which is cut. `is_replaced`: by a new agent at
# once. `turns`: for each run that is asked for. `peer_s`: what the peer may take for it; it takes no part
# in further turns then; 0: it has nothing like it. `options` are both launchers', `env` their workers'.
Fault = collections.namedtuple(
    "Fault", "number name nodes victim target signal is_replaced turns peer_s options env worker",
    defaults=((), {}, "fault_worker"))
WORKER, AGENT, NETWORK = "worker", "agent", "network"
HANG_OPTIONS = ("--hang-timeout=2", "--on-hang=restart")
FAULTS = [
    Fault("F01", "worker SIGKILL, one node", "1", 0, WORKER, signal.SIGKILL, False, 4, 60),
    Fault("F01", "worker SIGKILL, two nodes", "2", 1, WORKER, signal.SIGKILL, False, 4, 60),
    Fault("F01", "worker exits with 41, two nodes", "2", 1, WORKER, signal.SIGUSR1, False, 4, 60),
    Fault("F02", f"worker SIGSTOP in an all-reduce, one node, `{' '.join(HANG_OPTIONS)}`", "1", 0, WORKER,
          signal.SIGSTOP, False, 1, 0, HANG_OPTIONS, {}, "hang_worker"),
    Fault("F03", "worker SIGKILL, one node, the other ignores SIGTERM, `--shutdown-timeout=1`", "1", 0, WORKER,
          signal.SIGKILL, False, 1, 60, ("--shutdown-timeout=1",), {"FAULT_WORKER_DEFIES": "1"}),
    Fault("F09", "agent SIGKILL, a new one at once", "2", 1, AGENT, signal.SIGKILL, True, 1, 240),
    Fault("F09", "agent SIGKILL, no new one, `--nnodes=1:2`", "1:2", 1, AGENT, signal.SIGKILL, False, 1, 60),
    Fault("F10", "agent SIGTERM, no new one, `--nnodes=1:2`", "1:2", 1, AGENT, signal.SIGTERM, False, 1, 60),
    Fault("F14", "hosting agent SIGKILL, a new one at once", "2", 0, AGENT, signal.SIGKILL, True, 1, 60),
    Fault("F21", "network of a node cut off, `--nnodes=1:2`", "1:2", 1, NETWORK, None, False, 1, 60),
]


class Job:
    """The agents of a job of one or two nodes, and what their workers have marked. Ends all on exit."""

    def __init__(self, scratch, launcher, fault, env):
        self.env = {**ENV, **env, **fault.env}
        self.marks_path = os.path.join(scratch, f"marks.{time.monotonic_ns()}")
        self.log = open(self.marks_path + ".log", "w", encoding="utf-8")
        self.worker = compile_worker(scratch, fault.worker)
        self.count = int(fault.nodes[-1])
        self.hosts = hosts.Hosts(self.count) if fault.target == NETWORK else None
        address = self.hosts.address(0) if self.hosts else "127.0.0.1"
        self.launcher = [*launcher, f"--nnodes={fault.nodes}", f"--nproc-per-node={PER_NODE}", "--max-restarts=100000",
                         "--rdzv-id=bench", "--rdzv-backend=c10d", f"--rdzv-endpoint={address}:{free_port()}",
                         *fault.options]
        self.agents, self.newest = [], None

    def __enter__(self):
        try:
            for node in range(self.count):
                self.agents.append(self.start(node))
            self.await_round(self.count, 0)
        except BaseException:  # Ctrl-C among them
            self.__exit__()
            raise
        return self

    def start(self, node):
        command = [*self.launcher, f"--rdzv-conf={IS_HOST[node]}"]
        if PEER in os.path.basename(self.launcher[0]):
            command.append("--no-python")
        if self.hosts:
            command = self.hosts.command(node) + command
        return subprocess.Popen([*command, self.worker, self.marks_path], stdin=subprocess.DEVNULL, stdout=self.log,
                                stderr=self.log, env=self.env)

    def marks(self):
        if not os.path.exists(self.marks_path):
            return []
        with open(self.marks_path, encoding="utf-8") as marks:
            fields = [line.split() for line in marks.read().split("\n")[:-1]]
        return [Mark(what, *map(int, numbers)) for what, *numbers in fields]

    def round_of(self, nodes, since_ns):
        """The marks of a round of so many nodes that has begun since then and runs, or None."""
        world = nodes * PER_NODE
        marks = self.marks()
        told = {mark.pid for mark in marks if mark.what == "told"}
        up = {mark.rank: mark for mark in marks
              if mark.what == "up" and mark.world == world and mark.ns > since_ns and mark.pid not in told}
        return list(up.values()) if len(up) == world and all(is_alive(mark.pid) for mark in up.values()) else None

    def await_round(self, nodes, since_ns):
        def look():
            for agent in self.agents:
                if agent.poll() is not None:
                    who = "the new agent" if agent is self.newest else "the agent that is left"
                    raise BenchError(f"not survived: {who} ends with {agent.returncode} "
                                     f"{(time.monotonic_ns() - since_ns) / 1e9:.1f} s later")
            return self.round_of(nodes, since_ns)
        return wait_until(look, f"a round of {nodes * PER_NODE} ranks", LIMIT_S)

    def run_fault(self, fault):
        """Makes it happen once; seconds until the survivors' workers were told, and until all ranks ran again."""
        before = self.await_round(self.count, 0)
        # Somewhere between two looks of a launcher that polls.
        time.sleep(random.uniform(0.3, 0.5))
        agent = self.agents[fault.victim]
        hit = [mark for mark in before if mark.parent == agent.pid]
        others = {mark.pid for mark in before} - ({hit[0].pid} if fault.nodes == "1" else {mark.pid for mark in hit})
        since_ns = time.monotonic_ns()
        if fault.target == WORKER:
            os.kill(hit[0].pid, fault.signal)
        elif fault.target == NETWORK:
            self.hosts.set_link(fault.victim, False)
        else:
            agent.send_signal(fault.signal)
            wait_until(lambda: agent.poll() is not None, "the end of the agent", LIMIT_S)
            del self.agents[fault.victim]
            if fault.is_replaced:
                self.newest = self.start(fault.victim)
                self.agents.insert(fault.victim, self.newest)
        after = self.await_round(len(self.agents) - (fault.target == NETWORK), since_ns)
        told = [mark.ns for mark in self.marks() if mark.what == "told" and mark.pid in others]
        if len(told) != len(others):
            raise BenchError(f"{len(others)} workers survived and {len(told)} were told, see {self.log.name}")
        left = [mark.pid for mark in hit if fault.target == AGENT and is_alive(mark.pid)]
        for pid in left:
            os.kill(pid, signal.SIGKILL)
        if fault.target == NETWORK:
            self.hosts.set_link(fault.victim, True)
        if len(self.agents) < self.count:
            self.agents.append(self.start(fault.victim))
        return (max(told) - since_ns) / 1e9, (max(mark.ns for mark in after) - since_ns) / 1e9, len(left)

    def __exit__(self, *_):
        for agent in self.agents:
            if agent.poll() is None:
                agent.terminate()
        for agent in self.agents:
            try:
                agent.wait(40)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        for pid in {mark.pid for mark in self.marks()}:
            if is_alive(pid):
                os.kill(pid, signal.SIGKILL)
        self.log.close()
        if self.hosts:
            self.hosts.remove()


def compile_worker(scratch, name):
    libraries = []
    if name == "hang_worker":
        lib = os.path.join(DIST, "lib")
        libraries = ["-I", os.path.join(DIST, "include"), os.path.join(lib, "libddp.so"), f"-Wl,-rpath,{lib}"]
    return compile_program(scratch, "process", name, libraries)


def is_alive(pid):
    """Whether a worker of ours has that pid, which may be another's by now."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as stat:
            name, state = stat.read().split("(", 1)[1].rsplit(") ", 1)
    except (FileNotFoundError, ProcessLookupError):
        return False
    return name in ("fault_worker", "hang_worker") and state[0] != "Z"


class Competitor:
    """One launcher under one kind of fault, its job kept from turn to turn."""

    def __init__(self, scratch, who, fault):
        self.scratch, self.fault, self.job = scratch, fault, None
        self.launcher = [DDPRUN] if who == "ddprun" else torchrun()
        self.env = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if who == PEER_OWN_STORE else {}
        self.limit_s = math.inf if who == "ddprun" else fault.peer_s
        self.told = Row(f"{fault.number} {fault.name}: told", who, "s")
        self.again = Row(f"{fault.number} {fault.name}: all run again", who, "s")
        self.left = 0
        self.spent_s = 0.0
        if not self.launcher:
            self.fail(NO_TORCH)

    def fail(self, why):
        for row in (self.told, self.again):
            row.error, row.values = why, []

    def turn(self):
        if self.told.error or self.spent_s > self.limit_s:
            return
        began = time.monotonic()
        try:
            if not self.job:
                self.job = Job(self.scratch, self.launcher, self.fault, self.env).__enter__()
            told_s, again_s, left = self.job.run_fault(self.fault)
        except BenchError as error:
            self.fail(str(error))
        else:
            self.told.values.append(told_s)
            self.again.values.append(again_s)
            self.left = max(self.left, left)
        self.spent_s += time.monotonic() - began

    def end(self):
        if self.job:
            self.job.__exit__()
        if self.left:
            self.again.note = f"{self.left} workers of the killed agent live on beside them"


def faults_case(scratch, runs, numbers=()):
    """`numbers`: of the faults that are tried; none: all."""
    return [row for fault in FAULTS if not numbers or fault.number in numbers
            for row in one_fault(scratch, fault, runs * fault.turns)]


def one_fault(scratch, fault, turns):
    """The rows of one fault, of all launchers in turns; none where it cannot be made."""
    if fault.target == NETWORK and hosts.why_none():
        say(f"{fault.number} is left out: {hosts.why_none()}")
        return []
    whos = ["ddprun"] + ([PEER] if fault.peer_s else [])
    if fault.is_replaced and fault.victim != 0:
        whos.append(PEER_OWN_STORE)
    competitors = [Competitor(scratch, who, fault) for who in whos]
    rows = []
    try:
        for _ in range(turns):
            for competitor in competitors:
                competitor.turn()
    finally:
        for competitor in competitors:
            competitor.end()
            rows += [competitor.told, competitor.again]
    return rows


def shown(seconds):
    if seconds >= 1:
        return f"{seconds:.1f} s"
    return f"{seconds * 1e3:.0f} ms" if seconds >= 0.01 else f"{seconds * 1e3:.1f} ms"


def cell(row):
    """Median and p99; with fewer than a hundred values the largest stands for that."""
    values = sorted(row.values)
    return f"{shown(row.median)} ({shown(values[(len(values) * 99 - 1) // 100])})" if values else "-"


def cells(told, again):
    return ["0", told.error, "-"] if told.error else [str(len(told.values)), cell(told), cell(again)]


def peer_cells(pair):
    return cells(*pair) if pair else ["0", "has nothing like it", "-"]


def markdown(rows):
    """The table of docs/reliability.md."""
    by_fault = collections.defaultdict(lambda: collections.defaultdict(list))
    for row in rows:
        by_fault[row.task.rsplit(": ", 1)[0]][row.who].append(row)
    lines = ["| | fault | n | told | all run again | torchrun: n | told | all run again |",
             "|---|---|---|---|---|---|---|---|"]
    for fault, pairs in by_fault.items():
        number, name = fault.split(" ", 1)
        both = cells(*pairs.pop("ddprun")) + peer_cells(pairs.pop(PEER, None))
        lines.append(f"| {number} | {name} | {' | '.join(both)} |")
        for who, pair in pairs.items():
            lines.append(f"| | likewise; {who} | {' | '.join(['', '', ''] + cells(*pair))} |")
    return "\n".join(lines)
