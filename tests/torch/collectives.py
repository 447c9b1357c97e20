"""Every collective of torch.distributed over "ddp" gives what it gives over Gloo, or, where Gloo
has none, what its definition says. Run under ddprun with any number of ranks."""

import itertools

import torch
import torch.distributed as dist

import ddprun.torch  # noqa: F401

DTYPES = [
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
]
Op = dist.ReduceOp
OPS = [Op.SUM, Op.MAX, Op.MIN, Op.PRODUCT]
BIT_OPS = [Op.BAND, Op.BOR, Op.BXOR]


def values(dtype, count, seed=0):
    """Small whole numbers, of which sums and products are exact in every type."""
    generator = torch.Generator().manual_seed(1000 * seed + dist.get_rank())
    return torch.randint(1, 3, (count,), generator=generator).to(dtype)


def both(gloo, call, tensors):
    """Calls it over both, with copies, and compares what is left in the tensors."""
    results = []
    for group in (None, gloo):
        copies = [each.clone() for each in tensors]
        call(group, *copies)
        results.append(copies)
    for ours, theirs in zip(*results, strict=True):
        assert torch.equal(ours, theirs), f"{call.__name__}: {ours} over ddp, {theirs} over gloo"


def check_reductions(gloo, rank, size):
    for dtype, count in itertools.product(DTYPES, (0, 1, 1000, 100_000)):
        for op in OPS + ([] if dtype.is_floating_point else BIT_OPS):

            def all_reduce(group, tensor, op=op):
                dist.all_reduce(tensor, op=op, group=group)

            both(gloo, all_reduce, [values(dtype, count)])
    for dtype in DTYPES:
        root = size - 1
        tensor = values(dtype, 100)
        total = tensor.clone()
        dist.all_reduce(total)
        dist.reduce(tensor, root)
        assert rank != root or torch.equal(tensor, total)
        parts = [values(dtype, 50, seed) for seed in range(size)]
        sums = [each.clone() for each in parts]
        for each in sums:
            dist.all_reduce(each)
        output = torch.empty(50, dtype=dtype)
        dist.reduce_scatter(output, [each.clone() for each in parts])
        assert torch.equal(output, sums[rank])
        dist.reduce_scatter_tensor(output, torch.cat(parts))
        assert torch.equal(output, sums[rank])
    average = torch.full((3,), float(rank))
    dist.all_reduce(average, op=Op.AVG)
    assert torch.equal(average, torch.full((3,), (size - 1) / 2))
    own = [0 < rank, rank < size - 1, False, True]  # of all ranks: or and and
    either = [size > 1, size > 1, False, True]
    every = [False, False, False, True]
    for op, expected in (
        (Op.SUM, either),
        (Op.MAX, either),
        (Op.BOR, either),
        (Op.MIN, every),
        (Op.PRODUCT, every),
        (Op.BAND, every),
    ):
        bools = torch.tensor(own)
        dist.all_reduce(bools, op=op)
        assert bools.tolist() == expected, (op, bools)
    options = dist.AllreduceOptions()
    for dtype in (torch.complex64, torch.complex128):
        # PyTorch's function would show a group real numbers.
        numbers = torch.tensor([complex(rank, 1), complex(0, -rank)], dtype=dtype)
        dist.distributed_c10d._get_default_group().allreduce([numbers], options).wait()
        total = sum(range(size))
        assert numbers.tolist() == [complex(total, size), complex(0, -total)], numbers
    uneven = [torch.ones(seed + 1) for seed in range(size)]
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, uneven)
    assert torch.equal(output, torch.full((rank + 1,), float(size)))


