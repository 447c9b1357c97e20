"""What torch's DistributedDataParallel makes of gradients of several types, two ranks over gloo.

Reads <folder>/script, a line "TYPE COUNT" for each parameter, and the gradients of a rank, raw
elements of one parameter after the other, from <folder>/gradients.<rank>; writes the averages to
<folder>/averages.<rank>, alike.
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
    data = bytearray((folder / f"gradients.{rank}").read_bytes())
    gradients = []
    for line in (folder / "script").read_text().splitlines():
        dtype, count = getattr(torch, line.split()[0]), int(line.split()[1])
        size = count * dtype.itemsize
        gradients.append(torch.frombuffer(data[:size], dtype=dtype).clone())
        del data[:size]
    model = torch.nn.Module()
    model.weights = torch.nn.ParameterList(torch.zeros_like(gradient) for gradient in gradients)
    model.forward = lambda: sum((w * g).sum().double() for w, g in zip(model.weights, gradients))
    # Two passes: torch divides the model into its buckets behind the first.
    ddp = torch.nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4096 / 2**20)
    for _ in range(2):
        ddp.zero_grad()
        ddp().backward()
    with open(folder / f"averages.{rank}", "wb") as out:
        for weight in model.weights:
            # As bytes, since numpy knows no bfloat16.
            out.write(weight.grad.view(torch.uint8).numpy().tobytes())
    dist.barrier()
    os._exit(0)  # torch's own end aborts at times: its threads race with the interpreter's


if __name__ == "__main__":
    mp.spawn(run, args=(pathlib.Path(sys.argv[1]),), nprocs=2)
