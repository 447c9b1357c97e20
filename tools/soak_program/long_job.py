"""A long elastic job, whose parts are killed, stopped and cut off one after the other.

Three nodes of two workers each talk through proxies of their own. The kinds of jobs:

  apart     the coordinator runs apart and is killed as well
  hosted    the first node's agent is the coordinator, and is not killed, so that what it uses over hours can be seen
  elected   any agent may be the coordinator, as etcd says, whose members are killed and stopped as well; the first
            node's agent is not killed, as above
  unspared  the same, and any agent is

The proxies stand before the coordinator's port, or with etcd before its members, as then any agent may be the
coordinator, on a port of the moment.
"""

import os
import random
import shutil
import threading
import time

from etcd import Etcd
from events import Events
from faults import FAULTS
from processes import Program, listens_at, until, use_of
from proxy import Proxy

NODES = 3
WORKERS = 2
EVICT_S = 6
JOIN_S = 120
RECOVER_S = 90  # this machine may be busy
SAMPLE_S = 5
CONF = f"join_timeout={JOIN_S},last_call_timeout=1,keep_alive_interval=1,keep_alive_max_attempt={EVICT_S}"


class Node:
    """One agent after the other under one name."""

    def __init__(self, job, index):
        self.job, self.name, self.index = job, f"node{index}", index
        self.proxies = []
        self.agent = None

    def start(self):
        job = self.job
        options = [f"--nnodes=1:{NODES}", f"--nproc-per-node={WORKERS}", "--max-restarts=1000000",
                   f"--rdzv-id={job.name}", *self._where()]
        if job.log_dir:
            options += [f"--log-dir={job.log_dir}/{self.name}", "--redirects=1"]
        self.agent = Program([job.settings.ddprun, *options, *job.settings.extra, job.settings.worker,
                              f"folder={job.folder}"],
                             {**job.env, "SOAK_NODE": self.name}, os.path.join(job.folder, f"{self.name}.log"))
        job.agent_pids.append(self.agent.pid)

    def _where(self):
        through = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
        if self.job.has_etcd:
            return ["--rdzv-backend=etcd", f"--rdzv-endpoint={through}", f"--rdzv-conf={CONF}"]
        hosts = self.job.kind == "hosted" and self.index == 0
        return ["--rdzv-backend=c10d", f"--rdzv-conf={CONF},is_host={int(hosts)}",
                f"--rdzv-endpoint={f'127.0.0.1:{self.job.port}' if hosts else through}"]

    def workers(self):
        return [worker for worker in self.job.events.workers() if worker.node == self.name]


