"""Coordinators that die or stand still: until another one, or the same one anew, serves the agents."""

import os
import signal
import subprocess
import sys
import time

from fault_cases import Fault, Job, cell
from harness import REPO, BenchError, Row, wait_until
from launcher_cases import DDPRUN, free_port

sys.path.append(os.path.join(REPO, "tools", "soak_program"))

from etcd import Etcd  # pylint: disable=wrong-import-position

NODES = 3
LIMIT_S = 60
HOSTS, REACHED, BACK = "coordinator hosted here", "coordinator reached", "coordinator back"
NO_ETCD = "no etcd on the PATH; tools/setup --with-etcd installs it"
JOB = Fault("", "", str(NODES), 0, "", 0, False, 0, 0)
# What is measured, the task's name and its limit as `docs/reliability.md` has them.
APART = "F14 coordinator apart SIGKILL, a new one at once: all agents are back"
KILLED = "F15 hosting agent SIGKILL"
STOPPED = "F16 hosting agent SIGSTOP"
BOTH = "F19 hosting agent SIGSTOP and etcd's leader SIGKILL"
ELSEWHERE, ALL_BACK = "another agent hosts", "all agents are back"
LIMITS = {KILLED: "3 s", STOPPED: "the lease (3 s) and 1 s", BOTH: "8 s"}


class LoggedJob(Job):
    """Agents with a log each."""

    def __init__(self, scratch, options):
        super().__init__(scratch, [DDPRUN], JOB, {"DDPRUN_LOG_LEVEL": "info"})
        self.launcher += options
        self.logs = {}

    def start(self, node):
        path = f"{self.marks_path}.agent{len(self.logs)}.log"
        with open(path, "wb") as log:
            agent = subprocess.Popen([*self.launcher, self.worker, self.marks_path], stdin=subprocess.DEVNULL,
                                     stdout=log, stderr=log, env=self.env)
        self.logs[agent] = path
        return agent

    def times_said(self, agent, *texts):
        """In how many lines it says all of them."""
        with open(self.logs[agent], encoding="utf-8", errors="replace") as log:
            return sum(all(text in line for text in texts) for line in log)

    def all_said(self, text):
        return {agent: self.times_said(agent, text) for agent in self.agents}

    def await_more(self, text, before, are_all):
        """Which of these agents say it once more; waits for one, or for all."""
        def look():
            more = [agent for agent, count in before.items() if self.times_said(agent, text) > count]
            return more if len(more) >= (len(before) if are_all else 1) else None
        who = "all" if are_all else "one"
        return wait_until(look, f"{text!r} from {who} of {len(before)} agents, see {self.marks_path}*", LIMIT_S)

    def pids(self):
        return {mark.pid for mark in self.await_round(NODES, 0)}


class ElectedJob(LoggedJob):
    """A job whose agents agree by etcd."""

    def __init__(self, scratch, etcd):
        endpoints = ",".join(f"127.0.0.1:{port}" for port in etcd.ports)
        # An id of its own: it does not wait for nodes of the one before.
        self.etcd, self.run = etcd, str(time.monotonic_ns())
        super().__init__(scratch, ["--rdzv-backend=etcd", f"--rdzv-endpoint={endpoints}", f"--rdzv-id={self.run}"])

    def hosting(self):
        """The agent whose coordinator leads, by etcd's word; None: nobody's."""
        place = f"at=127.0.0.1:{self.etcd.leader_port(self.run)}\n"
        return next((agent for agent in self.agents if self.times_said(agent, place, HOSTS)), None)

    def fail(self, fault):
        """Makes it happen once; seconds until another agent hosts, and until all that are left are back."""
        before = self.pids()
        old, leading = wait_until(self.hosting, "an agent hosts", LIMIT_S), None
        others = [agent for agent in self.agents if agent is not old]
        hosts = {agent: self.times_said(agent, HOSTS) for agent in others}
        back = {agent: self.times_said(agent, BACK) for agent in others}
        if fault == BOTH:
            leading = wait_until(self.etcd.leading, "etcd has a leader", LIMIT_S)
        since = time.monotonic()
        if leading:
            leading.signal(signal.SIGKILL)
        old.send_signal(signal.SIGKILL if fault == KILLED else signal.SIGSTOP)
        self.await_more(HOSTS, hosts, False)
        elsewhere_s = time.monotonic() - since
        self.await_more(BACK, back, True)
        back_s = time.monotonic() - since
        if fault == KILLED:
            return elsewhere_s, back_s
        known = {old: self.times_said(old, REACHED)}
        old.send_signal(signal.SIGCONT)
        self.await_more(REACHED, known, True)
        if leading:
            leading.wait(LIMIT_S)
            index = self.etcd.members.index(leading)
            self.etcd.start_again(index)
            wait_until(lambda: self.etcd.ctl("put", "bench", "x", ports=[self.etcd.ports[index]]) == "OK\n",
                       "the member takes writes", LIMIT_S)
        if self.pids() != before:
            raise BenchError(f"a worker was disturbed, see {self.marks_path}*")
        return elsewhere_s, back_s


