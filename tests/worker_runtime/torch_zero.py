"""Weights that torch's ZeroRedundancyOptimizer over DistributedDataParallel makes, two ranks, gloo.

Writes the weights of all steps, float32, into <folder>/weights.<rank>. Weights, gradients and the
numbers of SGD are exact in float32, so that neither order nor contraction rounds.
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.distributed.optim import ZeroRedundancyOptimizer

SIZES = [3, 50, 2, 17]


def run(rank, folder):
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank,
                            world_size=2)
    model = torch.nn.Module()
    model.weights = torch.nn.ParameterList(torch.arange(size) * 0.5 for size in SIZES)
    model.forward = lambda gradients: sum((w * g).sum() for w, g in zip(model.weights, gradients))
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.SGD, lr=0.5, momentum=0.5)
    with open(folder / f"weights.{rank}", "wb") as out:
        for step in range(5):
            optimizer.zero_grad()
            ddp([torch.arange(size) * 0.25 + step * 0.5 + rank * 2 + i
                 for i, size in enumerate(SIZES)]).backward()
            optimizer.step()
            for weight in model.weights:
                out.write(weight.detach().numpy().tobytes())
    dist.barrier()
    os._exit(0)  # torch's own end aborts at times: its threads race with the interpreter's


if __name__ == "__main__":
    mp.spawn(run, args=(pathlib.Path(sys.argv[1]),), nprocs=2)
