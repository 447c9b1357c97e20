"""Where tensors on a GPU go. There is none here: a double stands for the group on GPUs, and tensors
on "meta" for those of a GPU. Run under ddprun with one rank."""

import unittest.mock

import torch
import torch.distributed as dist
from expect import raised

import ddprun.torch  # noqa: F401
from ddprun.torch import backend


class GroupOnGpus:
    """A double, which notes what it is called for."""

    def __init__(self):
        self.calls = []

    def __getattr__(self, name):
        return lambda *arguments, **_options: self.calls.append(name)


def device_id_is_taken():
    """As scripts for GPUs give it; PyTorch is told that there is one. No tensor on it follows, so
    no group of NCCL's is made."""
    found = {
        "current_accelerator": lambda: torch.device("cuda"),
        "device_count": lambda: 1,
    }
    with (
        unittest.mock.patch.multiple(torch.accelerator, **found),
        unittest.mock.patch.object(dist, "is_nccl_available", lambda: True),
    ):
        dist.init_process_group("cpu:ddp,cuda:nccl", device_id=torch.device("cuda:0"))
    dist.all_reduce(torch.ones(2))
    dist.destroy_process_group()


def nccl_that_is_not_built_in_is_refused():
    """As over Gloo: by init_process_group(), and not by the first tensor on a GPU."""
    if dist.is_nccl_available():
        print("SKIPPED nccl: this PyTorch has it")
        return
    for names in ("cpu:ddp,cuda:nccl", "cuda:nccl,cpu:ddp"):
        raised(lambda: dist.init_process_group(names), RuntimeError, "NCCL built in")  # noqa: B023
        assert not dist.is_initialized()
    raised(lambda: dist.init_process_group("cpu:ddp,xpu:gloo"), ValueError, "only nccl")


def main():
    nccl_that_is_not_built_in_is_refused()
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) < (2, 14):
        device_id_is_taken()
    else:
        print("SKIPPED device_id: newer PyTorch makes NCCL's group itself, which needs a GPU")
    made = []

    def make(_self, kind, name):
        assert (kind, name) == ("meta", "nccl"), (kind, name)
        made.append(GroupOnGpus())
        return made[-1]

    backend.DdpProcessGroup._make_group_on_gpus = make
    backend.DdpProcessGroup._backends_on_gpus = lambda _self: {"meta": "nccl"}
    dist.init_process_group("ddp")
    group = dist.distributed_c10d._get_default_group()
    there, here = torch.ones(2, device="meta"), torch.ones(2)
    dist.all_reduce(here)
    assert not made, "a group on GPUs without a tensor there"
    dist.all_reduce(there)
    dist.broadcast(there, 0)
    dist.all_gather([there.clone()], there)
    dist.reduce_scatter(there, [there])
    group.gather([], [there])
    group.send([there], 0, 0)
    assert made[0].calls == [
        "allreduce",
        "broadcast",
        "allgather",
        "reduce_scatter",
        "gather",
        "send",
    ], made[0].calls
    assert [each.type for each in group._device_types] == ["cpu", "meta"]
    # PyTorch asks, and looks for this type.
    raised(lambda: group._get_backend(torch.device("cuda")), RuntimeError, "no backend for cuda")
    assert group.get_backend(torch.device("cpu")) is group
    dist.destroy_process_group()
    assert len(made) == 1 and made[0].calls[-1] == "shutdown"
    print("all checks passed")


if __name__ == "__main__":
    main()
