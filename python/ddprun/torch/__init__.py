"""`import ddprun.torch` gives torch.distributed the backend "ddp", for tensors on the CPU:

    import ddprun.torch
    torch.distributed.init_process_group("ddp")              # or "cpu:ddp,cuda:nccl"

It has all collectives that Gloo has, through shared memory within a host and TCP between hosts. The
details are in docs/library/pytorch-backend.md.
"""

_OLDEST = (2, 4)


def _check_torch():
    try:
        import torch
    except ImportError as error:
        raise ImportError(
            f"ddprun.torch needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or newer, and this Python "
            f"cannot import torch ({error}); install it first: pip install torch"
        ) from None
    version = torch.__version__
    if tuple(int(part) for part in version.split("+")[0].split(".")[:2]) < _OLDEST:
        raise ImportError(
            f"ddprun.torch needs PyTorch {_OLDEST[0]}.{_OLDEST[1]} or newer, and this is {version}"
        )
    if not torch.distributed.is_available():
        raise ImportError(
            f"ddprun.torch needs torch.distributed, which this PyTorch ({version}) lacks"
        )


_check_torch()

from ddprun.entry import register  # noqa: E402
from ddprun.torch import backend  # noqa: E402, F401

register()
