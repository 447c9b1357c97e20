"""The faults of a long job. Each does one thing, holds it for a while and takes it back.

Harmless ones must not start a new round. Others may: those that `charges` counts may each cost a restart of the
budget, as a worker failed; the loss of a node costs none.
"""

import os
import signal
import socket
import threading

from processes import cgroups_of, kill, marked, populated, until

SHORT_S = 2.5  # far below the time after which a silent node is evicted
LONG_S = 9.0  # far above
LEASE_OVER_S = 4.5  # longer than the coordinator's lease in etcd, and shorter than the time above
ETCD_AWAY_S = 20.0  # longer than a coordinator goes on without etcd
HTTP2 = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HOSTILE = [b"", b"P", b"ddprun", b"\0" * 4096, b"\xff" * 65536, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
           b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03" + b"\xff" * 300, HTTP2,
           HTTP2 + b"\xff\xff\xff\x04\0\0\0\0\0" * 50]


class Fault:
    def __init__(self, name, do, charges=0, is_harmless=False, fits=lambda job: True):
        self.name, self.do, self.charges = name, do, charges
        self.starts_workers_anew = not is_harmless
        self.fits = fits


def any_worker(job):
    return job.random.choice(job.events.workers()).pid


def victim(job):
    """A node whose agent may end, and which is not the coordinator: that is a fault of its own."""
    host = job.host()
    return job.random.choice([node for node in job.victims() if node is not host])


def hosting_victim(job):
    """The node whose agent is the coordinator, where that may end; else another: it is told by the fault's name."""
    host = job.host()
    return host if host in job.victims() else victim(job)


def any_node(job):
    return job.random.choice(job.nodes)


def signal_worker(number):
    def do(job):
        return None if kill(any_worker(job), number) else "the worker had gone already"
    return do


def stop_pids(job, pids, seconds):
    """SIGSTOP, and SIGCONT behind it whatever happens."""
    try:
        for pid in pids:
            kill(pid, signal.SIGSTOP)
        job.pause(seconds)
    finally:
        for pid in pids:
            kill(pid, signal.SIGCONT)


def pause_worker(job):
    stop_pids(job, [any_worker(job)], job.random.uniform(0.5, SHORT_S))


def pause_agent(job):
    stop_pids(job, [any_node(job).agent.pid], job.random.uniform(0.5, SHORT_S))


def freeze_node(seconds):
    def do(job):
        node = victim(job)
        stop_pids(job, marked(node.agent.mark), seconds)
    return do


def stop_host(seconds):
    """Longer than its lease in etcd: another one takes over, and no worker is disturbed."""
    def do(job):
        host = until(job.host, 30)
        if host is None:
            return "nobody leads the job for 30 s"
        return stop_pids(job, [host.agent.pid], seconds)
    return do


def suspend_agent(job):
    agent = any_node(job).agent
    agent.signal(signal.SIGTSTP)
    job.pause(1)
    agent.signal(signal.SIGCONT)


def evict_agent(job):
    stop_pids(job, [victim(job).agent.pid], LONG_S)


def end_agent(number, code, choose=victim):
    def do(job):
        node = choose(job)
        node.agent.signal(number)
        ended = node.agent.wait(30)
        complaint = None if ended == code else f"{node.name} ended with {ended} instead of {code}: {node.agent.said()}"
        job.ledger.remains(f"{job.name}: {node.name}, ended by signal {number}", node.agent.left())
        job.pause(job.random.uniform(0, 3))
        node.start()
        return complaint
    return do


def kill_agent_and_guardian(job):
    """What has left its session and lost its parent then lives on, where the job has no cgroup: a known limit."""
    node = victim(job)
    guardian = node.agent.guardian()
    if guardian:
        kill(guardian, signal.SIGKILL)
    node.agent.signal(signal.SIGKILL)
    node.agent.wait(5)
    workers = [pid for pid in (worker.pid for worker in node.workers()) if pid in marked(node.agent.mark)]
    until(lambda: not set(workers) & set(marked(node.agent.mark)), 5)
    alive = set(workers) & set(marked(node.agent.mark))
    node.agent.left(0)  # ends the helpers
    # The next agent removes the cgroup, where nobody is on his last way out of it.
    until(lambda: not populated(cgroups_of([node.agent.pid])), 5)
    node.start()
    return f"workers {sorted(alive)} outlived agent and guardian" if alive else None


