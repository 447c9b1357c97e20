"""Rank 0 fails as Python programs do; the others wait to be stopped."""
import os
import signal

if os.environ["RANK"] == "0":
    raise RuntimeError("no such thing")
signal.pause()
