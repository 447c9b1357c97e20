#!/usr/bin/env python3
"""Learns to read digits with PyTorch's DistributedDataParallel: what examples/train does in C++.

    make_digits digits
    ddprun   --nproc-per-node=4 --max-restarts=3 train_torch.py --data digits --checkpoint_dir checkpoints --resume
    torchrun --nproc-per-node=4 --max-restarts=3 train_torch.py --data digits --checkpoint_dir checkpoints --resume

Each process trains on its own share of the images; DDP averages the gradients, so that all keep the
same weights. When a process dies the launcher starts all of them again, and --resume goes on from the
last checkpoint. Needs PyTorch and nothing else.
"""

import argparse
import gzip
import os
import sys
import time

import torch
import torch.distributed as dist
# DDP imports this later, and its default arguments would then hold the process group for ever: Gloo's threads
# would outlive destroy_process_group, and one that frees a tensor while Python ends aborts the process.
import torch.distributed.nn  # pylint: disable=unused-import
from torch import nn
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def parse_options():
    parser = argparse.ArgumentParser(description="Learns to read digits on all ranks.")
    parser.add_argument("--data", required=True, help="directory with MNIST's four files, plain or .gz")
    parser.add_argument("--epochs", type=int, default=3, help="passes over the data")
    parser.add_argument("--batch_size", type=int, default=64, help="images per rank and step")
    parser.add_argument("--lr", type=float, default=0.05, help="learning rate")
    parser.add_argument("--hidden", type=int, default=128, help="width of the hidden layer")
    parser.add_argument("--checkpoint_dir", help="where to save after each epoch; without it nothing is saved")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint, if there is one")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and of the order of the images")
    options = parser.parse_args()
    if options.resume and not options.checkpoint_dir:
        parser.error("--resume needs --checkpoint_dir")
    return options


def read_idx(directory, name):
    """One of MNIST's files as a tensor of bytes: a magic number, the sizes, then the bytes themselves."""
    for path in (os.path.join(directory, name + suffix) for suffix in ("", ".gz")):
        if os.path.exists(path):
            with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
                content = bytearray(file.read())
            sizes = [int.from_bytes(content[4 * i + 4:4 * i + 8], "big") for i in range(content[3])]
            return torch.frombuffer(content, dtype=torch.uint8, offset=4 + 4 * len(sizes)).reshape(sizes)
    sys.exit(f"train_torch.py: {os.path.join(directory, name)}: no such file, plain or .gz; "
             "--data takes a directory with MNIST's four files")


def load_images(directory, name):
    """(images, labels): pixels with MNIST's own mean and deviation, a row an image."""
    pixels = read_idx(directory, name + "-images-idx3-ubyte").flatten(1).float()
    return (pixels / 255 - 0.1307) / 0.3081, read_idx(directory, name + "-labels-idx1-ubyte").long()


def make_network(inputs, hidden, seed):
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))
    for layer in (network[0], network[2]):
        nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu")
        nn.init.zeros_(layer.bias)
    return network


def save_checkpoint(path, state):
    """The file holds the old state or the new one, whatever happens in between."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path + ".new", "wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    os.replace(path + ".new", path)


def sum_over_ranks(device, *numbers):
    total = torch.tensor(numbers, dtype=torch.float64, device=device)
    dist.all_reduce(total)
    return total.tolist()


def train_epoch(network, optimizer, batches, device):
    """Returns the mean loss over the images of all ranks, and the images a second."""
    loss_sum, count, begin = torch.zeros((), dtype=torch.float64, device=device), 0, time.monotonic()
    for images, labels in batches:
        images, labels = images.to(device), labels.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(network(images), labels)
        loss.backward()  # DDP averages the gradients meanwhile.
        optimizer.step()
        loss_sum += loss.detach() * len(labels)
        count += len(labels)
    loss_sum, count = sum_over_ranks(device, loss_sum.item(), count)
    return loss_sum / count, count / (time.monotonic() - begin)


@torch.no_grad()
def test_accuracy(network, images, labels, device):
    """Exact: every test image is judged by one rank."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    right = (network(images[mine].to(device)).argmax(1).cpu() == labels[mine]).sum().item()
    return sum_over_ranks(device, right)[0] / len(labels)


def train(options, device):
    is_rank0, world_size = dist.get_rank() == 0, dist.get_world_size()
    images, labels = load_images(options.data, "train")
    test_images, test_labels = load_images(options.data, "t10k")
    network = make_network(images.shape[1], options.hidden, options.seed).to(device)
    optimizer = torch.optim.SGD(network.parameters(), lr=options.lr, momentum=0.9)
    size = int(images.shape[1] ** 0.5)
    if is_rank0:
        print(f"training on {len(images)} images of {size} x {size}: {world_size} ranks ({dist.get_backend()}), "
              f"{options.batch_size * world_size} images a step", flush=True)

    path = os.path.join(options.checkpoint_dir, "checkpoint.pt") if options.checkpoint_dir else None
    epochs_done = 0
    if options.resume and os.path.exists(path):
        state = torch.load(path, map_location=device)
        network.load_state_dict(state["network"])
        optimizer.load_state_dict(state["optimizer"])
        epochs_done = state["epochs_done"]
        if is_rank0:
            print(f"resumed after epoch {epochs_done} from {path}", flush=True)
    if sum_over_ranks(device, epochs_done)[0] != epochs_done * world_size:
        sys.exit(f"train_torch.py: {path}: not the same file on all nodes; --checkpoint_dir takes a shared directory")

    ddp = DistributedDataParallel(network, device_ids=[device.index] if device.type == "cuda" else None)
    dataset = TensorDataset(images, labels)
    sampler = DistributedSampler(dataset, seed=options.seed)
    batches = DataLoader(dataset, options.batch_size, sampler=sampler)
    for epoch in range(epochs_done, options.epochs):
        sampler.set_epoch(epoch)  # another order each epoch
        loss, speed = train_epoch(ddp, optimizer, batches, device)
        accuracy = test_accuracy(network, test_images, test_labels, device)
        if is_rank0:
            print(f"epoch {epoch + 1}/{options.epochs}: loss {loss:.4f}, test accuracy {100 * accuracy:.2f} %, "
                  f"{speed:.0f} samples/s", flush=True)
            if path:
                save_checkpoint(path, {"network": network.state_dict(), "optimizer": optimizer.state_dict(),
                                       "epochs_done": epoch + 1})
    dist.barrier()  # Nobody leaves before the last checkpoint is complete.
    if is_rank0:
        print(f"checkpoint: {path or 'none'}", flush=True)


@record  # writes an exception to the error file, which the launcher's report then shows
def main():
    options = parse_options()
    if "RANK" not in os.environ:
        sys.exit("train_torch.py: start it with ddprun or torchrun")
    # GPUs where every process of this node has one of its own. (Not with --virtual-local-rank: a process
    # that sees one GPU cannot tell whether the others see the same one.)
    local_rank, local_size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    has_gpu = torch.cuda.device_count() >= local_size
    device = torch.device("cuda", local_rank) if has_gpu else torch.device("cpu")
    if has_gpu:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if has_gpu else "gloo", device_id=device if has_gpu else None)
    try:
        train(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
