"""accelerate's test_ops, for a group on the CPU: it takes GPUs alone, or else runs without a group."""

from accelerate.state import PartialState
from accelerate.test_utils.scripts import test_ops

PartialState(cpu=True)  # there is one for all, and the test finds it
test_ops.main()
