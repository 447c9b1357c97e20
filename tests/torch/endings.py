"""How ranks over "ddp" end: one scenario, which is named. Run under ddprun with two ranks.

endings.py no-destroy | destroy-twice | drop-after-destroy | leave-messages | abort
               exit-in-collective | exit-in-thread | interrupt | fork | die | leave | mismatch
"""

import atexit
import os
import signal
import sys
import threading
import time
import traceback
import weakref

import torch
import torch.distributed as dist
from expect import raised

_kept = []
_way_out_s = 0.0


@atexit.register
def _wait_for_kept():
    """Behind the end of the groups, which is registered later."""
    time.sleep(_way_out_s)
    for work in _kept:
        try:
            work.wait()
        except dist.DistBackendError as error:
            print(f"at exit: {error}", flush=True)
        else:
            os._exit(3)


from ddprun.torch.work import Operation  # noqa: E402


def no_destroy(rank):
    """The interpreter's end ends the group."""
    dist.all_reduce(torch.ones(3), async_op=True).get_future().wait()
    dist.isend(torch.ones(3), 1 - rank)


def destroy_twice(rank):
    group = dist.new_group([0, 1])
    backend = dist.distributed_c10d._get_default_group()
    dist.destroy_process_group()
    for each in (backend, group):
        each.shutdown()
        raised(lambda: each.allreduce([torch.ones(1)]), RuntimeError, "destroyed")  # noqa: B023
    # A new one can be made.
    dist.init_process_group("ddp")
    dist.barrier()
    dist.destroy_process_group()


def drop_after_destroy(rank):
    """A work that is dropped behind its group's end, and that rank 1 never joins, has ended when
    its tensor is freed."""
    if rank == 0:
        work = dist.all_reduce(torch.ones(1_000_000), async_op=True)
        operation = work.operation
        dist.destroy_process_group()
        error = raised(work.get_future().wait, RuntimeError)
        assert "destroyed" in str(error) or "rank 1" in str(error), error
        del work
        assert operation.is_settled and operation.error is not None


def leave_messages(rank):
    """Rank 0 leaves although it still has a work, and messages that nobody receives. Their memory
    is in use until then."""
    group = dist.distributed_c10d._get_default_group()
    if rank == 1:
        dist.all_reduce(torch.ones(3))
        raised(lambda: dist.recv(torch.empty(1), 0, tag=9), dist.DistBackendError, "rank 0 is gone")
        return
    work = dist.all_reduce(torch.ones(3), async_op=True)
    work.wait()
    sent = torch.ones(1_000_000)
    is_sent_kept, owner = weakref.ref(sent), weakref.ref(group.owner)
    for _ in range(2):
        dist.isend(sent, 1)
    kept = dist.irecv(torch.empty(3), 1)
    del sent
    assert is_sent_kept() is not None and len(Operation.under_way(group)) == 3
    dist.destroy_process_group()
    assert owner() is None and is_sent_kept() is None and Operation.under_way(group) == []
    assert "destroyed" in str(kept.exception()) and work.is_success()


def abort(rank):
    """PyTorch's abort ends what is under way on all ranks."""
    if rank == 1:
        call = lambda: dist.recv(torch.empty(1), 0)  # noqa: E731
    else:
        call = dist.all_reduce(torch.ones(3), async_op=True).wait
        dist.distributed_c10d._abort_process_group()
    raised(call, dist.DistBackendError, "abort() was called")


def exit_in_collective(rank):
    """Rank 0 ends with works under way that rank 1 never joins, and with a callback that takes its
    time, and the interpreter's lock again and again."""
    if rank == 0:
        works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
        works[0].get_future().then(lambda _: [time.sleep(0.001) for _ in range(500)])
        _kept.extend(works)


def exit_in_thread(rank):
    """A thread waits for a message when the interpreter ends."""
    group = dist.distributed_c10d._get_default_group()
    thread = threading.Thread(target=dist.recv, args=(torch.empty(1), 1 - rank), daemon=True)
    thread.start()
    while not Operation.under_way(group):
        pass


def interrupt(rank):
    """Ctrl-C in a collective that waits is a KeyboardInterrupt, soon."""
    if rank == 1:
        dist.recv(torch.empty(1), 0)  # the word that rank 0 has been interrupted
        return
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    raised(lambda: dist.all_reduce(torch.ones(3)), KeyboardInterrupt)
    dist.send(torch.ones(1), 1)


def fork(rank):
    """A forked child is no rank, and its end does not disturb the parent's group."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    child = os.fork()
    if child == 0:
        try:
            for call in (lambda: dist.all_reduce(torch.ones(3)), work.wait):
                raised(call, RuntimeError, "forked")
            del call, work
            dist.distributed_c10d._get_default_group().shutdown()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    work.wait()
    dist.barrier()
    dist.destroy_process_group()


def die(rank):
    """Who is killed is named, in a collective and in a message."""
    # ddprun ends the others when one dies; they have its patience to say what they saw.
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    for call in (lambda: dist.recv(torch.empty(1), 1), lambda: dist.all_reduce(torch.ones(3))):
        print(f"told: {raised(call, dist.DistBackendError, 'rank 1')}", flush=True)


def leave(rank):
    """With three ranks. The last one fails, and another one because of that, in their own group."""
    group = dist.new_group([1, 2])
    dist.barrier()
    if rank == 2:
        global _way_out_s
        _way_out_s = 0.5
        sys.exit(7)
    if rank == 1:
        dist.all_reduce(torch.ones(3), group=group)


def mismatch(rank):
    """It ends the group, and is no fault of this rank's arguments alone."""
    for count in (3 + rank, 5):
        raised(
            lambda: dist.all_reduce(torch.ones(count)),  # noqa: B023
            dist.DistBackendError,
            "the ranks call different operations",
        )


if __name__ == "__main__":
    dist.init_process_group("ddp")
    globals()[sys.argv[1].replace("-", "_")](dist.get_rank())
    print("checks passed", flush=True)
