"""Trains each scenario of a file with torch's DistributedDataParallel over gloo, for libtorch_test.cc.

usage: training.py SCENARIOS FOLDER RANKS. Each rank writes <folder>/<scenario>.<rank>: numbers of 8
bytes, the loss and the buffers of each pass, behind a synchronised one its gradients, and in the end all weights
and buffers.
"""
import contextlib
import os
import pathlib
import sys

import numpy
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


class Net(torch.nn.Module):
    def __init__(self, options):
        super().__init__()
        self.first = torch.nn.Linear(16, 32)
        self.norm = torch.nn.BatchNorm1d(32) if "norm" in options else None
        self.second = torch.nn.Linear(32, 16)
        self.left = torch.nn.Linear(16, 4)
        self.right = self.left if "tied" in options else torch.nn.Linear(16, 4)
        if "type=bfloat16" in options:
            self.to(torch.bfloat16)
        if "type=mixed" in options:
            self.left.to(torch.bfloat16)
            self.right.to(torch.bfloat16)
        if "channels" in options:
            self.first.weight.data = self.first.weight.data.t().contiguous().t()
        if "frozen" in options:
            self.first.requires_grad_(False)

    def forward(self, x, heads):
        x = self.first(x.to(self.first.weight.dtype))
        if self.norm is not None:
            x = self.norm(x)
        x = torch.tanh(self.second(x))
        x = x.to(self.left.weight.dtype)
        y = torch.zeros([8, 4])
        if "l" in heads:
            y = y + self.left(x)
        if "r" in heads:
            y = y + 2 * self.right(x)
        return y


class Record:
    def __init__(self, path):
        self.file = open(path, "wb", buffering=0)

    def add(self, tensor):
        self.file.write(tensor.detach().contiguous().double().numpy().tobytes())

    def buffers(self, net):
        for buffer in net.buffers():
            self.add(buffer)

    def number(self, value):
        self.file.write(numpy.float64(value).tobytes())


def loss_of(model, number, rank, heads):
    torch.manual_seed(1000 * number + rank)
    x = torch.randn([8, 16])
    return (model(x, heads) - x[:, :4]).square().mean()


def train(options, passes, rank, record):
    torch.manual_seed(1 + rank)
    net = Net(options)
    ddp = DistributedDataParallel(
        net, bucket_cap_mb=1024 / 2**20 if "small" in options else None,
        find_unused_parameters="unused" in options, static_graph="static" in options)
    optimizer = torch.optim.SGD([p for p in net.parameters() if p.requires_grad], 0.05)
    join = contextlib.nullcontext()
    for option in options:
        if option.startswith("join="):
            join = ddp.join(divide_by_initial_world_size=option == "join=initial")
    is_fresh = True
    with join:
        for number, step in enumerate(passes):
            kind = step[0] if step[0] in "ne" else ""
            heads = step[len(kind):].split("/")
            heads = heads[rank % 2] if len(heads) == 2 else heads[0]
            if heads == "-":
                continue
            if kind == "e":
                with torch.no_grad():
                    record.add(loss_of(ddp, number, rank, heads))
                record.buffers(net)
                continue
            if is_fresh:
                optimizer.zero_grad(set_to_none="keep" not in options)
            is_fresh = kind != "n"
            with ddp.no_sync() if kind == "n" else contextlib.nullcontext():
                loss = loss_of(ddp, number, rank, heads)
                record.add(loss)
                record.buffers(net)
                loss.backward()
            if kind == "n":
                continue
            for parameter in net.parameters():
                if parameter.requires_grad:
                    record.number(parameter.grad is not None)
                    if parameter.grad is not None:
                        record.add(parameter.grad)
            optimizer.step()
    for parameter in net.parameters():
        record.add(parameter)
    record.buffers(net)


def run(rank, scenarios, folder, ranks):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), ranks), rank=rank,
                            world_size=ranks)
    for line in scenarios.read_text().splitlines():
        if line.startswith("#"):
            continue
        words, passes = line.split("|")
        name, *options = words.split()
        train(options, passes.split(), rank, Record(folder / f"{name}.{rank}"))
    dist.barrier()
    os._exit(0)  # torch's own end aborts at times: its threads race with the interpreter's


if __name__ == "__main__":
    mp.spawn(run, args=(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]), int(sys.argv[3])),
             nprocs=int(sys.argv[3]))
