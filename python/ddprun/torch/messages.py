"""Messages between two ranks, and the exchange of parts of any size that is made of them."""

from ddprun.library import lib
from ddprun.torch.tensors import check, moved, only, readable, writable

# Above all tags of the user, which are ints of C.
_EXCHANGE_TAG = 1 << 40
_ANY_SOURCE = -1


class Messages:
    """Mixed into Collectives."""

    def send(self, tensors, destination, tag=0):
        tensor = only("send", tensors)
        data = readable("send", tensor)
        count, dtype = moved(data)
        handle = self._call(lib.ddp_send, data.data_ptr(), count, dtype, destination, tag)
        return self._message_work(handle, data, tensors)

    def recv(self, tensors, source, tag=0):
        tensor = only("recv", tensors)
        data = writable("recv", tensor)
        count, dtype = moved(data)
        handle = self._call(lib.ddp_receive, data.data_ptr(), count, dtype, source, tag)
        after = None if data is tensor else lambda _: tensor.copy_(data)
        return self._message_work(handle, data, tensors, after)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, _ANY_SOURCE, tag)

    def alltoall(self, outputs, inputs, opts=None):
        for name, tensors in (("output", outputs), ("input", inputs)):
            self._check_parts("all_to_all", name, tensors)
        return self._exchange("all_to_all", list(outputs), list(inputs), outputs, opts)

    def all_to_all_single(self, output, tensor, output_splits, input_splits, opts=None):
        call = "all_to_all_single"
        if output_splits or input_splits:
            outputs = self._split(call, "output", output, output_splits)
            inputs = self._split(call, "input", tensor, input_splits)
            return self._exchange(call, outputs, inputs, [output], opts)
        if tensor.dtype != output.dtype or tensor.numel() != output.numel():
            raise ValueError(
                f"ddp: {call}: {tensor.numel()} elements of {tensor.dtype} go in, "
                f"{output.numel()} of {output.dtype} come out"
            )
        if tensor.dim() == 0 or tensor.size(0) % self._size != 0:
            raise ValueError(
                f"ddp: {call}: a tensor of shape {tuple(tensor.shape)} has no equal parts for "
                f"{self._size} ranks; give split sizes"
            )
        data = readable(call, tensor)
        target = writable(call, output)
        count, dtype = moved(data)
        handle = self._call(
            lib.ddp_all_to_all,
            data.data_ptr(),
            target.data_ptr(),
            count // self._size,
            dtype,
            None,
            timeout=None if opts is None else opts.timeout,
        )
        after = None if target is output else lambda _: output.copy_(target)
        return self._work([handle], (data, target), [output], after)

    def _split(self, call, name, tensor, sizes):
        """The parts of `tensor` along its first dimension."""
        check(call, tensor)
        length = tensor.size(0) if tensor.dim() > 0 else 0
        if not sizes:
            if length % self._size != 0:
                raise ValueError(
                    f"ddp: {call}: {name} of {length} rows: no equal parts for {self._size} ranks"
                )
            sizes = [length // self._size] * self._size
        if len(sizes) != self._size or sum(sizes) != length or min(sizes) < 0:
            raise ValueError(
                f"ddp: {call}: {name} split sizes {list(sizes)} for {self._size} ranks, and "
                f"{length} rows"
            )
        return list(tensor.split(list(sizes)))

    def _exchange(self, call, outputs, inputs, result, opts):
        """Part i of the inputs goes to rank i, part i of the outputs comes from there."""
        timeout = None if opts is None else opts.timeout
        targets = [writable(call, each) for each in outputs]
        parts = [readable(call, each) for each in inputs]
        own = self._rank
        if parts[own].numel() != targets[own].numel() or parts[own].dtype != targets[own].dtype:
            raise ValueError(
                f"ddp: {call}: rank {own} sends {parts[own].numel()} elements of "
                f"{parts[own].dtype} to itself, and expects {targets[own].numel()} of "
                f"{targets[own].dtype}"
            )
        handles = []
        try:
            # Each rank begins with its neighbour, so that not all send to one.
            for distance in range(1, self._size):
                source = (own - distance) % self._size
                destination = (own + distance) % self._size
                for function, peer, tensor in (
                    (lib.ddp_receive, source, targets[source]),
                    (lib.ddp_send, destination, parts[destination]),
                ):
                    arguments = (tensor.data_ptr(), *moved(tensor), peer, _EXCHANGE_TAG)
                    handles.append(self._call(function, *arguments, timeout=timeout))
        except BaseException:
            self._work(handles, (targets, parts), None)  # what has begun goes on
            raise

        def after(_operation):
            targets[own].copy_(parts[own].view_as(targets[own]))
            for output, target in zip(outputs, targets, strict=True):
                if output is not target:
                    output.copy_(target)

        return self._work(handles, (targets, parts), result, after)

    # The name of before 2.13.
    alltoall_base = all_to_all_single
