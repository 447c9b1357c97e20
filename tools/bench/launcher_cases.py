"""The launcher: --help, start-up, memory, a killed worker, two nodes."""

import os
import signal
import subprocess
import sys
import time

from harness import DIST, HERE, BenchError, Row, Timer, compile_program, interleave, torch_python, torchrun, wait_until

DDPRUN = os.path.join(DIST, "ddprun")
# The same interpreter under every launcher.
PYTHON = torch_python() or sys.executable
ENV = {**os.environ, "PYTHON_EXEC": PYTHON}
LIMIT_S = 60


def standalone(count, *options):
    return [DDPRUN, "--standalone", f"--nproc-per-node={count}", *options]


def torchrun_standalone(count, *options):
    """None without PyTorch."""
    return torchrun() and [*torchrun(), "--standalone", f"--nproc-per-node={count}", *options]


def timed(scratch, commands):
    """Competitors that run a command to its end, in ms; a command that is None stays None."""
    timer = Timer(scratch)
    return {who: command and (lambda command=command: timer(command, LIMIT_S, ENV)[0] * 1e3)
            for who, command in commands.items()}


def help_case(scratch, runs):
    commands = {"ddprun": [DDPRUN, "--help"], "torchrun": torchrun() and [*torchrun(), "--help"]}
    return interleave("--help", "ms", timed(scratch, commands), runs)


def start_beside_torchrun(scratch, runs):
    """4 x `true` to the end of the launcher, of ddprun and torchrun alone."""
    return interleave("start 4 x true", "ms", timed(scratch, {
        "ddprun": standalone(4, "true"), "torchrun": torchrun_standalone(4, "--no_python", "true")}), runs)


def start_case(scratch, runs):
    """N x `true`, and a Python script that does nothing, to the end of the launcher."""
    loop = compile_program(scratch, "process", "spawn_loop")
    rows = []
    for count in (4, 64):
        n = str(count)
        commands = {
            "ddprun": standalone(n, "true"),
            "bare spawn loop": [loop, n, "true"],
            "mpich hydra": ["mpiexec.hydra", "-n", n, "true"],
        }
        # With 64 processes on few cores Open MPI hangs at times.
        if count == 4:
            commands["Open MPI"] = ["mpirun.openmpi", "--allow-run-as-root", "--oversubscribe", "-n", n, "true"]
            commands["torchrun"] = torchrun_standalone(n, "--no-python", "true")
        rows += interleave(f"start {count} x true", "ms", timed(scratch, commands), runs)
    script = os.path.join(scratch, "nothing.py")
    with open(script, "w", encoding="utf-8"):
        pass
    commands = {"ddprun": standalone(4, script), "bare spawn loop": [loop, "4", PYTHON, "-u", script],
                "torchrun": torchrun_standalone(4, script)}
    return rows + interleave("start 4 x Python", "ms", timed(scratch, commands), runs)


def c_worker(scratch):
    return [compile_program(scratch, "process", "mark_worker")]


def python_worker():
    return [os.path.join(HERE, "process", "mark_worker.py")]


class Job:
    """Some launchers whose workers leave marks in a file. Ends them on exit."""

    def __init__(self, scratch, launchers, worker):
        self.marks = os.path.join(scratch, f"marks.{time.monotonic_ns()}")
        self.log = open(self.marks + ".log", "w", encoding="utf-8")
        self.start_ns = time.monotonic_ns()
        self.agents = [
            subprocess.Popen([*launcher, *worker, self.marks], stdin=subprocess.DEVNULL, stdout=self.log,
                             stderr=self.log, env={**ENV, "RANK": "0"})  # for workers without a launcher
            for launcher in launchers]

    def lines(self, restart=0):
        """(rank, pid, ns) of the workers of one attempt."""
        if any(agent.poll() is not None for agent in self.agents):
            raise BenchError(f"the launcher ended early, see {self.log.name}")
        if not os.path.exists(self.marks):
            return []
        with open(self.marks, encoding="utf-8") as marks:
            fields = [line.split() for line in marks.read().split("\n")[:-1]]
        return [(int(rank), int(pid), int(ns)) for rank, count, pid, ns in fields if int(count) == restart]

    def wait_for(self, count, restart=0):
        return wait_until(lambda: len(self.lines(restart)) >= count and self.lines(restart),
                          f"{count} workers of attempt {restart}", LIMIT_S)

    def last_line_ms(self, count, since_ns, restart=0):
        return (max(ns for _, _, ns in self.wait_for(count, restart)) - since_ns) / 1e6

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


