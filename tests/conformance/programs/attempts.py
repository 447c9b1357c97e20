"""Attempt 0 sets a key and fails; attempt 1 tells whether it sees that key. With an argument both form a group."""
import os
import sys

import torch.distributed as dist

attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
rank = int(os.environ["RANK"])
store = dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False)
if rank == 0:
    print(f"attempt {attempt}: key of attempt 0 seen: {store.check(['of attempt 0'])}", flush=True)
    store.set("of attempt 0", "yes")
store.add("here", 1)
while store.add("here", 0) < int(os.environ["WORLD_SIZE"]):
    pass
if len(sys.argv) > 1:
    dist.init_process_group("gloo")
    dist.barrier()
if attempt == 0:
    # At the end, so that the key is there; rank 0 waits to be stopped.
    if rank == 1:
        os._exit(1)
    store.wait(["never"])
if len(sys.argv) > 1:
    dist.destroy_process_group()
