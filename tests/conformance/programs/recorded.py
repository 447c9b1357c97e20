"""Rank 1 fails with an exception that PyTorch records; rank 0 waits to be stopped."""
import os
import signal

from torch.distributed.elastic.multiprocessing.errors import record


@record
def main():
    if os.environ["RANK"] == "1":
        raise RuntimeError("no such thing")
    signal.pause()


main()