class LongJob(threading.Thread):
    def __init__(self, settings, ledger, kind, seed, until_s):
        super().__init__(daemon=True)
        self.settings, self.ledger, self.kind, self.name = settings, ledger, kind, kind
        self.has_etcd = kind in ("elected", "unspared")
        self.random = random.Random(f"{seed} {self.name}")
        self.until_s = until_s
        self.folder = os.path.join(settings.scratch, self.name)
        os.makedirs(os.path.join(self.folder, "control"), mode=0o700)
        self.log_dir = os.path.join(settings.small_disk, self.name) if settings.small_disk else None
        self.env = {**settings.env, "DDPRUN_CONTROL_DIR": os.path.join(self.folder, "control")}
        self.port = settings.take_port()
        self.etcd = None
        # With a token the workers of each node reach the store by a door of their agent's, in TLS.
        same = ("world", "restart") if "DDPRUN_TOKEN" in settings.env else ("world", "restart", "store")
        self.events = Events(self.folder, lambda text: ledger.broke(f"{self.name}: {text}"), same)
        self.charged = 0  # faults that may have cost a restart
        self.agent_pids = []
        self.coordinator = None
        self.nodes = [Node(self, i) for i in range(NODES)]
        self.sampled_at = 0.0
        self.held_s = 0.0
        self.last_fault = "the start"

    def run(self):
        try:
            self._run()
        except Exception as error:  # whatever it is, the soak must tell and end
            self.ledger.broke(f"{self.name}: the soak itself failed: {type(error).__name__}: {error}")
        finally:
            self._end_all()

    def _run(self):
        if self.has_etcd:
            self.etcd = Etcd(os.path.join(self.folder, "etcd"), self.settings.env, self.settings.take_port)
        ports = self.etcd.ports if self.etcd else [self.port]
        for node in self.nodes:
            node.proxies = [Proxy(port, self.random.random()) for port in ports]
        if self.kind == "apart":
            self.start_coordinator()
        for node in self.nodes:
            node.start()
        if not self.recover("the start", NODES * WORKERS):
            return
        while time.monotonic() - self.ledger.began < self.until_s:
            self.pause(self.random.uniform(0.5, 4))
            chosen = self.random.choice([fault for fault in FAULTS if fault.fits(self)])
            if not self.do(chosen):
                return
        self.finish()

    def do(self, fault):
        """One fault, and what must hold behind it. False: the job is lost."""
        self.await_host(fault)
        self.events.read()
        before = {worker.pid for worker in self.events.workers()}
        self.ledger.fault(fault.name)
        self.last_fault = fault.name
        self.charged += fault.charges
        began, self.held_s = time.monotonic(), 0.0
        complaint = fault.do(self)
        held_s = self.held_s
        if complaint:
            self.ledger.broke(f"{self.name}: {fault.name}: {complaint}")
        if not fault.starts_workers_anew:
            self.await_host(fault)
        if not self.recover(fault.name, NODES * WORKERS, before if fault.starts_workers_anew else None):
            return False
        if fault.starts_workers_anew:
            self.ledger.recovered(fault.name, time.monotonic() - began - held_s)
        elif before != {worker.pid for worker in self.events.workers()}:
            self.ledger.broke(f"{self.name}: {fault.name}: it started a new round {self.events.newest}\n{self.said()}")
        if self.events.restarts > self.charged:
            self.ledger.broke(f"{self.name}: {fault.name}: {self.events.restarts} restarts are counted, of at most "
                              f"{self.charged}")
            self.charged = self.events.restarts
        self.check_agents()
        return True

    def host(self):
        """The node whose agent is the coordinator; None: nobody's, just now."""
        if not self.has_etcd:
            return self.nodes[0] if self.kind == "hosted" else None
        port = self.etcd.leader_port(self.name)
        return next((node for node in self.nodes if port and listens_at(node.agent.pid, port)), None)

    def victims(self):
        """Nodes whose agent may end: not the one that is watched for as long as the job lasts."""
        return self.nodes if self.kind == "unspared" else self.nodes[1:]

    def coordinator_port(self):
        return self.etcd.leader_port(self.name) if self.has_etcd else self.port

    def await_host(self, fault):
        """With etcd: a fault is judged, and the next one done, when an agent is the coordinator."""
        if self.has_etcd and not until(self.host, RECOVER_S, 0.2):
            self.ledger.broke(f"{self.name}: {fault.name}: nobody leads the job within {RECOVER_S} s\n{self.said()}")

    def recover(self, what, world, gone=None):
        """Waits until all ranks of a whole round step, none of which is in `gone`."""
        def is_well():
            self.events.read()
            self.sample()
            workers = self.events.workers()
            return (len(workers) == world and self.events.is_whole() and
                    not (gone and gone & {worker.pid for worker in workers}))

        if until(is_well, RECOVER_S):
            return True
        self.ledger.broke(f"{self.name}: {what}: no round of {world} ranks steps within {RECOVER_S} s; the newest is "
                          f"{self.events.newest} with {len(self.events.workers())}\n{self.said()}")
        return False

    def pause(self, seconds):
        """Part of a fault that is no part of the recovery from it."""
        self.held_s += seconds
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self.sample()
            time.sleep(0.1)

    def sample(self):
        now = time.monotonic()
        if self.kind == "unspared" or now - self.sampled_at < SAMPLE_S:
            return
        self.sampled_at = now
        agent = self.nodes[0].agent
        self.ledger.sample(f"{self.name}: node0's agent", use_of(agent.pid))
        guardian = agent.guardian()
        if guardian:
            self.ledger.sample(f"{self.name}: its guardian", use_of(guardian))

    def check_agents(self):
        for node in self.nodes:
            if not node.agent.is_running():
                code = node.agent.wait(0)
                self.ledger.broke(f"{self.name}: {node.name} ended with {code} by itself after {self.last_fault}:\n"
                                  f"{node.agent.said()}")
                self.ledger.remains(f"{self.name}: {node.name}", node.agent.left())
                node.start()

    def start_coordinator(self):
        arguments = ["coordinator", f"--bind=127.0.0.1:{self.port}", f"--rdzv-id={self.name}"]
        self.coordinator = Program([self.settings.ddprun, *arguments], self.env,
                                   os.path.join(self.folder, "coordinator.log"))

    def finish(self):
        """All ranks are told to end: every agent must end with 0, and nothing be left."""
        open(os.path.join(self.folder, "go"), "w", encoding="utf-8").close()
        programs = [("the coordinator", self.coordinator)] if self.coordinator else []
        for who, program in [(node.name, node.agent) for node in self.nodes] + programs:
            code = program.wait(60)
            if code != 0:
                self.ledger.broke(f"{self.name}: all ranks ended well, and {who} ended with {code}:\n{program.said()}")
            self.ledger.remains(f"{self.name}: {who}", program.left())
        if self.etcd:
            self.ledger.remains(f"{self.name}: etcd", self.etcd.remains(self.name, JOIN_S + 10))
        self.events.read()
        ranks = len(self.events.workers())
        if self.events.done != ranks:
            self.ledger.broke(f"{self.name}: {self.events.done} of {ranks} ranks came to their end")

    def said(self):
        programs = [node.agent for node in self.nodes] + ([self.coordinator] if self.coordinator else [])
        return "\n".join(f"--- {program.log}\n{program.said(1200)}" for program in programs if program)

    def _end_all(self):
        for program in [node.agent for node in self.nodes] + [self.coordinator]:
            if program:
                program.end()
        for proxy in [proxy for node in self.nodes for proxy in node.proxies]:
            proxy.close()
        if self.etcd:
            self.etcd.end()
        self.ledger.add(rounds=len(self.events.rounds), steps=self.events.steps)
        if self.log_dir:
            shutil.rmtree(self.log_dir, ignore_errors=True)
