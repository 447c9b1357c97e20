#!/usr/bin/env python3
"""What the check compares with: PyTorch's DistributedDataParallel over nccl.

torch_ddp.py facts                      what PyTorch there is
torch_ddp.py step DATA HIDDEN BATCH     the trainer's network, with DDP and without, one rank
torch_ddp.py job DATA                   a few steps on the ranks that ddprun started
"""

import glob
import os
import statistics
import sys
import time

TURNS, STEPS = 15, 60


def facts():
    print("text executable", sys.executable)
    try:
        import torch
    except ImportError as error:
        print("text lack", error)
        return 1
    if not torch.cuda.is_available():
        print(f"text lack PyTorch {torch.__version__} sees no GPU")
        return 1
    nccl = ".".join(map(str, torch.cuda.nccl.version()))
    print(f"text torch {torch.__version__}, CUDA {torch.version.cuda}, NCCL {nccl}")
    packages = os.path.dirname(os.path.dirname(torch.__file__))
    for name, file in (("nccl_file", "libnccl.so.2"), ("cublas_file", "libcublas.so.1[23]")):
        for path in sorted(glob.glob(f"{packages}/nvidia/*/lib/{file}"))[-1:]:
            print(f"text {name} {path}")
    return 0


def load(directory, device):
    import torch
    def read(name, header):
        with open(os.path.join(directory, name), "rb") as file:
            return torch.frombuffer(bytearray(file.read()[header:]), dtype=torch.uint8).to(device)
    images = read("train-images-idx3-ubyte", 16).view(-1, 28 * 28)
    return images, read("train-labels-idx1-ubyte", 8).long()


def network(hidden, device):
    import torch
    torch.manual_seed(1)
    return torch.nn.Sequential(torch.nn.Linear(28 * 28, hidden), torch.nn.ReLU(),
                               torch.nn.Linear(hidden, 10)).to(device)


class Loop:
    """Batches are slices of memory on the GPU, which costs less than ddprun's trainer pays."""

    def __init__(self, model, images, labels, batch):
        import torch
        self.model, self.images, self.labels, self.batch = model, images, labels, batch
        self.optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
        self.loss = torch.nn.CrossEntropyLoss()
        self.next = 0

    def step(self):
        begin = self.next % (len(self.images) - self.batch)
        self.next += self.batch
        x = self.images[begin:begin + self.batch].float() / 255
        loss = self.loss(self.model(x), self.labels[begin:begin + self.batch])
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss

    def milliseconds(self):
        import torch
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(STEPS):
            self.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begin) * 1000 / STEPS


def step(directory, hidden, batch):
    import torch
    from torch.nn.parallel import DistributedDataParallel
    device = torch.device("cuda", 0)
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl", store=torch.distributed.HashStore(), rank=0, world_size=1)
    images, labels = load(directory, device)
    loops = [Loop(DistributedDataParallel(network(hidden, device), device_ids=[0]), images, labels, batch),
             Loop(network(hidden, device), images, labels, batch)]
    times = [[], []]
    for loop in loops:
        loop.milliseconds()
    for turn in range(TURNS):
        for i in (turn % 2, 1 - turn % 2):
            times[i].append(loops[i].milliseconds())
    print("value with_ms", statistics.median(times[0]))
    print("value without_ms", statistics.median(times[1]))
    torch.distributed.destroy_process_group()
    return 0


def job(directory):
    import torch
    from torch.nn.parallel import DistributedDataParallel
    rank, local_rank = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    device = torch.device("cuda", local_rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    torch.distributed.init_process_group("nccl")
    ranks = torch.distributed.get_world_size()
    images, labels = load(directory, device)
    model = DistributedDataParallel(network(128, device), device_ids=[device.index])
    loop = Loop(model, images[rank::ranks], labels[rank::ranks], 64)
    losses = [loop.step().item() for _ in range(60)]
    # Replicas are equal on all ranks, or their mean is not one's own.
    checksum = sum(p.double().sum() for p in model.parameters())
    mean = checksum.clone()
    torch.distributed.all_reduce(mean)
    if abs(mean.item() / ranks - checksum.item()) > 1e-6 * abs(checksum.item()) + 1e-9:
        sys.exit(f"rank {rank}: the replicas differ: {checksum.item()}, mean {mean.item() / ranks}")
    if rank == 0:
        print("value first_loss", losses[0])
        print("value last_loss", losses[-1])
    torch.distributed.destroy_process_group()
    return 0


def main(arguments):
    if arguments == ["facts"]:
        return facts()
    if len(arguments) == 4 and arguments[0] == "step":
        return step(arguments[1], int(arguments[2]), int(arguments[3]))
    if len(arguments) == 2 and arguments[0] == "job":
        return job(arguments[1])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
