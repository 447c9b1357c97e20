"""The launcher: --help, start-up, memory, a killed worker, two nodes."""

import os
import shutil
import signal
import subprocess
import time

from harness import DIST, BenchError, Row, Timer, compile_c, interleave, wait_until

DDPRUN = os.path.join(DIST, "ddprun")


def help_case(scratch, runs):
    timer = Timer(scratch)
    competitors = {"ddprun": lambda: timer([DDPRUN, "--help"])[0] * 1e3}
    if shutil.which("torchrun"):
        competitors["torchrun"] = lambda: timer(["torchrun", "--help"])[0] * 1e3
    return interleave("--help", "ms", competitors, runs)


def start_case(scratch, runs):
    """N x `true` to the end of the launcher."""
    timer, loop = Timer(scratch), compile_c(scratch, "spawn_loop")
    rows = []
    for count in (4, 64):
        n = str(count)
        commands = {
            "ddprun": [DDPRUN, "--standalone", "--nproc_per_node=" + n, "true"],
            "bare spawn loop": [loop, n, "true"],
            "mpich hydra": ["mpiexec.hydra", "-n", n, "true"],
        }
        # With 64 processes on few cores Open MPI hangs at times.
        if count == 4:
            commands["Open MPI"] = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", n, "true"]
        if shutil.which("torchrun") and count == 4:
            commands["torchrun"] = ["torchrun", "--standalone", "--nproc_per_node=" + n, "--no_python", "true"]
        competitors = {who: lambda command=command: timer(command, 30)[0] * 1e3 for who, command in commands.items()}
        rows += interleave(f"start {count} x true", "ms", competitors, runs)
    return rows


class Job:
    """Some ddprun processes whose workers leave marks in a file. Ends them on exit."""

    def __init__(self, scratch, commands):
        self.marks = os.path.join(scratch, f"marks.{time.monotonic_ns()}")
        worker = [compile_c(scratch, "mark_worker"), self.marks]
        self.log = open(self.marks + ".log", "w", encoding="utf-8")
        self.start_ns = time.monotonic_ns()
        self.agents = [subprocess.Popen(command + worker, stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
                       for command in commands]

    def lines(self, restart=0):
        """(rank, pid, ns) of the workers of one attempt."""
        if any(agent.poll() is not None for agent in self.agents):
            raise BenchError(f"ddprun ended early, see {self.log.name}")
        if not os.path.exists(self.marks):
            return []
        with open(self.marks, encoding="utf-8") as marks:
            fields = [line.split() for line in marks.read().split("\n")[:-1]]
        return [(int(rank), int(pid), int(ns)) for rank, count, pid, ns in fields if int(count) == restart]

    def wait_for(self, count, restart=0):
        return wait_until(lambda: len(self.lines(restart)) >= count and self.lines(restart),
                          f"{count} workers of attempt {restart}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for agent in self.agents:
            if agent.poll() is None:
                agent.send_signal(signal.SIGTERM)
        for agent in self.agents:
            try:
                agent.wait(20)
            except subprocess.TimeoutExpired:
                agent.kill()
                agent.wait()
        self.log.close()


def standalone(count, *options):
    return [DDPRUN, "--standalone", f"--nproc_per_node={count}", *options]


def memory_case(scratch, runs):
    """Resident memory of the agent while four workers run, and of its other processes."""
    def field(pid, name):
        with open(f"/proc/{pid}/status", encoding="utf-8") as status:
            return next(int(line.split()[1]) for line in status if line.startswith(name + ":")) / 1024
    agents, peaks, helpers = [], [], []
    for _ in range(runs):
        try:
            with Job(scratch, [standalone(4)]) as job:
                workers = {pid for _, pid, _ in job.wait_for(4)}
                pid = job.agents[0].pid
                agents.append(field(pid, "VmRSS"))
                peaks.append(field(pid, "VmHWM"))
                with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
                    others = [int(child) for child in children.read().split() if int(child) not in workers]
                helpers.append(sum(field(other, "VmRSS") for other in others))
        except (BenchError, OSError) as error:
            return [Row("agent memory", "ddprun", "MiB", error=str(error))]
    return [Row("agent memory", "ddprun", "MiB", agents, note="resident, 4 workers"),
            Row("agent memory, peak", "ddprun", "MiB", peaks),
            Row("agent memory, helpers", "ddprun", "MiB", helpers, note="the guardian; pages shared with the agent count")]


def restart_case(scratch, runs):
    """kill -9 of one of four C workers to the last of the four restarted workers' first lines."""
    def once():
        with Job(scratch, [standalone(4, "--max_restarts=1")]) as job:
            victim = sorted(job.wait_for(4))[1][1]
            killed_ns = time.monotonic_ns()
            os.kill(victim, signal.SIGKILL)
            return (max(ns for _, _, ns in job.wait_for(4, restart=1)) - killed_ns) / 1e6
    return interleave("worker killed -> 4 restarted", "ms", {"ddprun": once}, runs)


def two_nodes_case(scratch, runs):
    """Start of two agents on this machine to the last of 2 x 2 C workers' first lines."""
    def once():
        port = free_port()
        command = [DDPRUN, "--nnodes=2", "--nproc_per_node=2", "--rdzv_id=bench", "--rdzv_backend=c10d",
                   f"--rdzv_endpoint=127.0.0.1:{port}"]
        with Job(scratch, [command, command]) as job:
            return (max(ns for _, _, ns in job.wait_for(4)) - job.start_ns) / 1e6
    return interleave("two agents -> 2 x 2 workers", "ms", {"ddprun": once}, runs)


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
