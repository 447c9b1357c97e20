"""Jobs as the server would describe them (launcher/status/snapshot.h), at moment `t` of the mock's clock."""

import math

HOSTILE = "<img src=x onerror=alert(1)></script><script>alert(2)</script>\x1b[31mred\x1b[0m \u202egnp.exe \"'&amp;"


def group(rank, size, called, done=None, waiting_s=0.0, key="00000000c0ffee01", name="world", op="all-reduce"):
    return {"key": key, "name": name, "rank": rank, "size": size, "called": called, "done": called if done is None else done,
            "op": op, "waiting_s": waiting_s, "quiet_s": waiting_s}


def rank_view(rank, local_rank, size, t, **changes):
    step = 4000 + int(t * 8)
    view = {"rank": rank, "local_rank": local_rank, "pid": 4100 + rank, "state": "running", "end": "", "wait": "",
            "up_s": 731.0 + t, "cpu": 1.02, "idle_s": 0.0, "memory": 3_412_000_000 + rank * 1_000_000, "gpu": 0.91, "gpu_memory": 31_200_000_000,
            "phase": "train", "phase_s": 700.0 + t, "step": step, "step_age_s": 0.1, "step_s": 0.124, "longest_step_s": 0.31,
            "samples_per_s": 258.0, "self_s": 0.104 + 0.0006 * (rank * 7 % 5), "exposed_share": 0.081, "first_step_s": 6.2,
            "backward_s": None, "buckets": [],
            "groups": [group(rank, size, 12 * step)], "last_line": f"step {step}: loss {2.1 + 0.001 * rank:.3f}", "last_line_age_s": 0.4}
    view.update(changes)
    return view


def gpu_view(index):
    return {"index": index, "name": "NVIDIA H100 80GB HBM3", "utilisation": 0.91, "memory_used": 31_200_000_000,
            "memory_total": 85_520_000_000, "temperature": 61, "throttle": "", "xids": []}


def node_view(node_rank, ranks, **changes):
    node = {"id": f"agent-{node_rank}", "host": f"gpu-{node_rank + 1:02d}", "node_rank": node_rank, "state": "running",
            "hosts_coordinator": node_rank == 0, "age_s": 0.6 if node_rank else 0.0, "up_s": 740.0, "waiting_for": "", "waiting_left_s": None,
            "ranks": ranks, "gpus": [gpu_view(rank["local_rank"]) for rank in ranks], "memory_used": 61_000_000_000,
            "memory_limit": 270_000_000_000, "oom_kills": 0, "problems": []}
    node.update(changes)
    node.setdefault("name", node["host"])
    return node


def first_round(age_s):
    return {"round": 1, "reason": "", "detect_s": None, "stop_s": None, "rendezvous_s": 1.9, "exec_s": 0.2, "first_step_s": 6.2, "age_s": age_s}


def job(nodes, per_node, t, change_rank=lambda rank: {}, change_node=lambda node: {}, **changes):
    size = nodes * per_node
    views = [node_view(node, [rank_view(node * per_node + local, local, size, t, **change_rank(node * per_node + local))
                              for local in range(per_node)], **change_node(node)) for node in range(nodes)]
    steps = [rank["step"] for node in views for rank in node["ranks"] if rank["step"] is not None]
    wave = 1 + 0.03 * math.sin(t / 7) + 0.012 * math.sin(t * 1.7)
    view = {"version": 1, "run_id": "resnet-7f3a", "program": "train.py --epochs 90", "state": "running", "round": 1, "min_nodes": nodes, "max_nodes": nodes,
            "world_size": size, "node_count": nodes, "restart_count": 0, "max_restarts": 3, "up_s": 740.0 + t, "waiting_for": "",
            "waiting_left_s": None, "nodes": views, "silent_nodes": [], "rounds": [first_round(731.0 + t)], "first_fault": None,
            "is_healthy": True, "problems": [], "sentence": f"running: round 1, {nodes} of {nodes} nodes, {size:,} ranks, step {min(steps, default=0):,}",
            "waiting_line": "", "step": min(steps, default=None), "samples_per_s": 258.0 * size * wave, "step_s": 0.124 / wave,
            "exposed_share": 0.081 + 0.012 * math.sin(t / 11), "effective_share": 0.962, "checkpoint_s": 14.2, "evaluation_s": 0.0, "restart_s": 0.0, "start_s": 8.3}
    view.update(changes)
    return view


