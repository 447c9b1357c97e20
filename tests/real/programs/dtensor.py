"""Trains a network whose two layers are divided among four ranks, by columns and by rows (DTensor)."""

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

mesh = init_device_mesh("cpu", (dist.get_world_size() if dist.is_initialized() else 4,))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
assert isinstance(model[0].weight, DTensor) and model[0].weight.placements == (Shard(0),)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
for step in range(12):
    torch.manual_seed(step)  # all ranks have the same samples
    samples = torch.randn(16, 16)
    loss = (model(samples) - samples[:, :4]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
losses = [None] * dist.get_world_size()
dist.all_gather_object(losses, loss.item())
assert len(set(losses)) == 1, losses
print(f"rank {dist.get_rank()}: loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