def status_mib(pid, name):
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        return next(int(line.split()[1]) for line in status if line.startswith(name + ":")) / 1024


def memory_case(scratch, runs):
    """Resident memory of the agent while four workers run, and of its other processes."""
    launchers = {"ddprun": standalone(4), "torchrun": torchrun_standalone(4, "--no-python")}
    peaks, helpers = {}, {}

    def measure(who, launcher):
        with Job(scratch, [launcher], c_worker(scratch)) as job:
            workers = {pid for _, pid, _ in job.wait_for(4)}
            pid = job.agents[0].pid
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as children:
                others = [int(child) for child in children.read().split() if int(child) not in workers]
            resident = status_mib(pid, "VmRSS")
            peaks.setdefault(who, []).append(status_mib(pid, "VmHWM"))
            helpers.setdefault(who, []).append(sum(status_mib(other, "VmRSS") for other in others))
            return resident

    competitors = {who: launcher and (lambda who=who, launcher=launcher: measure(who, launcher))
                   for who, launcher in launchers.items()}
    rows = interleave("agent memory", "MiB", competitors, runs)
    rows[0].note = "resident, 4 workers"
    rows += [Row("agent memory, peak", row.who, "MiB", peaks[row.who][1:]) for row in rows if row.values]
    if rows[0].values:
        rows.append(Row("agent memory, helpers", "ddprun", "MiB", helpers["ddprun"][1:],
                        note="the guardian; pages shared with the agent count"))
    return rows


def bare_python_workers(scratch, count):
    """The floor: as many workers at once without a launcher, to the last one's line."""
    loop = compile_program(scratch, "process", "spawn_loop")
    with Job(scratch, [[loop, str(count), PYTHON, "-u"]], python_worker()) as job:
        elapsed_ms = job.last_line_ms(count, job.start_ns)
        for _, pid, _ in job.lines():
            os.kill(pid, signal.SIGKILL)
        return elapsed_ms


def restart_case(scratch, runs):
    """kill -9 of one of four workers to the last of the four restarted workers' first lines."""
    def once(launcher, worker):
        with Job(scratch, [launcher], worker) as job:
            victim = sorted(job.wait_for(4))[1][1]
            killed_ns = time.monotonic_ns()
            os.kill(victim, signal.SIGKILL)
            return job.last_line_ms(4, killed_ns, restart=1)

    ours, theirs = standalone(4, "--max-restarts=1"), torchrun_standalone(4, "--max-restarts=1")
    rows = interleave("C worker killed -> 4 restarted", "ms",
                      {"ddprun": lambda: once(ours, c_worker(scratch))}, runs)
    return rows + interleave("Python worker killed -> 4 restarted", "ms", {
        "ddprun": lambda: once(ours, python_worker()),
        "torchrun": theirs and (lambda: once(theirs, python_worker())),
        "bare start": lambda: bare_python_workers(scratch, 4)}, runs)


def two_nodes_case(scratch, runs):
    """Start of two agents on this machine to the last of 2 x 2 workers' first lines."""
    def once(launcher, worker):
        agent = [*launcher, "--nnodes=2", "--nproc-per-node=2", "--rdzv-id=bench", "--rdzv-backend=c10d",
                 f"--rdzv-endpoint=127.0.0.1:{free_port()}"]
        with Job(scratch, [agent, agent], worker) as job:
            return job.last_line_ms(4, job.start_ns)

    rows = interleave("two agents -> 2 x 2 C workers", "ms", {"ddprun": lambda: once([DDPRUN], c_worker(scratch))}, runs)
    return rows + interleave("two agents -> 2 x 2 Python workers", "ms", {
        "ddprun": lambda: once([DDPRUN], python_worker()),
        "torchrun": torchrun() and (lambda: once(torchrun(), python_worker())),
        "bare start": lambda: bare_python_workers(scratch, 4)}, runs)


def free_port():
    import socket
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
