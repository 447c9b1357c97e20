"""Compares the backend "ddp" with Gloo on this machine:

    python -m ddprun.bench [--ranks 2,4] [--models mlp,wide,transformer] [--steps 30] [--seconds 150]
    ddprun --nnodes=2 --rdzv-endpoint=HOST:29400 -m ddprun.bench    # on each of two hosts

Each number of ranks is a run of its own; under a launcher its ranks are the one run. In it the two
take five turns: some steps over the one, some over the other. The figures are medians of rank 0. A
rank computes on one thread. "alone" is a step without DDP, "free" one of DDP whose all-reduce costs
nothing: no backend can be faster than that.

Where the time does not do, a row has fewer steps or turns and says so. What is measured is told on
stderr. Nothing is written to a disk, and the ranks end with whoever started them.
"""

import argparse
import ctypes
import functools
import gc
import math
import multiprocessing.connection
import os
import signal
import statistics
import sys
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
# What a run takes beside its steps: its processes start, import PyTorch and make their models.
START_S = 10
_PR_SET_PDEATHSIG = 1


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


class _Progress:
    """What is measured now, on stderr: one line that is written over where that is a terminal."""

    def __init__(self, is_shown):
        self._is_shown = is_shown
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    def say(self, text):
        if not self._is_shown:
            return
        if self._is_terminal:
            print("\r" + text.ljust(self._width), end="", file=sys.stderr, flush=True)
            self._width = len(text)
        else:
            print(text, file=sys.stderr, flush=True)

    def clear(self):
        if self._is_shown and self._is_terminal and self._width > 0:
            print("\r" + self._width * " ", end="\r", file=sys.stderr, flush=True)
            self._width = 0


class _Turns:
    """The turns of one measurement. Rank 0 has the clock and decides for all how much is done."""

    def __init__(self, ranks, what, seconds, progress):
        self._what = f"{ranks} ranks, {what}"
        self._end = time.monotonic() + seconds
        self._progress = progress
        self._last_s = 0.0
        self.done = 0
        self._is_cut = False

    def __iter__(self):
        for turn in range(TURNS):
            begin = time.monotonic()
            # One is always done.
            if turn > 0 and not self._agreed(int(begin + self._last_s <= self._end)):
                return
            self._progress.say(f"{self._what}: turn {turn + 1} of {TURNS}")
            yield turn
            self.done += 1
            self._last_s = time.monotonic() - begin

    def count(self, wanted, step_s, place, parts):
        """How many more steps of so long the part of this turn at `place` does: one at least."""
        left = max(0.0, self._end - time.monotonic())
        parts_left = parts * (TURNS - self.done) - place
        fitting = int(left / parts_left / max(step_s, 1e-6))
        count = self._agreed(max(1, min(wanted, fitting)))
        self._is_cut = self._is_cut or count < wanted
        return count

    def note(self):
        """What was left out; empty: nothing."""
        if self.done == TURNS and not self._is_cut:
            return ""
        return f"  ({self.done} of {TURNS} turns{', fewer steps' if self._is_cut else ''})"

    def _agreed(self, value):
        told = torch.tensor([value])
        dist.broadcast(told, 0)
        return int(told)


def _block(step, wanted, turns, place):
    """Milliseconds of each step."""
    dist.barrier()
    first_s = step() / 1000  # of the warm-up
    count = turns.count(WARM_UP - 1 + wanted, first_s, place, len(COLUMNS))
    times = []
    for _ in range(count):
        dist.barrier()
        times.append(step())
    return times[min(WARM_UP - 1, count - 1) :]


def _steps(groups, name, steps, turns):
    """Milliseconds of a step by backend, and of one without any; millions of parameters."""
    make, make_data = MODELS[name]
    times = {backend: [] for backend in (*BACKENDS, "alone", "free")}
    torch.manual_seed(dist.get_rank())
    data = make_data()
    wanted = math.ceil(steps / TURNS)
    for _ in turns:
        for place, backend in enumerate(times):  # one model at a time: four would not fit
            model, optimizer = _model(make, backend, groups)
            count = sum(each.numel() for each in model.parameters())
            step = functools.partial(_one_step, backend, model, optimizer, *data)
            times[backend] += _block(step, wanted, turns, place)
            del model, optimizer, step
            gc.collect()
    return {backend: statistics.median(each) for backend, each in times.items()}, count / 1e6


def _small_calls(groups, turns):
    """Microseconds of an all-reduce of 4 KiB by backend."""
    tensor = torch.zeros(1024)
    times = {backend: [] for backend in BACKENDS}
    for _ in turns:
        for place, backend in enumerate(BACKENDS):
            dist.barrier()
            started = time.perf_counter()
            dist.all_reduce(tensor, group=groups[backend])
            first_s = time.perf_counter() - started
            calls = turns.count(SMALL_CALLS, first_s, place, len(BACKENDS))
            dist.barrier()
            started = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(tensor, group=groups[backend])
            times[backend].append(1e6 * (time.perf_counter() - started) / calls)
    return {backend: statistics.median(each) for backend, each in times.items()}


