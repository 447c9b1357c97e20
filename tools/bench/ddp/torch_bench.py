#!/usr/bin/env python3
"""ddp_bench's peer: the same steps of the same network by PyTorch's DistributedDataParallel over Gloo.

usage: torch_bench.py --ranks N --hidden H --layers L [--seconds S]

One JSON object per way of a step: without DDP (bare), with it (sync); milliseconds, the median over turns of the
slowest rank's, and of how much more that is than bare's (more_ms). Started without RANK it starts the ranks.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

BATCH, INPUTS, CLASSES, BATCHES_OF_SAMPLES = 64, 28 * 28, 10, 8
BLOCK_S, MOST_STEPS, FEWEST_TURNS, MOST_TURNS = 0.025, 50, 3, 51  # as turns.cc


def start_ranks(options):
    """This script again, once a rank; kills the rest when one fails."""
    with tempfile.TemporaryDirectory() as folder:
        env = {**os.environ, "WORLD_SIZE": str(options.ranks), "BENCH_INIT": f"file://{folder}/init",
               "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
        ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**env, "RANK": str(rank)})
                 for rank in range(options.ranks)]
        code, left = 0, list(ranks)
        while left:
            time.sleep(0.05)
            for rank in [rank for rank in left if rank.poll() is not None]:
                left.remove(rank)
                if rank.returncode != 0 and code == 0:
                    code = 1
                    for other in left:
                        other.kill()
        return code


def make_network(torch, options):
    torch.manual_seed(1)
    sizes = [INPUTS] + [options.hidden] * options.layers
    layers = []
    for inputs, outputs in zip(sizes, sizes[1:]):
        layers += [torch.nn.Linear(inputs, outputs), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(sizes[-1], CLASSES))


def make_step(torch, network, images, labels):
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9)
    steps = 0

    def step():
        nonlocal steps
        batch = slice(steps % BATCHES_OF_SAMPLES * BATCH, (steps % BATCHES_OF_SAMPLES + 1) * BATCH)
        steps += 1
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(network(images[batch]), labels[batch]).backward()
        optimizer.step()
    return step


def measure_in_turns(torch, dist, ways, seconds):
    """{way: (ms, more_ms)}; what turns.cc does."""
    def block(step, count):
        dist.barrier()
        begin = time.perf_counter()
        for _ in range(count):
            step()
        return (time.perf_counter() - begin) / count

    def slowest(values):
        tensor = torch.tensor(values, dtype=torch.float64)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        return tensor.tolist()

    for _ in range(2):
        warm = [block(step, 1) for step in ways.values()]
    warm = slowest(warm)
    counts = [min(max(int(BLOCK_S / s), 1), MOST_STEPS) for s in warm]
    turn_s = sum(s * count for s, count in zip(warm, counts))
    turns = min(max(int(seconds / turn_s), FEWEST_TURNS), MOST_TURNS)
    turns += -turns % len(ways)  # each way comes first as often as any other
    found = [[] for _ in ways]
    each = list(zip(found, ways.values(), counts))
    for turn in range(turns):
        for place in range(len(each)):
            times, step, count = each[(place + turn) % len(each)]
            times.append(block(step, count))
    found = [slowest(times) for times in found]
    median = lambda values: 1e3 * statistics.median(values)
    return {way: (median(times), median([a - b for a, b in zip(times, found[0])])) for way, times in zip(ways, found)}


def run_rank(options):
    import torch  # pylint: disable=import-outside-toplevel
    import torch.distributed as dist  # pylint: disable=import-outside-toplevel
    import torch.distributed.nn  # pylint: disable=import-outside-toplevel,unused-import  # see examples/train_torch.py
    torch.set_num_threads(1)
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=os.environ["BENCH_INIT"], rank=rank, world_size=world_size)
    torch.manual_seed(rank)
    images, labels = torch.rand(BATCHES_OF_SAMPLES * BATCH, INPUTS), torch.randint(
        CLASSES, (BATCHES_OF_SAMPLES * BATCH,))
    bare = make_step(torch, make_network(torch, options), images, labels)
    # Gradients lie in the buckets, as ddprun's do: PyTorch's fastest.
    ddp = torch.nn.parallel.DistributedDataParallel(make_network(torch, options), gradient_as_bucket_view=True)
    sync = make_step(torch, ddp, images, labels)

    found = measure_in_turns(torch, dist, {"bare": bare, "sync": sync}, options.seconds)
    parameters = sum(p.numel() for p in ddp.parameters())
    if rank == 0:
        for way, (ms, more_ms) in found.items():
            print(json.dumps({"way": way, "ms": ms, "more_ms": more_ms, "parameters": parameters}), flush=True)
    # Nobody needs an orderly end, and Gloo's has been seen to hang.
    sys.stdout.flush()
    os._exit(0)


def main():
    parser = argparse.ArgumentParser(description="Times steps of PyTorch's DistributedDataParallel over Gloo.")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--hidden", type=int, default=512, help="width of the hidden layers")
    parser.add_argument("--layers", type=int, default=2, help="hidden layers")
    parser.add_argument("--seconds", type=float, default=3, help="about so long")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        return start_ranks(options)
    run_rank(options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