def problem(kind, text, ranks, node="", since_s=5.0):
    return {"kind": kind, "text": text, "ranks": ranks, "node": node, "since_s": since_s}


def healthy(t):
    return job(1, 4, t)


def buckets(t):
    """Backward takes 60 ms; the fourth bucket is under way at its end, the last begins behind it. Rank 1: 20 buckets,
    of which two share a bar. Rank 2 tells of none."""
    def change(rank):
        if rank == 2:
            return {}
        spans = [(0.010, 0.018), (0.022, 0.030), (0.035, 0.044), (0.052, 0.066), (0.066, 0.080)]
        if rank == 1:
            spans = [(0.006 * i + 0.002, 0.006 * i + 0.007) for i in range(10)]
        return {"backward_s": 0.060, "buckets": [{"count": 2 if rank == 1 else 1, "start_s": start, "end_s": end} for start, end in spans]}
    return job(1, 3, t, change)


def hung(t):
    """Two nodes of eight; rank 13 has not come to the operation in which all others wait."""
    def change(rank):
        still = {"step": 4127, "step_age_s": 42.0 + t, "samples_per_s": None, "last_line": "step 4127: loss 2.113", "last_line_age_s": 42.0 + t}
        if rank == 13:
            return {**still, "cpu": 1.0, "gpu": 0.0, "groups": [group(rank, 16, 49524, waiting_s=0.0)],
                    "last_line": "loading shard 0412 of /data/train", "last_line_age_s": 41.0 + t}
        return {**still, "cpu": 1.0, "groups": [group(rank, 16, 49525, 49524, 41.5 + t)]}
    text = "rank 13 has not come to all-reduce 49,525, in which 15 ranks wait"
    return job(2, 8, t, change, is_healthy=False, problems=[problem("hang", text, [13], "gpu-02", 41.5 + t)],
               sentence=f"hung: no step for {42 + t:.0f} s; round 1, 2 of 2 nodes, 16 ranks, step 4,127",
               waiting_line=f"rank 13 on gpu-02, {42 + t:.0f} s so far; the watch ends the round after 600 s", waiting_left_s=558.0 - t,
               samples_per_s=None if t > 0 else 4128.0, step=4127)


def without_groups(view):
    for node in view["nodes"]:
        for rank in node["ranks"]:
            rank["groups"] = []
    return view


def hung_later(t):
    """The same, seen from a while before it hung: plots with a past."""
    return job(2, 8, t) if t < 180 else hung(t - 180)


def straggling(t):
    def change(rank):
        if rank == 5:
            return {"self_s": 0.161, "step_s": 0.178, "exposed_share": 0.02}
        return {"step_s": 0.178, "exposed_share": 0.38, "phase": "checkpoint" if rank == 0 else "train"}
    return job(2, 4, t, change, step_s=0.178, exposed_share=0.33, is_healthy=False, sentence="slow: rank 5 takes 54 % longer than the others; round 1, 8 ranks",
               problems=[problem("straggler", "rank 5 works 161 ms a step, the others 105 ms", [5], "gpu-02", 95.0),
                         problem("throttling", "GPU 1 of gpu-02 is slowed: its temperature", [5], "gpu-02", 80.0)])


def many(nodes, per_node=8):
    def make(t):
        # All kinds at once, few of each.
        def change(rank):
            if rank == 517:
                return {"groups": [group(rank, nodes * per_node, 48000)]}
            if 200 <= rank < 208:
                return {"phase": "evaluation"}
            if 208 <= rank < 216:
                return {"phase": "checkpoint"}
            if 480 <= rank < 640:
                return {"groups": [group(rank, nodes * per_node, 48001, 48000, 4.2)]}
            return {"groups": []}
        return job(nodes, per_node, t, change, lambda node: {"age_s": 12.0} if node == 17 else {}, is_healthy=False,
                   problems=[problem("straggler", "rank 901 works 151 ms a step, the others 105 ms", [901], "gpu-113", 95.0)],
                   max_nodes=nodes + 2, silent_nodes=["gpu-old"])
    return make