def _spawned(parent, rank, ranks, port, options, end):
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal's: the parent ends its ranks
    # Also where the parent is killed: it ends what it has started in every other case.
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it was killed before that
        os._exit(1)
    store = dist.TCPStore("127.0.0.1", port, None, False)
    dist.init_process_group("ddp", store=store, rank=rank, world_size=ranks)
    _run(rank, ranks, options, end)


def _run(rank, ranks, options, end):
    torch.set_num_threads(1)
    groups = {backend: dist.new_group(backend=backend) for backend in BACKENDS}
    groups["free"] = _free_group()
    progress = _Progress(rank == 0)
    # A turn has its costs beside the steps, which a small network has as well.
    longest = max(options.step_s.values())
    weights = {name: options.step_s[name] + longest / 4 for name in options.models}
    small = longest / 4

    def turns(what, weight, rest):
        """Its part of the time that is left, beside those that come behind it."""
        left = max(0.0, end - time.monotonic())
        return _Turns(ranks, what, left * weight / (weight + rest), progress)

    def say(what, found, unit, note):
        progress.clear()
        if rank == 0:
            figures = " ".join(
                f"{found[each]:9.2f}" if each in found else 9 * " " for each in COLUMNS
            )
            most = f"{found['gloo'] / found['free']:6.2f}" if "free" in found else 6 * " "
            ratio = f"{found['gloo'] / found['ddp']:6.2f}"
            print(f"{ranks:5}  {what:32} {figures} {unit} {ratio} {most}{note}".rstrip(), flush=True)

    own = turns("all-reduce of 4 KiB", small, sum(weights.values()))
    say("all-reduce of 4 KiB", _small_calls(groups, own), "us", own.note())
    for place, name in enumerate(options.models):
        rest = sum(weights[each] for each in options.models[place + 1 :])
        own = turns(name, weights[name], rest)
        found, millions = _steps(groups, name, options.steps, own)
        say(f"step, {name}, {millions:.2f} M", found, "ms", own.note())
    dist.destroy_process_group()


def _step_seconds(name):
    """Of one step of this process alone."""
    make, make_data = MODELS[name]
    model, data, target = make(), *make_data()
    took = []
    for _ in range(2):
        started = time.monotonic()
        torch.nn.functional.cross_entropy(model(data), target).backward()
        took.append(time.monotonic() - started)
    return min(took)


def _estimate_s(ranks, options):
    """Of a run with so many ranks, which share the processors."""
    crowd = max(1, ranks / len(os.sched_getaffinity(0)))
    steps = len(COLUMNS) * TURNS * (WARM_UP + math.ceil(options.steps / TURNS))
    return START_S + crowd * steps * sum(options.step_s[name] for name in options.models)


def _start(ranks, options, end):
    """A run on this machine, until it has ended."""
    store = dist.TCPStore("127.0.0.1", 0, None, True, wait_for_workers=False)
    # Not PyTorch's spawn(), which keeps a file for each process.
    context = multiprocessing.get_context("spawn")
    processes = [
        context.Process(
            target=_spawned,
            args=(os.getpid(), rank, ranks, store.port, options, end),
            daemon=True,
        )
        for rank in range(ranks)
    ]
    try:
        for process in processes:
            process.start()
        running = list(processes)
        while running:
            multiprocessing.connection.wait([each.sentinel for each in running])
            for rank, process in enumerate(processes):
                if process.exitcode not in (None, 0):
                    sys.exit(f"ddprun.bench: rank {rank} of {ranks} ended with {process.exitcode}")
            running = [each for each in running if each.exitcode is None]
    finally:
        started = [each for each in processes if each.pid is not None]
        for process in started:
            process.kill()
        for process in started:
            process.join()


def _end_by(number, _frame):
    sys.exit(128 + number)


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
    parser.add_argument(
        "--seconds",
        type=_count,
        default=150,
        metavar="S",
        help="about so long at most, with fewer steps and turns where that does not do; default 150",
    )
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    torch.set_num_threads(1)
    options.step_s = {name: _step_seconds(name) for name in options.models}
    if "RANK" in os.environ:
        dist.init_process_group("ddp")
        if dist.get_rank() == 0:
            _say_heading()
        _run(dist.get_rank(), dist.get_world_size(), options, end)
        return
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        # What is ignored stays so: under nohup, and in a script's background.
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, _end_by)
    _say_heading()
    estimates = {ranks: _estimate_s(ranks, options) for ranks in options.ranks}
    print(
        f"ddprun.bench: this takes about {min(sum(estimates.values()), options.seconds):.0f} s",
        file=sys.stderr,
        flush=True,
    )
    for place, ranks in enumerate(options.ranks):
        rest = sum(estimates[each] for each in options.ranks[place + 1 :])
        left = max(0.0, end - time.monotonic())
        _start(ranks, options, time.monotonic() + left * estimates[ranks] / (estimates[ranks] + rest))


if __name__ == "__main__":
    sys.exit(main())
