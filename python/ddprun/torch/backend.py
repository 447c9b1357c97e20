"""How torch.distributed gets a group of ours: as a process group of Python where all of it is
ours, as a backend of PyTorch's own process group where GPUs have another one.

A backend would do for both, but what it returns reaches the user as an object of PyTorch's that
asks ours for wait() and get_future() alone: is_completed() would be false for ever (2.15). And
before 2.14 Python cannot make a backend at all; there our process group holds one of PyTorch's for
the GPUs.
"""

import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Backend as _Backend

from ddprun.torch.collectives import Collectives
from ddprun.torch.tensors import not_here

_COLLECTIVES = (
    "allreduce allreduce_coalesced reduce reduce_scatter reduce_scatter_single "
    "_reduce_scatter_base reduce_scatter_single_coalesced reduce_scatter_tensor_coalesced "
    "broadcast allgather allgather_coalesced all_gather_single _allgather_base "
    "all_gather_single_coalesced allgather_into_tensor_coalesced gather gather_single "
    "gather_into_tensor scatter alltoall all_to_all_single alltoall_base send recv "
    "recv_anysource"
).split()


class DdpBackend(Collectives, _Backend):
    """The backend for the CPU of a process group of PyTorch's own. 2.14 or newer."""

    def __init__(self, store, rank, size, timeout, global_ranks=()):
        _Backend.__init__(self, rank, size)
        self._form(store, rank, size, timeout, global_ranks)


class DdpProcessGroup(Collectives, dist.ProcessGroup):
    """A whole process group. Tensors on GPUs go to another one, of PyTorch's own, which is made for
    the first of them; init_process_group() has named its backend."""

    def __init__(self, store, rank, size, timeout, global_ranks=()):
        dist.ProcessGroup.__init__(self, rank, size)
        self._store = store
        self._timeout = timeout
        self._group_name = ""
        self._group_desc = "undefined"
        self._on_gpus = None
        self._form(store, rank, size, timeout, global_ranks)

    supports_splitting = False

    def _set_group_name(self, name):
        self._group_name = name

    def _set_group_desc(self, text):
        self._group_desc = text

    def getGroupName(self):
        return self._group_name

    def getGroupDesc(self):
        return self._group_desc

    setGroupName = _set_group_name
    setGroupDesc = _set_group_desc
    group_name = property(getGroupName)
    group_desc = property(getGroupDesc)

    def get_group_store(self):
        return self._store

    @property
    def _device_types(self):
        # Of a group that is being made PyTorch takes it as a sign that its recorder can be
        # attached, which needs a backend of C++ (2.15).
        if self not in dist.distributed_c10d._world.pg_map:
            return []
        return [torch.device(kind) for kind in ("cpu", *self._backends_on_gpus())]

    def _get_backend(self, device):
        kind = torch.device(device).type
        # Of a group that is being made PyTorch asks whether that of device_id can be split.
        if kind == "cpu" or self not in dist.distributed_c10d._world.pg_map:
            return self
        if kind not in self._backends_on_gpus():
            # PyTorch asks for kinds that may not be there, and takes this type for the answer.
            raise RuntimeError(f"ddp: this group has no backend for {kind}")
        return self._for_device(kind)._get_backend(torch.device(kind))

    get_backend = _get_backend

    def barrier(self, opts=None):
        if opts is not None and opts.device is not None and opts.device.type != "cpu":
            return self._for_device(opts.device.type).barrier(opts)
        return Collectives.barrier(self, opts)

    def _start_coalescing(self, device):
        if device.type == "cpu":
            raise RuntimeError(
                "ddp: on the CPU, as over Gloo, calls are not coalesced by device: name none, as in "
                "`with _coalescing_manager(group)`, which takes calls of one kind"
            )
        self._for_device(device.type)._start_coalescing(device)

    def _end_coalescing(self, device):
        return self._for_device(device.type)._end_coalescing(device)

    def set_timeout(self, timeout):
        self._timeout = timeout
        Collectives.set_timeout(self, timeout)
        if self._on_gpus is not None:
            self._on_gpus.set_timeout(timeout)

    def abort(self):
        if self._on_gpus is not None:
            self._on_gpus.abort()
        Collectives.abort(self)

    def shutdown(self):
        if self._on_gpus is not None:
            self._on_gpus.shutdown()
        Collectives.shutdown(self)

    def _backends_on_gpus(self):
        """{"cuda": "nccl"}: what init_process_group() or new_group() was told beside ours."""
        config = dist.distributed_c10d._world.pg_backend_config.get(self, "")
        pairs = (pair.split(":") for pair in str(config).split(",") if ":" in pair)
        return {kind: backend for kind, backend in pairs if kind != "cpu" and backend != "ddp"}

    def _for_device(self, kind):
        backend = self._backends_on_gpus().get(kind)
        if backend is None:
            raise ValueError(f"ddp: a tensor is on {kind}, {not_here(kind)}")
        if self._on_gpus is None:
            self._on_gpus = self._make_group_on_gpus(kind, backend)
        return self._on_gpus

    def _make_group_on_gpus(self, kind, backend):
        if backend != "nccl":
            raise ValueError(_only_nccl(kind, backend))
        store = dist.PrefixStore(f"{kind}/", self._store)
        group = dist.ProcessGroup(store, self._rank, self._size)
        group._set_default_backend(dist.ProcessGroup.BackendType.NCCL)
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = self._timeout
        nccl = dist.ProcessGroupNCCL(store, self._rank, self._size, options)
        group._register_backend(torch.device(kind), dist.ProcessGroup.BackendType.NCCL, nccl)
        group._set_group_name(self._group_name)
        group._set_group_desc(self._group_desc)
        return group


