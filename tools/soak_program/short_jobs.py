"""Short jobs, one after the other, each with an end that is promised: exit codes, starts, nothing left."""

import os
import random
import shutil
import signal
import threading
import time

from events import Events
from processes import Program, kill, until

LIMIT_S = 90
CONF = "join_timeout=60,last_call_timeout=1"


class ShortJob:
    """Nodes of one worker each, which share a port."""

    def __init__(self, lane, name):
        self.lane, self.settings, self.name = lane, lane.settings, name
        self.folder = os.path.join(lane.folder, name)
        os.makedirs(os.path.join(self.folder, "control"), mode=0o700)
        self.env = {**self.settings.env, "DDPRUN_CONTROL_DIR": os.path.join(self.folder, "control")}
        self.events = Events(self.folder, lambda text: self.broke(text))
        self.port = self.settings.take_port()
        self.agents = []

    def broke(self, text):
        said = "\n".join(agent.said(800) for agent in self.agents)
        self.lane.ledger.broke(f"{self.name}: {text}\n{said}")

    def start(self, nodes, max_restarts=0, worker=(), started=None):
        for i in range(started or nodes):
            options = ["--standalone"] if nodes == 1 else [
                f"--nnodes={nodes}", f"--rdzv-id={self.name}", "--rdzv-backend=c10d",
                f"--rdzv-endpoint=127.0.0.1:{self.port}", f"--rdzv-conf={CONF},is_host={int(i == 0)}"]
            if nodes > 1:
                options += self.settings.extra
            command = [self.settings.ddprun, *options, "--nproc-per-node=2", f"--max-restarts={max_restarts}",
                       self.settings.worker, f"folder={self.folder}", *worker]
            self.agents.append(Program(command, {**self.env, "SOAK_NODE": f"node{i}"},
                                       os.path.join(self.folder, f"node{i}.log")))
            self.lane.agent_pids.append(self.agents[-1].pid)

    def await_steps(self):
        def is_well():
            self.events.read()
            return len(self.events.workers()) == 2 * len(self.agents) and self.events.is_whole()
        if not until(is_well, LIMIT_S):
            self.broke(f"not all ranks stepped within {LIMIT_S} s")

    def touch(self, name):
        open(os.path.join(self.folder, name), "w", encoding="utf-8").close()

    def expect(self, *codes):
        """The agents end with these codes, in their order."""
        ended = [agent.wait(LIMIT_S) for agent in self.agents]
        if ended != list(codes):
            self.broke(f"the agents ended with {ended} instead of {list(codes)}")

    def end(self):
        for agent in self.agents:
            if agent.is_running():
                self.broke("an agent still runs")
                agent.end()
            self.lane.ledger.remains(self.name, agent.left())
        self.events.read()


def success(job, rng):
    nodes = rng.choice([1, 2, 3])
    job.start(nodes)
    job.await_steps()
    job.touch("go")
    job.expect(*[0] * nodes)


def worker_code(job, rng):
    """A rank fails in every attempt: the job ends with its code when the budget is spent."""
    nodes, restarts, code = rng.choice([1, 2]), rng.choice([0, 1, 2]), rng.randint(1, 255)
    job.start(nodes, restarts, [f"ends={rng.randrange(2 * nodes)}.{code}"])
    job.expect(*[code] * nodes)
    job.events.read()
    counts = sorted({worker.restart for ranks in job.events.rounds.values() for worker in ranks.values()})
    if counts != list(range(restarts + 1)):
        job.broke(f"--max-restarts={restarts}, and the attempts were {counts}")


def worker_signal(job, rng):
    nodes, number = rng.choice([1, 2]), rng.choice([signal.SIGKILL, signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS])
    job.start(nodes, 0, [f"ends={rng.randrange(2 * nodes)}.{-number}"])
    job.expect(*[128 + number] * nodes)


def all_told_to_stop(job, rng):
    nodes = rng.choice([1, 2])
    job.start(nodes)
    job.await_steps()
    for agent in job.agents:
        agent.signal(signal.SIGTERM)
    job.expect(*[143] * nodes)


def one_leaves(job, _rng):
    job.start(2)
    job.await_steps()
    job.agents[1].signal(signal.SIGTERM)
    job.expect(121, 143)


def one_is_killed(job, rng):
    job.start(2)
    job.await_steps()
    killed = rng.randrange(2)
    job.agents[killed].signal(signal.SIGKILL)
    job.expect(*[137 if i == killed else 121 for i in range(2)])


def told_to_stop_while_forming(job, _rng):
    """One of two nodes waits for the other, which never comes."""
    job.start(2, started=1)
    until(lambda: "waiting for 1 more" in job.agents[0].said(), LIMIT_S)
    job.agents[0].signal(signal.SIGINT)
    job.expect(130)


def failure_while_host_is_stopped(job, rng):
    job.start(2, 0, ["ends=3.57", "late=1"])
    job.await_steps()
    kill(job.agents[0].pid, signal.SIGSTOP)
    job.touch("fail")
    time.sleep(rng.uniform(0.2, 2))
    kill(job.agents[0].pid, signal.SIGCONT)
    job.expect(57, 57)


ENDS = [success, worker_code, worker_signal, all_told_to_stop, one_leaves, one_is_killed, told_to_stop_while_forming,
        failure_while_host_is_stopped]


class ShortJobs(threading.Thread):
    def __init__(self, settings, ledger, seed, until_s):
        super().__init__(daemon=True)
        self.settings, self.ledger, self.until_s, self.name = settings, ledger, until_s, "short"
        self.random = random.Random(f"{seed} short")
        self.folder = os.path.join(settings.scratch, "short")
        self.agent_pids = []
        os.makedirs(self.folder)

    def run(self):
        number = 0
        while time.monotonic() - self.ledger.began < self.until_s:
            number += 1
            end = self.random.choice(ENDS)
            job = ShortJob(self, f"{number}.{end.__name__}")
            found = len(self.ledger.breaks)
            try:
                end(job, self.random)
            except Exception as error:  # whatever it is, the soak must tell and end
                job.broke(f"the soak itself failed: {type(error).__name__}: {error}")
            finally:
                job.end()
            self.ledger.ending(end.__name__)
            if len(self.ledger.breaks) == found:
                shutil.rmtree(job.folder, ignore_errors=True)
            time.sleep(self.random.uniform(0.5, 3))
