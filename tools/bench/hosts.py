"""Hosts of a benchmark's own: network namespaces joined by a bridge, as those of tests/support/netns.h."""

import itertools
import os

from harness import BenchError, run


NUMBERS = itertools.count(1)


def why_none():
    return None if os.geteuid() == 0 else "network namespaces need root"


class Hosts:
    """Numbered from 0. Nothing of them is left behind `remove`."""

    def __init__(self, count):
        prefix = f"ddpbench{os.getpid()}-{next(NUMBERS)}"
        self.names = [f"{prefix}h{i}" for i in range(count)]
        self.switch = f"{prefix}sw"
        try:
            for name in (self.switch, *self.names):
                run(["ip", "netns", "add", name])
            ip(self.switch, "link add br0 type bridge")
            ip(self.switch, "link set br0 up")
            for i, name in enumerate(self.names):
                ip(self.switch, f"link add p{i} type veth peer name eth0 netns {name}")
                ip(self.switch, f"link set p{i} master br0 up")
                ip(name, f"addr add {self.address(i)}/24 dev eth0")
                ip(name, "link set eth0 up")
                ip(name, "link set lo up")
        except BaseException:  # Ctrl-C among them
            self.remove()
            raise

    @staticmethod
    def address(index):
        return f"10.78.0.{index + 1}"

    def command(self, index):
        """What runs the rest of a command line on that host, in its process."""
        return ["nsenter", f"--net=/run/netns/{self.names[index]}"]

    def set_link(self, index, is_up):
        ip(self.switch, f"link set p{index} {'up' if is_up else 'down'}")

    def remove(self):
        for name in (*self.names, self.switch):
            try:
                run(["ip", "netns", "del", name])
            except BenchError:
                pass  # it was not made


def ip(name, words):
    run(["ip", "-n", name, *words.split()])
