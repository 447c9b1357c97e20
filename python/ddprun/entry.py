"""PyTorch's entry point for backends: `import torch` calls register_by_torch(), from 2.5 on. It registers the
name "ddp" alone; init_process_group("ddp") loads the rest."""

import sys

NAME = "ddp"


def _create(options, backend_options):
    from ddprun.torch.backend import create

    return create(options, backend_options)


def register():
    """Once, however often it is called."""
    import torch.distributed as dist

    if dist.is_available() and NAME not in dist.Backend.backend_list:
        dist.Backend.register_backend(NAME, _create, extended_api=True, devices=["cpu"])


def register_by_torch():
    """It raises nothing: `import torch` would fail by it."""
    try:
        register()
    except Exception as error:  # of a PyTorch that we do not know
        if sys.stderr is not None:
            print(f'ddprun: this PyTorch does not take the backend "ddp": {error}', file=sys.stderr)
