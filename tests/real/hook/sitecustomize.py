"""Looked at by every Python below tests/real/run, before the program; acts in a job's ranks alone.

Counts the optimizer's steps and keeps the last loss, and writes them, with the group's backend,
into $DDPRUN_REAL_SEEN at the rank's end: the program need not say that it has trained.
$DDPRUN_REAL_BACKEND takes the place of Gloo. $DDPRUN_REAL_KILL="step N" ends rank 1 of the first
attempt by SIGKILL behind its step N, "backward N" behind that call.
"""

import atexit
import functools
import json
import os
import signal
import sys
import traceback


def watch(folder, seen):
    import torch
    from torch.optim.optimizer import register_optimizer_step_post_hook

    rank, attempt = os.environ["RANK"], os.environ["TORCHELASTIC_RESTART_COUNT"]
    kill_behind = os.environ.get("DDPRUN_REAL_KILL")
    backward = torch.Tensor.backward

    def die_behind(event):
        if event == kill_behind and rank == "1" and attempt == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    def note_loss(self, *more, **named):
        if self.numel() == 1:
            value = self.detach()
            seen["loss"] = float(value.full_tensor() if hasattr(value, "full_tensor") else value)
        backward(self, *more, **named)
        seen["backwards"] += 1
        die_behind(f"backward {seen['backwards']}")

    def count(*_):
        seen["steps"] += 1
        die_behind(f"step {seen['steps']}")

    def write():
        with open(os.path.join(folder, f"{attempt}.{rank}.json"), "w", encoding="utf-8") as file:
            json.dump(seen, file)

    torch.Tensor.backward = note_loss
    register_optimizer_step_post_hook(count)
    atexit.register(write)


def watch_groups(backend, seen):
    """Notes the backend of the default group; `backend` is one to take in Gloo's place, or None."""
    from torch.distributed import distributed_c10d

    if backend == "ddp":
        import ddprun.torch  # noqa: F401  registers the backend

    def on(function, place):
        @functools.wraps(function)
        def watched(*words, **named):
            if backend and len(words) > place:
                words = (*words[:place], backend, *words[place + 1 :])
            elif backend:
                named["backend"] = backend
            group = function(*words, **named)
            seen["backend"] = distributed_c10d.get_backend()
            return group

        return watched

    for name, place in (("init_process_group", 0), ("new_group", 2)):
        function = getattr(distributed_c10d, name)
        watched = on(function, place)
        # Others of torch.distributed have the functions under their names, too: device_mesh does.
        for module in list(sys.modules.values()):
            if getattr(module, "__dict__", {}).get(name) is function:
                setattr(module, name, watched)


def act():
    seen = {"steps": 0, "backwards": 0, "loss": None, "backend": None}
    backend = os.environ["DDPRUN_REAL_BACKEND"]
    watch_groups(None if backend == "gloo" else backend, seen)
    watch(os.environ["DDPRUN_REAL_SEEN"], seen)


if "RANK" in os.environ and os.environ.get("DDPRUN_REAL_SEEN"):
    try:
        act()
    except BaseException:  # Python would go on without the hook, and over Gloo
        traceback.print_exc()
        os._exit(70)
