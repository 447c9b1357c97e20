"""What PyTorch programs do with the launcher's store: torch_job.py INIT WHAT... Rank 0 tells what came of it.

One group a job: PyTorch itself mixes up two that follow each other in one key space."""
import datetime
import os
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])
ADDRESS = f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}"


def tell(*words):
    if RANK == 0:
        print(*words, flush=True)


def is_launched():
    tell("launched", dist.is_torchelastic_launched())


def sum_of_ranks():
    total = torch.tensor([float(RANK + 1)])
    dist.all_reduce(total)
    tell("sum", total.item())


def init_env():
    dist.init_process_group("gloo")


def init_tcp():
    dist.init_process_group("gloo", init_method=f"tcp://{ADDRESS}", rank=RANK, world_size=WORLD)


def init_store():
    host, port = ADDRESS.rsplit(":", 1)
    store = dist.TCPStore(host, int(port), WORLD, is_master=False)
    prefixed = dist.PrefixStore("mine", store)
    dist.init_process_group("gloo", store=prefixed, rank=RANK, world_size=WORLD)
    inner = dist.PrefixStore("inner", prefixed)
    inner.barrier("meet", WORLD)
    if RANK == 0:
        prefixed.set("key", "value")
        tell("through a prefix", store.get("mine/key"), prefixed.add("count", 41), prefixed.add("count", 1))
        tell("check", store.check(["mine/key"]), store.check(["key"]), store.delete_key("mine/key"))
        tell("compare", store.compare_set("c", "", "first"), store.compare_set("c", "first", "second"))
        store.append("a", "x")
        store.append("a", "y")
        store.multi_set(["m1", "m2"], ["1", "2"])
        tell("many", store.get("a"), store.multi_get(["m1", "m2"]))
        store.queue_push("q", "1")
        tell("queue", store.queue_len("q"), store.queue_pop("q"), store.queue_len("q"))
        try:
            store.wait(["never"], datetime.timedelta(milliseconds=50))
        except dist.DistStoreError:
            tell("waited in vain, then", store.get("c"))
        tell("clone", store.clone().get("c"))
        through_prefixes(store, inner)


def through_prefixes(store, inner):
    """Every request through a prefix in a prefix, and whether the store has the whole name."""
    inner.set("k", "v")
    inner.append("k", "w")
    tell("inner", store.get("mine/inner/k"), inner.get("k"), inner.check(["k"]), inner.check(["mine/inner/k"]))
    tell("inner compare", inner.compare_set("c", "", "x"), store.compare_set("mine/inner/c", "x", "y"), inner.get("c"))
    inner.multi_set(["a", "b"], ["1", "2"])
    tell("inner many", inner.multi_get(["a", "b"]), store.multi_get(["mine/inner/a", "mine/inner/b"]))
    inner.queue_push("q", "first")
    tell("inner queue", store.queue_len("mine/inner/q"), inner.queue_pop("q"), inner.queue_len("q"))
    inner.wait(["a", "b"], datetime.timedelta(seconds=60))
    tell("inner keys", sorted(inner.list_keys()))
    tell("inner delete", inner.add("n", 5), inner.delete_key("n"), store.check(["mine/inner/n"]))
    try:
        inner.wait(["n"], datetime.timedelta(milliseconds=50))
    except dist.DistStoreError:
        tell("inner waited in vain")


def ddp():
    torch.manual_seed(RANK)
    model = DistributedDataParallel(torch.nn.Linear(8, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(100 + RANK)
    for _ in range(5):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    mine = torch.cat([parameter.detach().flatten() for parameter in model.parameters()])
    all_of_them = [torch.empty_like(mine) for _ in range(WORLD)]
    dist.all_gather(all_of_them, mine)
    tell("equal parameters", all(torch.equal(mine, other) for other in all_of_them), f"{mine.sum():.3f}")


def collectives():
    dist.barrier()
    dist.monitored_barrier()
    gathered = [None] * WORLD
    dist.all_gather_object(gathered, {"rank": RANK, "text": "x" * RANK})
    tell("objects", gathered)
    pairs = [dist.new_group(list(range(first, min(first + 2, WORLD)))) for first in range(0, WORLD, 2)]
    total = torch.ones(1)
    dist.all_reduce(total, group=pairs[RANK // 2])
    tell("pair", total.item())
    objects = [{"from": RANK}]
    dist.broadcast_object_list(objects, src=WORLD - 1)
    tell("broadcast", objects)


def monitored_barrier():
    """All pass one; of the next rank 0 is told who did not come."""
    group = dist.new_group()
    dist.monitored_barrier(group=group, wait_all_ranks=True)
    tell("passed")
    if RANK != 0:
        return
    try:
        dist.monitored_barrier(group=group, timeout=datetime.timedelta(seconds=2), wait_all_ranks=True)
    except RuntimeError as error:
        tell("barrier:", error)


def checkpoint():
    folder = os.path.join(tempfile.gettempdir(), "checkpoint")
    state = {"weights": torch.full((4,), 3.0), "step": 7}
    dcp.save(state, checkpoint_id=folder)
    loaded = {"weights": torch.zeros(4), "step": 0}
    dcp.load(loaded, checkpoint_id=folder)
    tell("loaded", loaded["weights"].tolist(), loaded["step"])


for what in sys.argv[1:]:
    {
        "env": init_env,
        "tcp": init_tcp,
        "store": init_store,
        "is_launched": is_launched,
        "sum": sum_of_ranks,
        "ddp": ddp,
        "collectives": collectives,
        "monitored_barrier": monitored_barrier,
        "checkpoint": checkpoint,
    }[what]()
dist.barrier()
dist.destroy_process_group()
