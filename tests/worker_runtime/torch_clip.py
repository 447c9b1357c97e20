"""torch.nn.utils.clip_grad_norm_ of what stands in <folder>/<type>, once for each order.

Reads <folder>/script, lines "TYPE[,TYPE...] MAX_NORM ORDER"; writes <folder>/<line number>.norm as
text and <folder>/<line number>.<type>, raw elements.
"""
import pathlib
import sys

import torch

folder = pathlib.Path(sys.argv[1])
for number, line in enumerate((folder / "script").read_text().splitlines()):
    names, max_norm, order = line.split()
    weights = {}
    for name in names.split(","):
        data = bytearray((folder / name).read_bytes())
        gradient = torch.frombuffer(data, dtype=getattr(torch, name))
        weight = torch.nn.Parameter(torch.zeros_like(gradient))
        weight.grad = gradient.clone()
        weights[name] = weight
    norm = torch.nn.utils.clip_grad_norm_(weights.values(), float(max_norm), float(order))
    (folder / f"{number}.norm").write_text(repr(norm.item()))
    for name, weight in weights.items():
        # As bytes, since numpy knows no bfloat16.
        (folder / f"{number}.{name}").write_bytes(weight.grad.view(torch.uint8).numpy().tobytes())
