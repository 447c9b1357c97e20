"""PyTorch's TCPStore server by itself, for the benchmark: prints "port=N pid=N", serves until stdin ends."""

import os
import sys

from torch.distributed import TCPStore

store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
print(f"port={store.port} pid={os.getpid()}", flush=True)
sys.stdin.read()
