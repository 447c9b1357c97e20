"""Compares the backend "ddp" with Gloo on this machine:

    python -m ddprun.bench [--ranks 2,4] [--models mlp,wide,transformer] [--steps 30]
    ddprun --nnodes=2 --rdzv_endpoint=HOST:29400 -m ddprun.bench    # on each of two hosts

Each number of ranks is a run of its own; under a launcher its ranks are the one run. In it the two
take five turns: some steps over the one, some over the other. The figures are medians of rank 0. A
rank computes on one thread. "alone" is a step without DDP, "free" one of DDP whose all-reduce costs
nothing: no backend can be faster than that.
"""

import argparse
import gc
import math
import os
import statistics
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # noqa: F401

BATCH = 64
BACKENDS = ("gloo", "ddp")
COLUMNS = ("alone", "free", *BACKENDS)
SMALL_CALLS = 300
TURNS = 5
WARM_UP = 3


def _perceptron(width, depth):
    layers = [torch.nn.Linear(784, width), torch.nn.ReLU()]
    for _ in range(depth - 1):
        layers += [torch.nn.Linear(width, width), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(width, 10))


class _Transformer(torch.nn.Module):
    """The sizes of GPT-2's smallest, 124 million parameters; 64 tokens a step."""

    def __init__(self, vocabulary=50257, width=768, depth=12, heads=12):
        super().__init__()
        self.tokens = torch.nn.Embedding(vocabulary, width)
        self.positions = torch.nn.Embedding(1024, width)
        layer = torch.nn.TransformerEncoderLayer(
            width, heads, 4 * width, dropout=0.0, activation="gelu", batch_first=True
        )
        self.layers = torch.nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.head = torch.nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, data):
        place = torch.arange(data.size(1))
        return self.head(self.layers(self.tokens(data) + self.positions(place))).flatten(0, 1)


def _images():
    return torch.randn(BATCH, 784), torch.randint(0, 10, (BATCH,))


def _text():
    tokens = torch.randint(0, 50257, (1, 65))
    return tokens[:, :-1], tokens[:, 1:].flatten()


MODELS = {
    "mlp": (lambda: _perceptron(512, 2), _images),
    "wide": (lambda: _perceptron(2600, 4), _images),
    "transformer": (_Transformer, _text),
}


class _Done(dist._Work):
    def __init__(self, result):
        super().__init__()
        self._future = torch.futures.Future()
        self._future.set_result(result)

    def wait(self, _timeout=None):
        return True

    def get_future(self):
        return self._future


def _free_group():
    """What an all-reduce that costs nothing would be."""
    group = dist.new_group(backend="ddp")
    group.allreduce = lambda tensors, _options: _Done(tensors)
    return group


def _model(make, backend, groups):
    torch.manual_seed(0)
    model = make()
    if backend != "alone":
        model = DistributedDataParallel(
            model, process_group=groups[backend], gradient_as_bucket_view=True
        )
    return model, torch.optim.SGD(model.parameters(), lr=0.01)


def _one_step(backend, model, optimizer, data, target):
    """Milliseconds."""
    started = time.perf_counter()
    optimizer.zero_grad()
    torch.nn.functional.cross_entropy(model(data), target).backward()
    optimizer.step()
    if backend == "free":
        dist.barrier()  # as every reduction waits for the slowest rank
    return 1000 * (time.perf_counter() - started)


def _steps(groups, name, steps):
    """Milliseconds of a step by backend, and of one without any; millions of parameters."""
    make, make_data = MODELS[name]
    times = {backend: [] for backend in (*BACKENDS, "alone", "free")}
    torch.manual_seed(dist.get_rank())
    data = make_data()
    for _ in range(TURNS):
        for backend in times:  # one model at a time: four would not fit beside each other
            model, optimizer = _model(make, backend, groups)
            count = sum(each.numel() for each in model.parameters())
            for step in range(WARM_UP + math.ceil(steps / TURNS)):
                dist.barrier()
                took = _one_step(backend, model, optimizer, *data)
                if step >= WARM_UP:
                    times[backend].append(took)
            del model, optimizer
            gc.collect()
    return {backend: statistics.median(each) for backend, each in times.items()}, count / 1e6


