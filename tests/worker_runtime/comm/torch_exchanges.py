"""What torch.distributed over gloo makes of gather, scatter, all-to-all, send and receive.

Reads <folder>/in.<rank>: world size x COUNT float32 of each of RANKS ranks. Writes
<folder>/<operation>.<rank>: what that rank has afterwards.
"""
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

RANKS = 3
COUNT = 1001
ROOT = 1


def exchange_all(rank, folder):
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), RANKS), rank=rank,
                            world_size=RANKS)
    data = torch.frombuffer(bytearray((folder / f"in.{rank}").read_bytes()), dtype=torch.float32)
    parts = list(data.split(COUNT))

    def write(name, tensor):
        (folder / f"{name}.{rank}").write_bytes(tensor.numpy().tobytes())

    gathered = [torch.zeros(COUNT) for _ in range(RANKS)] if rank == ROOT else None
    dist.gather(parts[0], gathered, dst=ROOT)
    if rank == ROOT:
        write("gather", torch.cat(gathered))
    mine = torch.zeros(COUNT)
    dist.scatter(mine, parts if rank == ROOT else None, src=ROOT)
    write("scatter", mine)
    exchanged = torch.zeros(RANKS * COUNT)
    dist.all_to_all_single(exchanged, data)
    write("all-to-all", exchanged)
    reduced = parts[0].clone()
    dist.reduce(reduced, dst=ROOT, op=dist.ReduceOp.MAX)
    if rank == ROOT:
        write("reduce", reduced)
    received = torch.zeros(COUNT)
    sent = dist.isend(parts[1], (rank + 1) % RANKS)
    dist.recv(received, (rank + RANKS - 1) % RANKS)
    sent.wait()
    write("send-receive", received)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(exchange_all, args=(pathlib.Path(sys.argv[1]),), nprocs=RANKS)
