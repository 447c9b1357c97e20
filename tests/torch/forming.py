"""How groups over "ddp" form: one scenario, which is named. Run under ddprun with two ranks.

forming.py no-pauses | interrupt
"""

import os
import signal
import sys
import threading
import time
import unittest.mock

import torch
import torch.distributed as dist
from expect import raised

import ddprun.torch  # noqa: F401


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


if __name__ == "__main__":
    dist.init_process_group("ddp")
    globals()[sys.argv[1].replace("-", "_")](dist.get_rank())
    print("checks passed", flush=True)
