"""Tensors as libddp takes them: dense, in this host's memory, of a type that it knows."""

import torch
import torch.distributed as dist

_UINT8 = 6
_TYPES = {
    torch.float32: 0,
    torch.float64: 1,
    torch.float16: 2,
    torch.bfloat16: 3,
    torch.int32: 4,
    torch.int64: 5,
    torch.uint8: _UINT8,
    torch.bool: _UINT8,
    torch.int8: 7,
}

_SUM, _AVERAGE, _MAX, _MIN, _PRODUCT = 0, 1, 2, 3, 4
_RedOpType = dist.ReduceOp.RedOpType
_OPERATIONS = {
    _RedOpType.SUM: _SUM,
    _RedOpType.AVG: _AVERAGE,
    _RedOpType.MAX: _MAX,
    _RedOpType.MIN: _MIN,
    _RedOpType.PRODUCT: _PRODUCT,
    _RedOpType.BAND: 5,
    _RedOpType.BOR: 6,
    _RedOpType.BXOR: 7,
}
# True is 1, and 1 + 1 is no bool.
_OPERATIONS_OF_BOOL = {_SUM: _MAX, _PRODUCT: _MIN}


def not_here(kind):
    """What is said behind the name of another device than the CPU."""
    text = "and this group is for tensors on the CPU"
    if kind == "cuda":
        text += ': init_process_group("cpu:ddp,cuda:nccl") makes one for both'
    return text


def check(call, tensor):
    """Raises ValueError for a tensor that cannot be sent or received."""
    if tensor.device.type != "cpu":
        raise ValueError(
            f"ddp: {call}: a tensor is on {tensor.device}, {not_here(tensor.device.type)}"
        )
    if tensor.layout is not torch.strided:
        raise ValueError(f"ddp: {call}: a tensor is sparse ({tensor.layout}); only dense ones go")
    if tensor.is_quantized:
        raise ValueError(
            f"ddp: {call}: a tensor is quantized ({tensor.dtype}); send its int_repr()"
        )


def readable(call, tensor):
    """`tensor`, or a contiguous copy of it."""
    check(call, tensor)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor if tensor.is_contiguous() else tensor.contiguous()


def writable(call, tensor):
    """`tensor`, or contiguous memory of its shape from which it is copied afterwards."""
    check(call, tensor)
    if tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    if torch._debug_has_internal_overlap(tensor) == 1:
        raise ValueError(
            f"ddp: {call}: elements of an output of shape {tuple(tensor.shape)} share memory (as "
            "after expand()): clone() it first"
        )
    return torch.empty_like(tensor, memory_format=torch.contiguous_format)


def moved(tensor):
    """Count and type of a tensor whose bytes are moved alone, whatever they mean."""
    dtype = _TYPES.get(tensor.dtype)
    if dtype is None:
        return tensor.numel() * tensor.element_size(), _UINT8
    return tensor.numel(), dtype


def reducible(call, tensor, reduce_op):
    """Count, type and operation for a tensor whose elements are combined."""
    kind = getattr(reduce_op, "op", reduce_op)
    operation = _OPERATIONS.get(kind)
    if operation is None:
        raise ValueError(f"ddp: {call}: there is no {kind} on the CPU")
    dtype = tensor.dtype
    count = tensor.numel()
    if dtype.is_complex:
        if operation not in (_SUM, _AVERAGE):
            raise ValueError(f"ddp: {call}: complex numbers have a sum and an average, no {kind}")
        dtype = torch.float32 if dtype is torch.complex64 else torch.float64
        count *= 2
        if tensor.dtype not in (torch.complex64, torch.complex128):
            dtype = None
    elif dtype is torch.bool:
        operation = _OPERATIONS_OF_BOOL.get(operation, operation)
        if operation == _AVERAGE:
            raise ValueError(f"ddp: {call}: bool has no average")
    number = _TYPES.get(dtype)
    if number is None:
        raise ValueError(f"ddp: {call}: elements of {tensor.dtype} cannot be combined")
    return count, number, operation


def only(call, tensors):
    """The one tensor of a list."""
    if len(tensors) != 1:
        raise ValueError(f"ddp: {call}: {len(tensors)} tensors of one rank, and one is expected")
    return tensors[0]


def check_alike(call, name, tensors, like):
    """All as `like`, in type and number of elements."""
    for index, tensor in enumerate(tensors):
        if tensor.dtype != like.dtype or tensor.numel() != like.numel():
            raise ValueError(
                f"ddp: {call}: {name} {index} has {tensor.numel()} elements of {tensor.dtype}, and "
                f"{like.numel()} of {like.dtype} are expected"
            )
