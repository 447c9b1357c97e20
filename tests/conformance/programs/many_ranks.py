"""As many processes as its argument says, of one worker: each a rank of a group over the launcher's store."""
import os
import sys

import torch
import torch.distributed as dist

count = int(sys.argv[1])
children = []
for rank in range(count):
    pid = os.fork()
    if pid == 0:
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
            rank=rank,
            world_size=count,
        )
        total = torch.tensor([rank])
        dist.all_reduce(total)
        dist.barrier()
        if rank == 0:
            print("sum of ranks", total.item(), flush=True)
        os._exit(0)
    children.append(pid)
codes = {os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children}
print("exit codes", codes, flush=True)
