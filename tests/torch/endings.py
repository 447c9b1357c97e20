"""How ranks over "ddp" end: one scenario, which is named. Run under ddprun with two ranks.

endings.py no-destroy | destroy-twice | drop-after-destroy | exit-in-collective
               interrupt | fork | die
"""

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

import ddprun.torch  # noqa: F401


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
        try:
            each.allreduce([torch.ones(1)])
        except RuntimeError as error:
            assert "destroyed" in str(error)
        else:
            raise AssertionError("a destroyed group still works")
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
        del work
        assert operation.is_settled and operation.error is not None


def exit_in_collective(rank):
    """Rank 0 ends with works under way that rank 1 never joins."""
    if rank == 0:
        works = [dist.all_reduce(torch.ones(3), async_op=True) for _ in range(3)]
        works[0].get_future()
        os.environ["KEEP"] = str(len(works))
    dist.distributed_c10d._get_default_group()


def interrupt(rank):
    """Ctrl-C in a collective that waits is a KeyboardInterrupt, soon."""
    if rank == 1:
        dist.recv(torch.empty(1), 0)  # the word that rank 0 has been interrupted
        return
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    try:
        dist.all_reduce(torch.ones(3))
    except KeyboardInterrupt:
        dist.send(torch.ones(1), 1)
        return
    raise AssertionError("no KeyboardInterrupt")


def fork(rank):
    """A forked child is no rank, and its end does not disturb the parent's group."""
    work = dist.all_reduce(torch.ones(3), async_op=True)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            dist.all_reduce(torch.ones(3))
        except RuntimeError as error:
            code = 0 if "forked" in str(error) else 2
        del work
        dist.distributed_c10d._get_default_group().shutdown()
        os._exit(code)
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
        try:
            call()
        except dist.DistBackendError as error:
            assert "rank 1" in str(error), error
            print(f"told: {error}", flush=True)
        else:
            raise AssertionError("no error")


if __name__ == "__main__":
    dist.init_process_group("ddp")
    globals()[sys.argv[1].replace("-", "_")](dist.get_rank())
    print("checks passed", flush=True)
