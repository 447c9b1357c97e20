"""Looked at by every Python below tests/real/run, before the program; acts in the ranks of a job alone.

Counts the optimizer's steps and keeps the last loss, and writes them, with the group's backend, into
$DDPRUN_REAL_SEEN at the rank's end: the program need not say that it has trained. $DDPRUN_REAL_BACKEND takes
the place of Gloo. $DDPRUN_REAL_KILL=STEP ends rank 1 of the first attempt by SIGKILL behind that step.
"""

import atexit
import json
import os
import signal


def watch(folder):
    import torch
    import torch.distributed as dist
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    kill_behind = int(os.environ.get("DDPRUN_REAL_KILL") or 0)
    seen = {"steps": 0, "loss": None, "backend": None}
    backward = torch.Tensor.backward

    def note_loss(self, *more, **named):
        if self.numel() == 1:
            value = self.detach()
            seen["loss"] = float(value.full_tensor() if hasattr(value, "full_tensor") else value)
        if dist.is_initialized():
            seen["backend"] = dist.get_backend()
        return backward(self, *more, **named)

    def count(*_):
        seen["steps"] += 1
        if seen["steps"] == kill_behind and rank == "1" and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    def write():
        with open(os.path.join(folder, f"{attempt}.{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(seen, file)

    torch.Tensor.backward = note_loss
    register_optimizer_step_post_hook(count)
    atexit.register(write)


def replace_gloo(backend):
    import torch.distributed as dist
    from torch.distributed import distributed_c10d

    if backend == "ddp":
        import ddprun.torch  # noqa: F401  registers the backend

    def on(function, place):
        def with_backend(*words, **named):
            if len(words) > place:
                words = words[:place] + (backend,) + words[place + 1 :]
            else:
                named["backend"] = backend
            return function(*words, **named)

        return with_backend

    for name, place in (("init_process_group", 0), ("new_group", 2)):
        replaced = on(getattr(distributed_c10d, name), place)
        for module in (dist, distributed_c10d):
            setattr(module, name, replaced)


if "RANK" in os.environ and os.environ.get("DDPRUN_REAL_SEEN"):
    if os.environ.get("DDPRUN_REAL_BACKEND", "gloo") != "gloo":
        replace_gloo(os.environ["DDPRUN_REAL_BACKEND"])
    watch(os.environ["DDPRUN_REAL_SEEN"])
