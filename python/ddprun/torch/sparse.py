"""The all-reduce of sparse tensors."""

import torch
import torch.distributed as dist


def all_reduce(group, tensor, opts):
    """The sum of sparse tensors of one shape, in place. It has three steps, each of which waits for
    the others: sizes, indices, values; so the Work that it returns is done."""
    if tensor.layout is not torch.sparse_coo or tensor.device.type != "cpu":
        raise ValueError(f"ddp: all_reduce: a sparse tensor is {tensor.layout} on {tensor.device}")
    if getattr(opts.reduceOp, "op", opts.reduceOp) != dist.ReduceOp.RedOpType.SUM:
        raise ValueError("ddp: all_reduce: sparse tensors have a sum alone")
    size = group.size()
    own = tensor.coalesce()
    form = torch.tensor([own._nnz(), own.sparse_dim(), *own.shape])
    forms = form.new_empty(size, form.numel())
    group.all_gather_single(forms, form).wait()
    if not (forms[:, 1:] == form[1:]).all():
        raise ValueError(
            "ddp: all_reduce: the ranks have sparse tensors of different shapes: "
            + ", ".join(str(tuple(each[2:].tolist())) for each in forms)
        )
    counts = forms[:, 0].tolist()
    most = max(counts)

    def gathered(part):
        """Parts of all ranks, of which each has room for the longest."""
        padded = part.new_zeros(most, *part.shape[1:])
        padded[: part.size(0)] = part
        everyone = padded.new_empty(size, *padded.shape)
        work = group.all_gather_single(everyone, padded)
        work.wait()
        return work, torch.cat([each[:count] for each, count in zip(everyone, counts, strict=True)])

    with torch.no_grad():
        _, indices = gathered(own.indices().t().contiguous())
        work, values = gathered(own.values())
        total = torch.sparse_coo_tensor(indices.t(), values, own.shape).coalesce()
        tensor.copy_(total)
    work.operation.result = [tensor]
    return work