def kill_guardian(job):
    agent = any_node(job).agent
    guardian = agent.guardian()
    if guardian is None:
        return None  # it is being replaced
    kill(guardian, signal.SIGKILL)
    if not until(lambda: agent.guardian() not in (None, guardian), 10):
        return f"no other guardian within 10 s: {agent.others()}"
    return None


def kill_coordinator(job):
    job.coordinator.signal(signal.SIGKILL)
    job.coordinator.wait(5)
    job.pause(job.random.uniform(0, 2))
    job.start_coordinator()


def kill_coordinator_and_worker(job):
    job.coordinator.signal(signal.SIGKILL)
    kill(any_worker(job), signal.SIGKILL)
    job.coordinator.wait(5)
    job.pause(job.random.uniform(0, 1.5))
    job.start_coordinator()


def kill_worker_and_agent(choose=victim):
    def do(job):
        node = choose(job)
        others = [worker.pid for worker in job.events.workers() if worker.node != node.name]
        kill(job.random.choice(others), signal.SIGKILL)
        return end_agent(signal.SIGKILL, 137, lambda _: node)(job)
    return do


def kill_etcd_members(count):
    """SIGKILL, and started again on their disks."""
    def do(job):
        chosen = job.random.sample(range(len(job.etcd.members)), count)
        for index in chosen:
            kill(job.etcd.members[index].pid, signal.SIGKILL)
        for index in chosen:
            job.etcd.members[index].wait(5)
        job.pause(job.random.uniform(0, 5))
        for index in chosen:
            job.etcd.start_again(index)
        return None if until(job.etcd.takes_writes, 60) else "etcd takes no writes 60 s after it was started again"
    return do


def stop_etcd_leader(job):
    leading = until(job.etcd.leading, 30)
    if leading is None:
        return "no member of etcd leads the others within 30 s"
    return stop_pids(job, [leading.pid], job.random.uniform(1, LONG_S))


def stop_etcd(job):
    stop_pids(job, job.etcd.pids(), ETCD_AWAY_S)


def pause_coordinator(job):
    stop_pids(job, [job.coordinator.pid], job.random.uniform(1, LONG_S))


def proxies(nodes):
    return [proxy for node in nodes for proxy in node.proxies]


def reset(job):
    for proxy in proxies(job.nodes):
        if job.random.random() < 0.6:
            proxy.reset_all()


def refuse(job):
    chosen = any_node(job).proxies
    for proxy in chosen:
        proxy.weather.refuses = True
        proxy.reset_all()
    job.pause(1)
    for proxy in chosen:
        proxy.weather.refuses = False


def stall(seconds, choose):
    def do(job):
        weathers = [proxy.weather for proxy in proxies(choose(job))]
        for weather in weathers:
            weather.is_stalled = True
        job.pause(seconds)
        for weather in weathers:
            weather.is_stalled = False
    return do


def slow(job):
    for proxy in proxies(job.nodes):
        proxy.weather.delay_s = job.random.uniform(0.05, 0.3)
        proxy.weather.jitter_s = 0.2
        proxy.weather.bytes_a_second = job.random.choice([0, 4000])
    job.pause(5)
    for proxy in proxies(job.nodes):
        proxy.weather.delay_s = proxy.weather.jitter_s = 0.0
        proxy.weather.bytes_a_second = 0


def send_hostile(job):
    port = job.coordinator_port()

    def one(bytes_):
        try:
            with socket.create_connection(("127.0.0.1", port), 5) as connection:
                connection.settimeout(2)
                connection.sendall(bytes_)
                connection.recv(4096)
        except OSError:
            pass  # it is closed on us, as it should be
    threads = [threading.Thread(target=one, args=(job.random.choice(HOSTILE),), daemon=True) for _ in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)


def fill_disk(job):
    """The disk of the logs is full for two seconds."""
    path = os.path.join(job.settings.small_disk, f"fill.{job.name}")
    try:
        with open(path, "wb") as file:
            while True:
                file.write(b"x" * 65536)
                file.flush()
    except OSError:
        pass  # full: the point
    job.pause(2)
    os.unlink(path)


