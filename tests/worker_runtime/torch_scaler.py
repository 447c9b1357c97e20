"""Training with torch.amp.GradScaler over DistributedDataParallel, two ranks over gloo.

Rank 1 has one gradient in steps 2 to 5 that is infinite times a loss scale above 2. Writes scale and
weights behind each step, float32, into <folder>/steps.<rank>. All numbers but these are exact.
"""
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def run(rank, folder):
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank,
                            world_size=2)
    model = torch.nn.Module()
    model.weight = torch.nn.Parameter(torch.zeros(40))
    model.forward = lambda gradient: (model.weight * gradient).sum()
    ddp = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.5)
    scaler = torch.amp.GradScaler("cpu", init_scale=8, growth_interval=2)
    with open(folder / f"steps.{rank}", "wb") as out:
        for step in range(10):
            gradient = torch.arange(40) * 0.25 + step + rank * 2
            if rank == 1 and 2 <= step < 6:
                gradient[7] = 2.0**126
            optimizer.zero_grad()
            scaler.scale(ddp(gradient)).backward()
            scaler.unscale_(optimizer)
            scaler.step(optimizer)
            scaler.update()
            out.write(torch.tensor([scaler.get_scale()]).numpy().tobytes())
            out.write(model.weight.detach().numpy().tobytes())
    dist.barrier()
    os._exit(0)  # torch's own end aborts at times: its threads race with the interpreter's


if __name__ == "__main__":
    mp.spawn(run, args=(pathlib.Path(sys.argv[1]),), nprocs=2)
