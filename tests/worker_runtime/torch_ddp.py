"""What torch's DistributedDataParallel makes of a script of passes, two ranks over gloo.

Reads <folder>/script, one word list a line:
    options NAME=0|1 ...          of DistributedDataParallel
    hook                          registers a communication hook that sums
    join initial|effective        the rest is within a join, with a step of an optimizer after each
                                  synchronised pass; behind it the weights are appended, too
    zero                          sets all gradients to 0
    pass sync|nosync USED USED    the parameters that each rank uses, as digits, twice where a digit
                                  is; -: no batch
Each rank appends its buffer and all gradients, float32, to <folder>/values.<rank> behind every
pass. Forward adds to the buffer a number of its rank's own.
"""
import contextlib
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.utils.checkpoint import checkpoint

SIZES = [3, 5, 2, 4]


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.zeros(size) for size in SIZES)
        self.register_buffer("state", torch.zeros(2))
        for weight in self.weights:
            weight.grad = torch.zeros_like(weight)

    def forward(self, used, gradient_of):
        self.state += gradient_of(2)
        if len(set(used)) == len(used):
            return sum((self.weights[i] * gradient_of(i)).sum() for i in used)

        def use(start, i):
            return start.sum() + (self.weights[i] * gradient_of(i)).sum()

        # Each has a backward pass of its own, and so a parameter one gradient for each use.
        start = torch.zeros(1, requires_grad=True)
        return sum(checkpoint(use, start, i, use_reentrant=True) for i in used)


def sum_of_ranks(_, bucket):
    work = dist.all_reduce(bucket.buffer(), async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def gradients(number, rank):
    return lambda i: torch.arange(SIZES[i]) * 0.25 + number * 0.5 + rank * 2 + i


def run(rank, folder):
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank,
                            world_size=2)
    model = Model()
    number = 0
    join = contextlib.ExitStack()
    is_joined = False
    with open(folder / f"values.{rank}", "wb") as out:
        for line in (folder / "script").read_text().splitlines():
            kind, *words = line.split()
            if kind == "options":
                options = [word.split("=") for word in words]
                ddp = torch.nn.parallel.DistributedDataParallel(
                    model, bucket_cap_mb=24 / 2**20, **{name: value == "1" for name, value in options})
            elif kind == "hook":
                ddp.register_comm_hook(None, sum_of_ranks)
            elif kind == "join":
                is_joined = True
                join.enter_context(ddp.join(divide_by_initial_world_size=words[0] == "initial"))
            elif kind == "zero":
                ddp.zero_grad(set_to_none=False)
            else:
                number += 1
                if words[1 + rank] == "-":
                    continue
                used = [int(digit) for digit in words[1 + rank]]
                with ddp.no_sync() if words[0] == "nosync" else contextlib.nullcontext():
                    ddp(used, gradients(number, rank)).backward()
                if is_joined and words[0] == "sync":
                    with torch.no_grad():
                        for weight in model.weights:
                            weight -= 0.5 * weight.grad
                out.write(model.state.numpy().tobytes())
                for weight in model.weights:
                    out.write(weight.grad.numpy().tobytes())
        join.close()
        if is_joined:
            for tensor in [model.state, *model.weights]:
                out.write(tensor.detach().numpy().tobytes())
    dist.barrier()
    os._exit(0)  # torch's own end aborts at times: its threads race with the interpreter's


if __name__ == "__main__":
    mp.spawn(run, args=(pathlib.Path(sys.argv[1]),), nprocs=2)
