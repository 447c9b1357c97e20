"""Works and futures of the backend "ddp": dropped, waited for by several threads, timed out,
failed. Run under ddprun with two ranks."""

import concurrent.futures
import datetime
import gc
import threading
import time
import unittest.mock
import weakref

import torch
import torch.distributed as dist
from expect import raised

import ddprun.torch  # noqa: F401


def check_results(rank):
    work = dist.all_reduce(torch.ones(3), async_op=True)
    future = work.get_future()
    assert future.wait()[0].tolist() == [2.0] * 3
    assert work.is_completed() and work.is_success() and work.exception() is None
    assert work.wait() and work.get_future().value()[0].tolist() == [2.0] * 3
    doubled = (
        dist.all_reduce(torch.ones(1), async_op=True)
        .get_future()
        .then(lambda done: done.value()[0] * 2)
    )
    assert doubled.wait().tolist() == [4.0]
    polled = dist.barrier(async_op=True)
    while not polled.is_completed():
        pass


def check_dropped(rank):
    outputs, received = [], []
    for count in range(20):
        parts = [torch.empty(1000) for _ in range(2)]
        outputs.append(parts)
        dist.all_gather(parts, torch.full((1000,), float(rank)), async_op=True)
        dist.isend(torch.full((1000,), float(count)), 1 - rank)
        received.append(torch.zeros(1000))
        if count % 2:
            dist.irecv(received[-1], 1 - rank)
        gc.collect()
        torch.full((1000,), -1.0)  # takes the memory of one that was freed too early
    for count in range(0, 20, 2):
        # In the order of the calls: the odd messages come first.
        dist.recv(received[count], 1 - rank)
    dist.all_reduce(torch.ones(1), async_op=True).get_future().wait()
    # The group's thread takes works in their order: it is through with the dropped ones.
    for parts in outputs:
        assert parts[0].eq(0).all() and parts[1].eq(1).all()
    order = [*range(1, 20, 2), *range(0, 20, 2)]
    for count, place in enumerate(order):
        assert received[place].eq(count).all(), (count, received[place])


def check_no_thread(rank):
    """A future for which there is no thread is an error that names the limit, and no more."""
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(1), group=group, async_op=True)
    refusal = RuntimeError("can't start new thread")
    with unittest.mock.patch.object(threading.Thread, "start", side_effect=refusal):
        raised(work.get_future, dist.DistBackendError, "(ulimit -u, pids.max)")
    assert work.get_future().wait()[0].tolist() == [2.0]
    dist.destroy_process_group(group)


def check_freed(rank):
    """A future that is dropped leaves nothing behind, also where Python collects no cycles."""
    gc.disable()
    tensor = torch.ones(10)
    is_there = weakref.ref(tensor)
    future = dist.all_reduce(tensor, async_op=True).get_future().then(lambda done: done.value())
    future.wait()
    del tensor, future
    end = time.monotonic() + 60
    while is_there() is not None:  # the group's thread has it until it looks for the next one
        assert time.monotonic() < end, "the tensor of a future lives on"
    gc.enable()


def check_threads(rank):
    work = dist.all_reduce(tensor := torch.ones(100_000), async_op=True)
    groups = [dist.new_group([0, 1]) for _ in range(3)]

    def reduce_all(group, count):
        result = torch.full((1000,), float(count))
        for _ in range(10):
            dist.all_reduce(result, group=group)
        return result

    def exchange(count):
        """All over one group, and most of the works dropped."""
        got = torch.zeros(100)
        for step in range(200):
            dist.isend(torch.full((100,), float(step)), 1 - rank, tag=count)
            dist.recv(got, 1 - rank, tag=count)
            assert got.eq(step).all(), (count, step, got)

    with concurrent.futures.ThreadPoolExecutor(4) as threads:
        assert all(threads.map(lambda _: work.wait(), range(4)))
        assert tensor.eq(2).all()
        for count, result in enumerate(threads.map(reduce_all, groups, range(3))):
            assert result.eq(1024 * count).all(), (count, result)
        assert list(threads.map(exchange, range(4))) == [None] * 4


def check_refusals(rank):
    """What is wrong on this rank is said before any other hears of it."""
    two = torch.ones(2)
    group = dist.distributed_c10d._get_default_group()
    quantized = torch.quantize_per_tensor(two, 0.1, 0, torch.quint8)
    for call, words in (
        (lambda: dist.all_reduce(torch.ones(2, device="meta")), "is on meta"),
        (lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)), "torch.int16"),
        (lambda: dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND), "bits"),
        (lambda: dist.all_reduce(torch.ones(1).expand(5)), "share memory"),
        (lambda: dist.broadcast(torch.ones(2).to_sparse(), 0), "sparse"),
        (lambda: dist.broadcast(quantized, 0), "quantized"),
        (lambda: dist.all_gather([two.clone()], two), "one for each rank"),
        (lambda: dist.all_gather([torch.ones(3), two], two), "are expected"),
        (lambda: dist.all_gather_into_tensor(torch.ones(3), two), "are expected"),
        (lambda: dist.all_to_all_single(torch.ones(3), torch.ones(3)), "no equal parts"),
        (lambda: dist.all_to_all_single(two, two.clone(), [1, 2], [1, 1]), "split sizes"),
        (lambda: group.send([two], rank, 0).wait(), "rank"),
    ):
        if rank == 0:
            raised(call, ValueError, words)
    dist.all_reduce(two)
    assert two.tolist() == [2.0, 2.0]


def check_timeouts(rank):
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
    got = torch.empty(3)
    raised(
        lambda: dist.recv(got, 1 - rank, group=group, tag=9),
        dist.DistBackendError,
        f"receive from rank {1 - rank} (tag 9, 12 bytes) timed out after 1 s",
    )
    work = dist.irecv(got, 1 - rank)
    raised(
        lambda: work.wait(datetime.timedelta(milliseconds=50)),
        dist.DistBackendError,
        f"under way: rank {1 - rank} did not send it; the timeout of the group ends it",
    )
    dist.barrier()  # before it nobody sends
    dist.send(torch.ones(3), 1 - rank)
    assert work.wait() and got.eq(1).all()
    raised(work.get_future, RuntimeError, "no future")
    if rank == 0:
        missing = dist.all_reduce(torch.ones(1), group=group, async_op=True)
        # "arrive" within a host, "answer" between two
        words = "all-reduce #1 (float32 x 1, sum) timed out after 1 s: rank 1 did not "
        raised(missing.get_future().wait, RuntimeError, words)
        raised(missing.wait, dist.DistBackendError, words)
        assert missing.is_completed() and not missing.is_success()
        raised(lambda: dist.barrier(group=group), dist.DistBackendError, words)
    # The default group goes on.
    dist.barrier()


def main():
    dist.init_process_group("ddp")
    rank = dist.get_rank()
    for check in (
        check_results,
        check_dropped,
        check_no_thread,
        check_freed,
        check_threads,
        check_refusals,
        check_timeouts,
    ):
        check(rank)
    dist.destroy_process_group()
    print("all checks passed")


if __name__ == "__main__":
    main()
