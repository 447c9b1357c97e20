"""ddprun: distributed training. `ddprun` on the command line starts the ranks; `import
ddprun.torch` gives torch.distributed the backend "ddp"."""

__version__ = "0.1.0"


def report_step(step, samples=0):
    """Says that optimizer step `step` is done, in which this rank took `samples` samples.

    Safe to call in any program, under ddprun or not. Nothing reads it yet.
    """