def take_over(scratch, etcd, fault, times, rows):
    """So often in one job."""
    with ElectedJob(scratch, etcd) as job:
        for _ in range(times):
            for row, seconds in zip(rows, job.fail(fault)):
                row.values.append(seconds)


def elected_rows(scratch, runs):
    rows = {fault: [Row(f"{fault}: {what}", "ddprun", "s") for what in (ELSEWHERE, ALL_BACK)]
            for fault in LIMITS}
    env = {**os.environ, "ETCDCTL_API": "3"}
    try:
        etcd = Etcd(os.path.join(scratch, "etcd"), env, free_port)
    except (FileNotFoundError, RuntimeError) as error:
        why = NO_ETCD if isinstance(error, FileNotFoundError) else str(error)
        return [Row(f"{KILLED}: {ELSEWHERE}", "ddprun", "s", error=why)]
    try:
        for fault, jobs, times in ((KILLED, 2 * runs, 1), (STOPPED, 1, runs * 4 // 3), (BOTH, 1, runs * 2 // 3)):
            try:
                for _ in range(jobs):
                    take_over(scratch, etcd, fault, max(1, times), rows[fault])
            except BenchError as error:
                rows[fault][0].error = str(error)
    finally:
        etcd.end()
    return [row for pair in rows.values() for row in pair if row.values or row.error]


def apart_row(scratch, runs):
    row = Row(APART, "ddprun", "s")
    port = free_port()

    def coordinator(log):
        return subprocess.Popen([DDPRUN, "coordinator", f"--bind=127.0.0.1:{port}", "--rdzv-id=bench"],
                                stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    with open(os.path.join(scratch, "coordinator.log"), "wb") as log:
        serving = coordinator(log)
        try:
            with LoggedJob(scratch, [f"--rdzv-endpoint=127.0.0.1:{port}", "--rdzv-conf=is_host=0"]) as job:
                before = job.pids()
                for _ in range(2 * runs):
                    back = job.all_said(BACK)
                    since = time.monotonic()
                    serving.kill()
                    serving.wait()
                    serving = coordinator(log)
                    job.await_more(BACK, back, True)
                    row.values.append(time.monotonic() - since)
                if job.pids() != before:
                    raise BenchError("a worker was disturbed")
        except BenchError as error:
            row.error, row.values = str(error), []
        finally:
            serving.kill()
            serving.wait()
    return row


def takeovers_case(scratch, runs):
    return [apart_row(scratch, runs), *elected_rows(scratch, runs)]


def markdown(rows):
    """The rows that one etcd gives; the table of docs/reliability.md has those of two beside each other."""
    lines = ["| | fault | until | n | seconds | limit |", "|---|---|---|---|---|---|"]
    for row in rows:
        fault, until = row.task.rsplit(": ", 1)
        number, name = fault.split(" ", 1)
        limit = LIMITS.get(fault, "-") if until == ELSEWHERE else "-"
        lines.append(f"| {number} | {name} | {until} | {len(row.values)} | {row.error or cell(row)} | {limit} |")
    return "\n".join(lines)
