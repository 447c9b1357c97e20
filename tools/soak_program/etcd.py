"""An etcd of a job's own: three members on loopback, killed and stopped like all else, and what the job keeps there."""

import os
import signal
import subprocess

from processes import Program, kill, until

MEMBERS = 3
PREFIX = "/ddprun"
STARTS_S = 60  # this machine may be busy


class Etcd:
    def __init__(self, folder, env, take_port):
        os.makedirs(folder)
        self.folder, self.env = folder, env
        self.ports = [take_port() for _ in range(MEMBERS)]
        self._peer_ports = [take_port() for _ in range(MEMBERS)]
        self.members = [self._start(i) for i in range(MEMBERS)]
        if not until(self.takes_writes, STARTS_S):
            raise RuntimeError(f"etcd takes no writes within {STARTS_S} s: {self.members[0].said(400)}")

    def _start(self, index):
        peer = f"http://127.0.0.1:{self._peer_ports[index]}"
        url = f"http://127.0.0.1:{self.ports[index]}"
        cluster = ",".join(f"e{i}=http://127.0.0.1:{port}" for i, port in enumerate(self._peer_ports))
        path = os.path.join(self.folder, f"e{index}")
        return Program(["etcd", f"--name=e{index}", f"--data-dir={path}", f"--listen-client-urls={url}",
                        f"--advertise-client-urls={url}", f"--listen-peer-urls={peer}",
                        f"--initial-advertise-peer-urls={peer}", f"--initial-cluster={cluster}",
                        "--initial-cluster-state=new", "--logger=zap", "--log-level=error"], self.env, f"{path}.log")

    def start_again(self, index):
        """On what it has on its disk."""
        self.members[index] = self._start(index)

    def pids(self):
        return [member.pid for member in self.members]

    def takes_writes(self):
        return self.ctl("put", "soak", "x") == "OK\n"

    def leading(self):
        """The member that leads the others; None: nobody says that it does."""
        for member, port in zip(self.members, self.ports):
            # "endpoint, id, version, size, is leader, ..."
            fields = self.ctl("endpoint", "status", "--write-out=simple", ports=[port]).split(", ")
            if fields[4:5] == ["true"]:
                return member
        return None

    def leader_port(self, run):
        """Where the coordinator of the job listens, by its key; None: nobody leads it."""
        words = self.ctl("get", "--print-value-only", f"{PREFIX}/{run}/leader").split()
        return int(words[2].rpartition(":")[2]) if words[:2] == ["ddprun", "1"] else None

    def remains(self, run, limit_s):
        """Keys of the job, and leases, that are there `limit_s` from now."""
        found = []

        def is_clean():
            keys = self.ctl("get", "--prefix", "--keys-only", f"{PREFIX}/{run}/", or_none=True)
            leases = self.ctl("lease", "list", or_none=True)
            if keys is None or leases is None:
                found[:] = ["etcd does not answer"]
                return False
            found[:] = keys.split() + [f"lease {line}" for line in leases.splitlines()[1:]]
            return not found

        return [] if until(is_clean, limit_s, 0.5) else found

    def ctl(self, *words, ports=None, or_none=False):
        """What etcdctl says; where it fails "", or None."""
        urls = ",".join(f"http://127.0.0.1:{port}" for port in ports or self.ports)
        command = ["etcdctl", "--dial-timeout=1s", "--command-timeout=3s", f"--endpoints={urls}", *words]
        done = subprocess.run(command, env={**self.env, "ETCDCTL_API": "3"}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=False)
        return done.stdout.decode(errors="replace") if done.returncode == 0 else None if or_none else ""

    def end(self):
        for member in self.members:
            kill(member.pid, signal.SIGKILL)  # one that has lost the others takes seconds to end by SIGTERM
            member.end()