def restarted(t):
    """Round 3, after two failures; the second round's first step is not known."""
    rounds = [first_round(900.0 + t),
              {"round": 2, "reason": "rank 3 on gpu-01: exit code 1", "detect_s": 0.2, "stop_s": 3.1, "rendezvous_s": 0.4, "exec_s": 0.1,
               "first_step_s": None, "age_s": 400.0 + t},
              {"round": 3, "reason": "rank 6 on gpu-02: killed by signal 9 (SIGKILL)", "detect_s": 0.1, "stop_s": 12.5, "rendezvous_s": 2.2,
               "exec_s": 0.2, "first_step_s": 8.4, "age_s": 60.0 + t}]
    fault = {"rank": 6, "host": "gpu-02", "text": "killed by signal 9 (SIGKILL)", "round": 2, "age_s": 62.0 + t,
             "last_lines": "step 3991: loss 2.118\nRuntimeError: DataLoader worker (pid 4321) is killed by signal: Killed."}
    return job(2, 4, t, rounds=rounds, round=3, first_fault=fault, restart_count=2, restart_s=31.0, effective_share=0.81,
               sentence="running: round 3, 2 of 2 nodes, 8 ranks, 2 of 3 restarts used")


def failed(t):
    """One rank has failed, the others are stopped."""
    def change(rank):
        return {"state": "ended", "end": "exit code 1" if rank == 2 else "killed by signal 15 (SIGTERM)", "cpu": None}
    fault = {"rank": 2, "host": "gpu-01", "text": "exit code 1", "round": 1, "age_s": 3.0 + t, "last_lines": "ValueError: batch size 0"}
    return job(1, 4, t, change, state="ended", first_fault=fault, is_healthy=False, sentence="failed: rank 2 ended with exit code 1",
               problems=[problem("failure", "rank 2: exit code 1", [2], "gpu-01", 3.0 + t)])


def unknown(t):
    """A program that says nothing, on a node whose counters cannot be read."""
    silent = dict.fromkeys(["up_s", "cpu", "idle_s", "memory", "gpu", "gpu_memory", "step", "step_s", "longest_step_s", "samples_per_s", "self_s",
                            "exposed_share", "first_step_s", "last_line_age_s"])
    silent.update(phase="unknown", groups=[], last_line="")
    return job(1, 3, t, lambda rank: {**silent, "state": ["running", "starting", ""][rank]},
               lambda node: {"gpus": [], "memory_used": None, "memory_limit": None}, step=None, step_s=None, samples_per_s=None,
               exposed_share=None, effective_share=None, rounds=[], checkpoint_s=0.0, start_s=0.0, sentence="running: round 1, 1 of 1 nodes, 3 ranks")


def hostile(t):
    """Every text that a worker or a user can choose tries to be more than text."""
    def change(rank):
        return {"last_line": HOSTILE, "wait": HOSTILE, "end": HOSTILE if rank == 1 else "", "state": "ended" if rank == 1 else HOSTILE,
                "groups": [group(rank, 2, 10, 9, 5.0, name=HOSTILE, op=HOSTILE, key=HOSTILE)]}
    return job(1, 2, t, change, lambda node: {"host": HOSTILE, "id": HOSTILE, "state": HOSTILE, "waiting_for": HOSTILE,
                                              "problems": [problem("disk", HOSTILE + " disk", [0], HOSTILE)]},
               run_id=HOSTILE, program=HOSTILE, sentence=HOSTILE, waiting_line=HOSTILE, silent_nodes=[HOSTILE], is_healthy=False,
               rounds=[{**first_round(5.0), "reason": HOSTILE}], problems=[problem(HOSTILE, HOSTILE, [0, 1], HOSTILE)],
               first_fault={"rank": 1, "host": HOSTILE, "text": HOSTILE, "last_lines": HOSTILE * 20, "round": 1, "age_s": 1.0})


SCENARIOS = {"healthy": healthy, "buckets": buckets, "hung": hung, "hung_later": hung_later, "straggling": straggling, "many": many(128), "most": many(1024), "restarted": restarted,
             "failed": failed, "unknown": unknown, "hostile": hostile}
