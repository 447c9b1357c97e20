"""Rank 1 fails with an exception that PyTorch records, the argument its text; rank 0 waits to be stopped."""
import os
import signal
import sys

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise RuntimeError(sys.argv[1])
    signal.pause()


main()
