"""What the ranks of a group over "ddp" tell their agents: each looks at its own page. Run under
ddprun with two ranks."""

import os
import struct
import threading
import time

import torch
import torch.distributed as dist

import ddprun.torch  # noqa: F401

WAITED, GROUPS, SLOT = 12, 32, 16  # words of worker_runtime/counters_page.h


def words():
    return struct.unpack("1024Q", os.pread(int(os.environ["DDPRUN_COUNTERS_FD"]), 8192, 0))


def groups():
    """(key, rank, size, called, done, name) of each slot in use."""
    page, found = words(), []
    for at in range(GROUPS, len(page), SLOT):
        key, place, called, done = page[at : at + 4]
        name = struct.pack("8Q", *page[at + 8 : at + 16]).rstrip(b"\0").decode()
        if key:
            found.append((key, place >> 32, place & 0xFFFFFFFF, called, done, name))
    return found


def check_groups(rank):
    (default,) = groups()
    assert default[1:3] == (rank, 2) and default[5] == "shm, ranks 0-1", default
    dist.all_reduce(torch.ones(3))
    (after,) = groups()
    assert after[0] == default[0] and after[3] == after[4] == default[3] + 1, (default, after)
    other = dist.new_group([0, 1])
    keys = [each[0] for each in groups()]
    assert len(set(keys)) == 2, keys
    gathered = [None, None]
    dist.all_gather_object(gathered, keys)
    assert gathered[0] == gathered[1], gathered
    dist.destroy_process_group(other)
    del other
    assert [each[0] for each in groups()] == keys[:1], groups()


def check_waited(rank):
    """Rank 1 comes when rank 0 has waited for several slices. Rank 0 counts that once, also where
    the thread behind futures waits for two, as at the end of DDP's backward."""
    store = dist.distributed_c10d._get_default_store()
    for number, reduce in enumerate((_reduce, _reduce_two_with_futures)):
        dist.barrier()
        before, begin = words()[WAITED], time.monotonic_ns()
        if rank == 0:
            threading.Timer(0.35, store.set, (f"come/{number}", "1")).start()
        else:
            store.get(f"come/{number}")
        reduce()
        took, waited = time.monotonic_ns() - begin, words()[WAITED] - before
        assert 0 < waited <= took or rank == 1, (number, waited, took)


def _reduce():
    dist.all_reduce(torch.ones(3), async_op=True).wait()


def _reduce_two_with_futures():
    works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(2)]
    for future in [work.get_future() for work in works]:
        future.wait()


def main():
    dist.init_process_group("ddp")
    rank = dist.get_rank()
    check_groups(rank)
    check_waited(rank)
    dist.barrier()
    dist.destroy_process_group()
    assert groups() == [], groups()
    print("checks passed", flush=True)


if __name__ == "__main__":
    main()
