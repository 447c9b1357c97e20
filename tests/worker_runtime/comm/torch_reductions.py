"""All-reduces of torch.distributed over gloo, of two ranks.

Reads <folder>/<type>.<rank>, raw elements; rank 0 writes <folder>/<type>.<reduction>.
"""
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

TYPES = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8"]
REDUCTIONS = {
    "sum": dist.ReduceOp.SUM,
    "max": dist.ReduceOp.MAX,
    "min": dist.ReduceOp.MIN,
    "product": dist.ReduceOp.PRODUCT,
    "bitwise and": dist.ReduceOp.BAND,
    "bitwise or": dist.ReduceOp.BOR,
    "bitwise xor": dist.ReduceOp.BXOR,
}


def reduce_all(rank, folder):
    dist.init_process_group("gloo", store=dist.FileStore(str(folder / "store"), 2), rank=rank,
                            world_size=2)
    for name in TYPES:
        for reduction, op in REDUCTIONS.items():
            if "bitwise" in reduction and "float" in name:
                continue
            data = bytearray((folder / f"{name}.{rank}").read_bytes())
            tensor = torch.frombuffer(data, dtype=getattr(torch, name))
            dist.all_reduce(tensor, op=op)
            if rank == 0:
                (folder / f"{name}.{reduction}").write_bytes(data)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(reduce_all, args=(pathlib.Path(sys.argv[1]),), nprocs=2)