def is_apart(job):
    return job.kind == "apart"


def has_etcd(job):
    return job.has_etcd


def has_no_etcd(job):
    return not job.has_etcd


def may_lose_host(job):
    """Whether the agent that is the coordinator may be ended."""
    return job.has_etcd and job.host() in job.victims()


def has_small_disk(job):
    return job.settings.small_disk is not None


FAULTS = [
    Fault("worker: SIGKILL", signal_worker(signal.SIGKILL), charges=1),
    Fault("worker: SIGSEGV", signal_worker(signal.SIGSEGV), charges=1),
    Fault("worker: exit 41", signal_worker(signal.SIGUSR1), charges=1),
    Fault("worker: stopped for a while", pause_worker, is_harmless=True),
    Fault("agent: SIGKILL", end_agent(signal.SIGKILL, 137)),
    Fault("agent: SIGTERM", end_agent(signal.SIGTERM, 143)),
    Fault("agent and guardian: SIGKILL", kill_agent_and_guardian),
    Fault("agent: stopped for a while", pause_agent, is_harmless=True),
    Fault("agent: stopped for 9 s", evict_agent),
    Fault("agent: SIGTSTP, SIGCONT", suspend_agent, is_harmless=True),
    Fault("node: frozen for 2.5 s", freeze_node(SHORT_S), is_harmless=True),
    Fault("node: frozen for 9 s", freeze_node(LONG_S)),
    Fault("guardian: SIGKILL", kill_guardian, is_harmless=True),
    Fault("coordinator: SIGKILL, started again", kill_coordinator, is_harmless=True, fits=is_apart),
    Fault("coordinator: stopped for 1 to 9 s", pause_coordinator, is_harmless=True, fits=is_apart),
    Fault("coordinator and worker: SIGKILL", kill_coordinator_and_worker, charges=1, fits=is_apart),
    Fault("worker and other node's agent: SIGKILL", kill_worker_and_agent(), charges=1),
    Fault("hosting agent: SIGKILL", end_agent(signal.SIGKILL, 137, hosting_victim), fits=may_lose_host),
    Fault("hosting agent: SIGTERM", end_agent(signal.SIGTERM, 143, hosting_victim), fits=may_lose_host),
    Fault("hosting agent and worker: SIGKILL", kill_worker_and_agent(hosting_victim), charges=1, fits=may_lose_host),
    Fault("hosting agent: stopped for 4.5 s", stop_host(LEASE_OVER_S), is_harmless=True, fits=has_etcd),
    Fault("etcd: a member SIGKILL, started again", kill_etcd_members(1), is_harmless=True, fits=has_etcd),
    Fault("etcd: all SIGKILL, started again", kill_etcd_members(3), is_harmless=True, fits=has_etcd),
    Fault("etcd: its leader stopped for 1 to 9 s", stop_etcd_leader, is_harmless=True, fits=has_etcd),
    Fault("etcd: all stopped for 20 s", stop_etcd, is_harmless=True, fits=has_etcd),
    Fault("network: connections reset", reset, is_harmless=True),
    Fault("network: resets for 1 s", refuse, is_harmless=True),
    Fault("network: a node stalls for 2.5 s", stall(SHORT_S, lambda job: [any_node(job)]), is_harmless=True),
    Fault("network: a node stalls for 9 s", stall(LONG_S, lambda job: [victim(job)]), fits=has_no_etcd),
    Fault("network: a node and etcd stall for 9 s", stall(LONG_S, lambda job: [any_node(job)]), is_harmless=True,
          fits=has_etcd),
    Fault("network: all nodes stall for 9 s", stall(LONG_S, lambda job: job.nodes), is_harmless=True,
          fits=lambda job: job.kind != "hosted"),
    Fault("network: slow for 5 s", slow, is_harmless=True),
    Fault("network: 40 hostile connections", send_hostile, is_harmless=True),
    Fault("disk of the logs: full for 2 s", fill_disk, is_harmless=True, fits=has_small_disk),
]
