"""torch.distributed's collectives, each as calls of libddp. The methods have the names and the
arguments with which torch.distributed calls a process group (2.4 to 2.15)."""

import torch
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceCoalescedOptions,
    AllreduceOptions,
    BroadcastOptions,
    GatherOptions,
    ReduceOptions,
    ReduceScatterOptions,
    ScatterOptions,
)

from ddprun.library import lib
from ddprun.torch import sparse
from ddprun.torch.group import Group
from ddprun.torch.messages import Messages
from ddprun.torch.tensors import check, check_alike, moved, only, readable, reducible, writable


def _copied(pairs):
    """What moves results from memory of ours to the user's; None where there is nothing to do."""
    pairs = [(to, source) for to, source in pairs if to is not source]
    if not pairs:
        return None

    def copy(_operation):
        for to, source in pairs:
            to.copy_(source.view_as(to))

    return copy


def _joined(tensors):
    """Tensors of one size and type, one behind the other."""
    return torch.cat([each.reshape(-1) for each in tensors])


class Collectives(Messages, Group):
    """Mixed into a class of torch.distributed."""

    # ---- reductions

    def allreduce(self, tensors, opts=None):
        tensor = only("all_reduce", tensors)
        opts = opts or AllreduceOptions()
        if tensor.layout is not torch.strided:
            return sparse.all_reduce(self, tensor, opts)
        data = readable("all_reduce", tensor)
        count, dtype, operation = reducible("all_reduce", data, opts.reduceOp)
        after = None if data is tensor else _copied_in_place("all_reduce", tensor, data)
        handle = self._call(
            lib.ddp_all_reduce,
            data.data_ptr(),
            count,
            dtype,
            operation,
            None,
            timeout=opts.timeout,
        )
        return self._work([handle], data, tensors, after)

    def allreduce_coalesced(self, tensors, opts=None):
        opts = opts or AllreduceCoalescedOptions()
        return self._several(
            [self.allreduce([tensor], opts) for tensor in tensors],
            tensors,
        )

    def reduce(self, tensors, opts=None):
        tensor = only("reduce", tensors)
        opts = opts or ReduceOptions()
        data = readable("reduce", tensor)
        count, dtype, operation = reducible("reduce", data, opts.reduceOp)
        is_root = opts.rootRank == self._rank
        output = writable("reduce", tensor) if is_root else None
        handle = self._call(
            lib.ddp_reduce,
            data.data_ptr(),
            output.data_ptr() if is_root else None,
            count,
            dtype,
            operation,
            opts.rootRank,
            None,
            timeout=opts.timeout,
        )
        after = _copied([(tensor, output)]) if is_root else None
        return self._work([handle], (data, output), tensors, after)

    def reduce_scatter_single(self, output, tensor, opts=None):
        opts = opts or ReduceScatterOptions()
        if tensor.dtype != output.dtype or tensor.numel() != output.numel() * self._size:
            raise ValueError(
                f"ddp: reduce_scatter_tensor: the input has {tensor.numel()} elements of "
                f"{tensor.dtype}, and {self._size} times the output's {output.numel()} of "
                f"{output.dtype} are expected"
            )
        data = readable("reduce_scatter_tensor", tensor)
        target = writable("reduce_scatter_tensor", output)
        count, dtype, operation = reducible("reduce_scatter_tensor", target, opts.reduceOp)
        handle = self._call(
            lib.ddp_reduce_scatter,
            data.data_ptr(),
            target.data_ptr(),
            count,
            dtype,
            operation,
            None,
            timeout=opts.timeout,
        )
        return self._work([handle], (data, target), [output], _copied([(output, target)]))

    def reduce_scatter(self, outputs, inputs, opts=None):
        output = only("reduce_scatter", outputs)
        parts = only("reduce_scatter", inputs)
        self._check_parts("reduce_scatter", "input", parts)
        opts = opts or ReduceScatterOptions()
        for part in parts:
            check("reduce_scatter", part)
        if any(part.numel() != output.numel() for part in parts):
            return self._reduce_scatter_uneven(output, parts, opts)
        work = self.reduce_scatter_single(output, _joined(parts), opts)
        return self._several([work], outputs)

    def _reduce_scatter_uneven(self, output, parts, opts):
        """Parts of different sizes: each is reduced to its rank."""
        check_alike("reduce_scatter", "output", [output], parts[self._rank])
        works = []
        for root, part in enumerate(parts):
            options = ReduceOptions()
            options.reduceOp = opts.reduceOp
            options.rootRank = root
            options.timeout = opts.timeout
            # In place on the root.
            works.append(self.reduce([part.clone() if root == self._rank else part], options))
        own = works[self._rank].operation.result
        return self._several(works, [output], _copied([(output, own[0])]))

    def reduce_scatter_single_coalesced(self, outputs, inputs, opts=None):
        works = [
            self.reduce_scatter_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)
        ]
        return self._several(works, outputs)

    # ---- the same for all

    def broadcast(self, tensors, opts=None):
        tensor = only("broadcast", tensors)
        opts = opts or BroadcastOptions()
        is_root = opts.rootRank == self._rank
        data = readable("broadcast", tensor) if is_root else writable("broadcast", tensor)
        count, dtype = moved(data)
        handle = self._call(
            lib.ddp_broadcast,
            data.data_ptr(),
            count,
            dtype,
            opts.rootRank,
            None,
            timeout=opts.timeout,
        )
        after = None if is_root else _copied([(tensor, data)])
        return self._work([handle], data, tensors, after)

    def all_gather_single(self, output, tensor, opts=None):
        opts = opts or AllgatherOptions()
        if tensor.dtype != output.dtype or output.numel() != tensor.numel() * self._size:
            raise ValueError(
                f"ddp: all_gather_into_tensor: the output has {output.numel()} elements of "
                f"{output.dtype}, and {self._size} times the input's {tensor.numel()} of "
                f"{tensor.dtype} are expected"
            )
        data = readable("all_gather_into_tensor", tensor)
        target = writable("all_gather_into_tensor", output)
        count, dtype = moved(data)
        handle = self._call(
            lib.ddp_all_gather,
            data.data_ptr(),
            target.data_ptr(),
            count,
            dtype,
            None,
            timeout=opts.timeout,
        )
        return self._work([handle], (data, target), [output], _copied([(output, target)]))

    def allgather(self, outputs, inputs, opts=None):
        tensor = only("all_gather", inputs)
        parts = only("all_gather", outputs)
        self._check_parts("all_gather", "output", parts)
        check_alike("all_gather", "output", parts, tensor)
        for part in parts:
            check("all_gather", part)
        flat = tensor.new_empty(self._size * tensor.numel())
        work = self.all_gather_single(flat, tensor, opts)
        return self._several(
            [work],
            outputs,
            _copied(zip(parts, flat.view(self._size, tensor.numel()).unbind(), strict=True)),
        )

    def allgather_coalesced(self, output_lists, inputs, opts=None):
        """`output_lists[rank][i]` gets the inputs[i] of that rank."""
        self._check_parts("all_gather_coalesced", "output", output_lists)
        works = [
            self.allgather([list(parts)], [tensor], opts)
            for tensor, *parts in zip(inputs, *output_lists, strict=True)
        ]
        return self._several(works, output_lists)

    def all_gather_single_coalesced(self, outputs, inputs, opts=None):
        works = [self.all_gather_single(o, i, opts) for o, i in zip(outputs, inputs, strict=True)]
        return self._several(works, outputs)

    # ---- to and from one rank

    def gather_single(self, output, tensor, opts=None):
        opts = opts or GatherOptions()
        is_root = opts.rootRank == self._rank
        data = readable("gather", tensor)
        count, dtype = moved(data)
        target = writable("gather", output) if is_root else None
        if is_root and (
            output.dtype != tensor.dtype or output.numel() != tensor.numel() * self._size
        ):
            raise ValueError(
                f"ddp: gather: the output has {output.numel()} elements of {output.dtype}, and "
                f"{self._size} times the input's {tensor.numel()} of {tensor.dtype} are expected"
            )
        handle = self._call(
            lib.ddp_gather,
            data.data_ptr(),
            target.data_ptr() if is_root else None,
            count,
            dtype,
            opts.rootRank,
            None,
            timeout=opts.timeout,
        )
        after = _copied([(output, target)]) if is_root else None
        return self._work([handle], (data, target), [output] if is_root else [], after)

    def gather(self, outputs, inputs, opts=None):
        tensor = only("gather", inputs)
        opts = opts or GatherOptions()
        if opts.rootRank != self._rank:
            if outputs and outputs[0]:
                raise ValueError(f"ddp: gather: only rank {opts.rootRank}, the root, has outputs")
            return self._several([self.gather_single(None, tensor, opts)], [])
        parts = only("gather", outputs)
        self._check_parts("gather", "output", parts)
        check_alike("gather", "output", parts, tensor)
        for part in parts:
            check("gather", part)
        flat = tensor.new_empty(self._size * tensor.numel())
        work = self.gather_single(flat, tensor, opts)
        return self._several(
            [work],
            outputs,
            _copied(zip(parts, flat.view(self._size, tensor.numel()).unbind(), strict=True)),
        )

    def scatter(self, outputs, inputs, opts=None):
        output = only("scatter", outputs)
        opts = opts or ScatterOptions()
        target = writable("scatter", output)
        data = None
        if opts.rootRank == self._rank:
            parts = only("scatter", inputs)
            self._check_parts("scatter", "input", parts)
            check_alike("scatter", "input", parts, output)
            for part in parts:
                check("scatter", part)
            data = _joined(parts)
        elif inputs and inputs[0]:
            raise ValueError(f"ddp: scatter: only rank {opts.rootRank}, the root, has inputs")
        count, dtype = moved(target)
        handle = self._call(
            lib.ddp_scatter,
            None if data is None else data.data_ptr(),
            target.data_ptr(),
            count,
            dtype,
            opts.rootRank,
            None,
            timeout=opts.timeout,
        )
        return self._work([handle], (data, target), outputs, _copied([(output, target)]))

    def barrier(self, opts=None):
        timeout = None if opts is None else opts.timeout
        return self._work([self._call(lib.ddp_barrier, timeout=timeout)], None, [])

    def monitored_barrier(self, timeout=None, wait_all_ranks=False):
        """A barrier that names the ranks that do not come, all of them, on every rank."""
        timeout = timeout or None
        self._work([self._call(lib.ddp_barrier, timeout=timeout)], None, []).wait()

    # ---- helpers

    def _check_parts(self, call, name, parts):
        if len(parts) != self._size:
            raise ValueError(
                f"ddp: {call}: {len(parts)} {name} tensors in a group of {self._size} ranks, and "
                "one for each rank is expected"
            )

    # The names of before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    gather_into_tensor = gather_single


def _copied_in_place(call, tensor, data):
    writable(call, tensor)  # or it cannot be copied back
    return _copied([(tensor, data)])
