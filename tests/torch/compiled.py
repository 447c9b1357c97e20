"""torch.compile of models and of functional collectives over "ddp" gives what the same programs
give uncompiled. Run under ddprun with two ranks; the argument is the compiler's backend."""

import sys

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.nn.parallel import DistributedDataParallel

import ddprun.torch  # noqa: F401


def network():
    torch.manual_seed(1)
    layer = torch.nn.Linear
    return torch.nn.Sequential(layer(16, 16), torch.nn.ReLU(), layer(16, 1))


def weights_of(model, parameters):
    optimizer = torch.optim.SGD(parameters, lr=0.1)
    data = torch.full((4, 16), float(1 + dist.get_rank()))
    for _ in range(4):
        optimizer.zero_grad()
        model(data).mean().backward()
        optimizer.step()
    return torch.cat([each.detach().flatten() for each in parameters])


def trained(compiler):
    model = DistributedDataParallel(network())
    parameters = list(model.parameters())
    return weights_of(torch.compile(model, backend=compiler) if compiler else model, parameters)


def collectives(x):
    group = dist.group.WORLD
    summed = functional.all_reduce(x * 2, "sum", group)
    gathered = functional.all_gather_tensor(summed + dist.get_rank(), 0, group)
    return summed, functional.reduce_scatter_tensor(gathered, "sum", 0, group)


def in_place(x):
    x = x * 3
    dist.all_reduce(x)
    return (x + 1,)


def main(compiler):
    dist.init_process_group("ddp")
    torch.testing.assert_close(trained(compiler), trained(None))
    for function in (collectives, in_place):
        given = torch.arange(4.0) * (1 + dist.get_rank())
        compiled = torch.compile(function, backend=compiler)
        torch.testing.assert_close(compiled(given.clone()), function(given.clone()))
    dist.destroy_process_group()
    print("checks passed", flush=True)


main(sys.argv[1])
