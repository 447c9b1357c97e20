"""ddprun: distributed training. `ddprun` on the command line starts the ranks; `import
ddprun.torch` gives torch.distributed the backend "ddp". report_step(), report_progress() and phase()
report how far the training is. should_stop() returns whether to save and end."""

from ddprun.counters import phase, report_step
from ddprun.stop import report_progress, should_stop

__version__ = "0.1.0"
__all__ = ["phase", "report_progress", "report_step", "should_stop"]