def check_moves(gloo, rank, size):
    moved = DTYPES + [torch.bool, torch.int16, torch.complex64]
    for dtype in moved:
        tensor = values(torch.int32, 6, 1)
        tensor = tensor.eq(2) if dtype is torch.bool else tensor.to(dtype)
        copy = tensor.clone()
        dist.broadcast(copy, 0)
        everyone = [torch.empty_like(tensor) for _ in range(size)]
        dist.all_gather(everyone, tensor)
        assert torch.equal(everyone[0], copy) and torch.equal(everyone[rank], tensor)
        flat = torch.empty(6 * size, dtype=dtype)
        dist.all_gather_into_tensor(flat, tensor)
        assert torch.equal(flat, torch.cat(everyone))
        gathered = [torch.empty_like(tensor) for _ in range(size)] if rank == 0 else None
        dist.gather(tensor, gathered, dst=0)
        assert rank != 0 or all(map(torch.equal, gathered, everyone))
        part = torch.empty_like(tensor)
        dist.scatter(part, everyone if rank == 0 else None, src=0)
        assert torch.equal(part, tensor)
    # From others' strides.
    columns = torch.arange(6.0).view(2, 3).t() + rank
    dist.all_reduce(columns)
    assert torch.equal(columns, torch.arange(6.0).view(2, 3).t() * size + sum(range(size)))
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": each} for each in range(size)]
    sparse = torch.sparse_coo_tensor([[rank, size]], [1.0, 2.0], (size + 1,))
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [1.0] * size + [2.0 * size]


def check_exchanges(gloo, rank, size):
    even = torch.arange(2.0 * size) + 100 * rank
    output = torch.empty(2 * size)
    dist.all_to_all_single(output, even)
    expected = [100.0 * other + 2 * rank + k for other in range(size) for k in range(2)]
    assert output.tolist() == expected
    parts = [torch.full((other + 1, 2), float(rank)) for other in range(size)]
    outputs = [torch.empty(rank + 1, 2) for _ in range(size)]
    dist.all_to_all(outputs, parts)
    assert all(bool((each == other).all()) for other, each in enumerate(outputs))
    output = torch.empty(size * (rank + 1), 2)
    dist.all_to_all_single(
        output, torch.cat(parts), [rank + 1] * size, [other + 1 for other in range(size)]
    )
    assert torch.equal(output, torch.cat(outputs))


def check_messages(gloo, rank, size):
    if size == 1:
        return
    right, left = (rank + 1) % size, (rank - 1) % size
    got = torch.empty(1000)
    requests = [
        dist.irecv(got, left, tag=5),
        dist.isend(torch.full((1000,), float(rank)), right, tag=5),
    ]
    for request in requests:
        request.wait()
    assert bool((got == left).all())
    got.zero_().sub_(1)
    operations = [
        dist.P2POp(dist.isend, torch.full((3,), float(rank)), right),
        dist.P2POp(dist.irecv, got[:3], left),
    ]
    for request in dist.batch_isend_irecv(operations):
        request.wait()
    assert got.tolist() == [float(left)] * 3 + [-1.0] * 997
    if rank == 0:
        sources = {dist.recv(got) for _ in range(size - 1)}
        assert sources == set(range(1, size)), sources
    else:
        dist.send(torch.zeros(1000), 0)


def check_groups(gloo, rank, size):
    even = list(range(0, size, 2))
    group = dist.new_group(even)
    if rank in even:
        tensor = torch.ones(4)
        dist.all_reduce(tensor, group=group)
        assert torch.equal(tensor, torch.full((4,), float(len(even))))
        dist.destroy_process_group(group)
    with dist._coalescing_manager():
        tensors = [torch.full((n,), 1.0) for n in (1, 2, 3)]
        for tensor in tensors:
            dist.all_reduce(tensor)
    assert all(bool((each == size).all()) for each in tensors)


def main():
    dist.init_process_group("ddp")
    gloo = dist.new_group(backend="gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    for check in (
        check_reductions,
        check_moves,
        check_exchanges,
        check_messages,
        check_groups,
    ):
        check(gloo, rank, size)
    dist.barrier()
    dist.destroy_process_group()
    print("all checks passed")


if __name__ == "__main__":
    main()
