"""ddprun: distributed training. `ddprun` on the command line starts the ranks; `import
ddprun.torch` gives torch.distributed the backend "ddp"; report_step() and phase() tell the launcher
how far the training is."""

from ddprun.counters import phase, report_step

__version__ = "0.1.0"
__all__ = ["phase", "report_step"]
