"""How groups over "ddp" form: one scenario, which is named. Run under ddprun with two ranks.

forming.py no-pauses | interrupt | interrupt-and-end | descriptors |
           out-of-descriptors | out-of-memory
"""

import os
import resource
import signal
import sys
import threading
import time
import unittest.mock

import torch
import torch.distributed as dist
from expect import raised

import ddprun.torch  # noqa: F401
from ddprun.library import GroupOptions
from ddprun.torch.group import _Forming


def no_pauses(_rank):
    """The store wakes who waits in it; nobody looks again and again."""

    def sleep(seconds):
        raise AssertionError(f"a pause of {seconds} s")

    with unittest.mock.patch.object(time, "sleep", sleep):
        group = dist.new_group()
    dist.all_reduce(torch.ones(1), group=group)


def interrupt(rank):
    """Ctrl-C ends the wait for a rank that does not come, and the other groups go on."""
    if rank == 0:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
        raised(dist.new_group, KeyboardInterrupt)
    dist.barrier()


class _Silent:
    """A store in which nobody comes. Its wait is Python's, which ends where the interpreter does."""

    def set(self, *_):
        pass

    def check(self, _keys):
        return False

    def wait(self, *_):
        while True:
            time.sleep(0.001)


def interrupt_and_end(_rank):
    """The interpreter ends while the thread that is left behind is in the store: no crash."""
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    options = GroupOptions(60_000, 0, 0, None)
    raised(_Forming(_Silent(), 0, 2, options).owner, KeyboardInterrupt)


def _open_files():
    return len(os.listdir("/proc/self/fd"))


def descriptors(rank):
    """A group of one node has its memory and its port, and a connection to each rank on the first,
    to the first on the others."""
    groups = [dist.new_group() for _ in range(2)]
    before = _open_files()
    groups += [dist.new_group() for _ in range(10)]
    assert _open_files() - before <= 10 * 3, (before, _open_files())
    for group in groups:
        dist.all_reduce(torch.ones(1), group=group)
        dist.destroy_process_group(group)
    assert _open_files() < before, (before, _open_files())


def _form_until_it_fails():
    groups = []
    while True:
        groups.append(dist.new_group())
        dist.all_reduce(torch.ones(1), group=groups[-1])


def out_of_descriptors(_rank):
    """Ends by an exception that names the limit."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (_open_files() + 40, 4096))
    _form_until_it_fails()


def out_of_memory(_rank):
    """Likewise of address space, which threads need as well."""
    with open("/proc/self/statm", encoding="ascii") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + (256 << 20), resource.RLIM_INFINITY))
    _form_until_it_fails()


if __name__ == "__main__":
    dist.init_process_group("ddp")
    globals()[sys.argv[1].replace("-", "_")](dist.get_rank())
    print("checks passed", flush=True)