def _small_calls(groups):
    """Microseconds of an all-reduce of 4 KiB by backend."""
    tensor = torch.zeros(1024)
    times = {backend: [] for backend in BACKENDS}
    for _ in range(TURNS):
        for backend in BACKENDS:
            dist.barrier()
            started = time.perf_counter()
            for _ in range(SMALL_CALLS):
                dist.all_reduce(tensor, group=groups[backend])
            times[backend].append(1e6 * (time.perf_counter() - started) / SMALL_CALLS)
    return {backend: statistics.median(each) for backend, each in times.items()}


def _spawned(rank, ranks, store, options):
    dist.init_process_group("ddp", store=dist.FileStore(store, ranks), rank=rank, world_size=ranks)
    _run(rank, ranks, options)


def _run(rank, ranks, options):
    torch.set_num_threads(1)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    groups["free"] = _free_group()

    def say(what, found, unit):
        if rank == 0:
            figures = " ".join(
                f"{found[each]:9.2f}" if each in found else 9 * " " for each in COLUMNS
            )
            most = f"{found['gloo'] / found['free']:6.2f}" if "free" in found else ""
            print(
                f"{ranks:5}  {what:32} {figures} {unit} {found['gloo'] / found['ddp']:6.2f} {most}",
                flush=True,
            )

    say("all-reduce of 4 KiB", _small_calls(groups), "us")
    for name in options.models:
        found, millions = _steps(groups, name, options.steps)
        say(f"step, {name}, {millions:.2f} M", found, "ms")
    dist.destroy_process_group()


def _names(known, text):
    names = text.split(",")
    unknown = [each for each in names if each not in known]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]!r} is none of {', '.join(known)}")
    return names


def _numbers(text):
    if not all(each.isdigit() and 1 <= int(each) <= 64 for each in text.split(",")):
        raise argparse.ArgumentTypeError(f"{text!r} is no list of numbers from 1 to 64, as 2,4")
    return [int(each) for each in text.split(",")]


def _count(text):
    if not text.isdigit() or not 1 <= int(text) <= 10_000:
        raise argparse.ArgumentTypeError(f"{text!r} is no number from 1 to 10000")
    return int(text)


def _say_heading():
    print(
        f"PyTorch {torch.__version__}, {os.cpu_count()} CPUs; ratio: gloo / ddp; most: gloo / free"
    )
    print(f"ranks  {'':32} {' '.join(f'{each:>9}' for each in COLUMNS)}     ratio   most")


def main():
    parser = argparse.ArgumentParser(
        prog="python -m ddprun.bench",
        description=__doc__.split(":")[0] + ".",
        epilog=__doc__.split("\n\n")[2],
    )
    parser.add_argument(
        "--ranks",
        type=_numbers,
        default=[2, 4],
        metavar="N,..",
        help="how many processes, one run each; default 2,4",
    )
    parser.add_argument(
        "--models",
        type=lambda text: _names(list(MODELS), text),
        default=["mlp", "wide"],
        metavar="NAME,..",
        help=", ".join(MODELS) + "; default mlp,wide; transformer takes 2 GB for each rank",
    )
    parser.add_argument(
        "--steps", type=_count, default=30, metavar="N", help="of each kind; default 30"
    )
    options = parser.parse_args()
    if "RANK" in os.environ:
        dist.init_process_group("ddp")
        if dist.get_rank() == 0:
            _say_heading()
        _run(dist.get_rank(), dist.get_world_size(), options)
        return
    _say_heading()
    for ranks in options.ranks:
        with tempfile.TemporaryDirectory(prefix="ddprun-bench-") as folder:
            arguments = (ranks, os.path.join(folder, "store"), options)
            torch.multiprocessing.spawn(_spawned, args=arguments, nprocs=ranks)


if __name__ == "__main__":
    sys.exit(main())
