"""What trains over Gloo trains over "ddp", and to the same losses: DistributedDataParallel, its
hooks, fully_shard, DTensor and checkpoints. Run under ddprun with two ranks."""

import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, Shard, distribute_tensor
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # noqa: F401

STEPS = 5


def network():
    torch.manual_seed(1)
    layer = torch.nn.Linear
    return torch.nn.Sequential(
        layer(20, 50), torch.nn.BatchNorm1d(50), torch.nn.ReLU(), layer(50, 50), layer(50, 3)
    )


def losses(model, module=None):
    optimizer = torch.optim.SGD((module or model).parameters(), lr=0.1)
    generator = torch.Generator().manual_seed(dist.get_rank())
    found = []
    for _ in range(STEPS):
        data = torch.randn(16, 20, generator=generator)
        target = torch.randint(0, 3, (16,), generator=generator)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(data), target)
        loss.backward()
        optimizer.step()
        found.append(float(loss))
    return found


def with_ddp(group, **options):
    return losses(DistributedDataParallel(network(), process_group=group, **options))


def with_hook(group, state, hook):
    model = DistributedDataParallel(network(), process_group=group)
    model.register_comm_hook(state(group), hook)
    return losses(model)


def power_state(group):
    return powerSGD_hook.PowerSGDState(
        group, matrix_approximation_rank=1, start_powerSGD_iter=2, random_seed=3
    )


def same(group):
    return group


SCENARIOS = {
    "plain": with_ddp,
    "bucket views": lambda group: with_ddp(group, gradient_as_bucket_view=True),
    "small buckets": lambda group: with_ddp(group, bucket_cap_mb=0.001),
    "static graph": lambda group: with_ddp(group, static_graph=True),
    "unused parameters": lambda group: with_ddp(group, find_unused_parameters=True),
    "all-reduce hook": lambda group: with_hook(group, same, default_hooks.allreduce_hook),
    "float16 hook": lambda group: with_hook(group, same, default_hooks.fp16_compress_hook),
    "PowerSGD hook": lambda group: with_hook(group, power_state, powerSGD_hook.powerSGD_hook),
}


def check_ddp(gloo):
    for name, scenario in SCENARIOS.items():
        ours, theirs = scenario(dist.group.WORLD), scenario(gloo)
        assert torch.allclose(torch.tensor(ours), torch.tensor(theirs), atol=1e-6), (
            f"{name}: {ours} over ddp, {theirs} over gloo"
        )


def check_sharded(folder):
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    torch.manual_seed(1)
    alone = torch.nn.Sequential(torch.nn.Linear(20, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))
    for layer in (model[0], model[2], model):
        fully_shard(layer, mesh=mesh)
    sharded = losses(model)
    replicated = losses(DistributedDataParallel(alone))
    assert torch.allclose(torch.tensor(sharded), torch.tensor(replicated), atol=1e-5)
    checkpoint.save({"model": model.state_dict()}, checkpoint_id=folder)
    state = {"model": {name: torch.zeros_like(each) for name, each in model.state_dict().items()}}
    checkpoint.load(state, checkpoint_id=folder)
    for name, tensor in model.state_dict().items():
        assert torch.equal(state["model"][name].full_tensor(), tensor.full_tensor()), name


def check_dtensor():
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    torch.manual_seed(2)
    left, right = torch.randn(6, 8), torch.randn(8, 5)
    product = distribute_tensor(left, mesh, [Shard(1)]) @ distribute_tensor(right, mesh, [Shard(0)])
    assert torch.allclose(product.full_tensor(), left @ right, atol=1e-5)
    rows = product.redistribute(mesh, [Shard(0)]).redistribute(mesh, [Shard(1)])
    assert torch.allclose(
        rows.redistribute(mesh, [Replicate()]).to_local(), left @ right, atol=1e-5
    )


def main(folder):
    torch.set_num_threads(1)
    dist.init_process_group("ddp")
    gloo = dist.new_group(backend="gloo")
    check_ddp(gloo)
    check_dtensor()
    check_sharded(folder)
    dist.destroy_process_group()
    print("all checks passed")


if __name__ == "__main__":
    main(sys.argv[1])
