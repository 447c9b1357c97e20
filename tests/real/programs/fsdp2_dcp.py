"""Trains a small network by FSDP2, saves it by torch.distributed.checkpoint after each step, and goes on from there."""

import glob

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

STEPS = 12

dist.init_process_group("gloo")
mesh = init_device_mesh("cpu", (dist.get_world_size(),))
torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
for layer in model:
    if isinstance(layer, torch.nn.Linear):
        fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)

first = 0
# A rank that is killed leaves a folder without .metadata, which is written last.
whole = [int(path.split("/")[0].split("-")[1]) for path in glob.glob("saved-*/.metadata")]
if whole:
    weights, state = get_state_dict(model, optimizer)
    progress = {"model": weights, "optimizer": state, "step": 0}
    dcp.load(progress, checkpoint_id=f"saved-{max(whole)}")
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    first = progress["step"]
for step in range(first, STEPS):
    torch.manual_seed(1000 * step + dist.get_rank())
    samples = torch.randn(16, 32)
    loss = (model(samples) - samples[:, :8]).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    weights, state = get_state_dict(model, optimizer)
    dcp.save(
        {"model": weights, "optimizer": state, "step": step + 1}, checkpoint_id=f"saved-{step + 1}"
    )
print(f"rank {dist.get_rank()}: steps {first} to {STEPS}, loss {loss.item():.6f}", flush=True)
dist.destroy_process_group()