def _only_nccl(kind, backend):
    return f"ddp: beside it only nccl goes, for cuda; {kind} was to have {backend}"


def _device_of(arguments):
    """Of the first tensor of a call, which may be in a list, or in a list of lists."""
    for argument in arguments:
        while isinstance(argument, (list, tuple)) and argument:
            argument = argument[0]
        if isinstance(argument, torch.Tensor):
            return argument.device.type
    return "cpu"


# Internal, and cheap: PyTorch has it in C++ since 2.1. Without it compiled models fail.
_skip_code = getattr(getattr(torch._C._dynamo, "eval_frame", None), "skip_code", None)


def _untraced(function):
    """`function`, which Dynamo does not trace: the reducer of a compiled model calls it from C++
    while Dynamo compiles. A program that compiles nothing does not import Dynamo for it, which
    takes a second."""
    disabled = torch._disable_dynamo(function)

    def wrapper(*arguments, **options):
        chosen = disabled if "torch._dynamo" in sys.modules else function
        return chosen(*arguments, **options)

    wrapper.__name__ = function.__name__
    if _skip_code is not None:
        _skip_code(wrapper.__code__)
    return wrapper


def _dispatched(name):
    ours = getattr(Collectives, name)

    def method(self, *arguments, **options):
        kind = _device_of(arguments)
        if kind == "cpu":
            return ours(self, *arguments, **options)
        return getattr(self._for_device(kind), name)(*arguments, **options)

    method.__name__ = name
    return _untraced(method)


for _name in _COLLECTIVES:
    setattr(DdpProcessGroup, _name, _dispatched(_name))


def _is_part_of_a_group(options):
    """Whether the process group that asks has other backends as well: its first is then not the one
    that PyTorch knows nothing of."""
    group = getattr(options, "process_group", None)
    return group is not None and group.name() != "custom"


def _config_of_caller():
    """PyTorch hands the names of backends to nobody, and has them where it calls create()."""
    frame = sys._getframe(1)
    for _ in range(5):
        frame = frame.f_back
        if frame is None:
            break
        config = frame.f_locals.get("backend_config")
        if hasattr(config, "get_device_backend_map"):
            return config
    return None


def _check_backends_beside():
    """Those that are named beside "ddp" for a process group of ours, which makes them for their
    first tensor: what could not be made then is refused now."""
    config = _config_of_caller()
    if config is None:
        return
    for kind, backend in config.get_device_backend_map().items():
        if kind == "cpu" or backend == "ddp":
            continue
        if backend != "nccl":
            raise ValueError(_only_nccl(kind, backend))
        if not dist.is_nccl_available():
            raise RuntimeError(
                f"ddp: {kind} was to have nccl, and this PyTorch ({torch.__version__}) has no NCCL "
                'built in: name "ddp" alone, or install a PyTorch for GPUs'
            )


def create(options, _backend_options):
    kind = DdpBackend if _is_part_of_a_group(options) else DdpProcessGroup
    if kind is DdpProcessGroup:
        _check_backends_beside()
    return kind(
        options.store,
        options.group_rank,
        options.group_size,
        options.timeout,
        options.global_ranks_in_group or (),
    )
