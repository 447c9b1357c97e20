"""The worker's store: requests per second and the server's CPU per request, same load on each server."""

import json
import os
import re
import subprocess

from harness import HERE, BenchError, Row, build, run

MIXES = ("get", "set", "add", "wait", "mixed")
CONNECTIONS = (1, 64, 1024)


class Server:
    """A server process that prints "port=N pid=N" and lives until its stdin ends."""

    def __init__(self, command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __enter__(self):
        found = re.match(r"port=(\d+) pid=(\d+)", self.process.stdout.readline())
        if not found:
            raise BenchError(f"{self.process.args[0]} did not say where it listens")
        return found.groups()

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def has_torch():
    try:
        return bool(run(["python3", "-c", "import torch.distributed"], 60) or True)
    except BenchError:
        return False


def store_case(scratch, runs):
    del scratch
    folder = os.path.join(build("//tools/bench/store:store_bench", "//tools/bench/store:store_server_main"),
                          "tools/bench/store")
    servers = {"ddprun": [os.path.join(folder, "store_server_main")]}
    if has_torch():
        servers["PyTorch TCPStore"] = ["python3", os.path.join(HERE, "store", "torch_store_server.py")]
    rows = []
    for connections in CONNECTIONS:
        for mix in MIXES:
            found = {who: ([], []) for who in servers}
            errors = {}
            for _ in range(max(1, runs // 5)):
                for who, command in servers.items():
                    try:
                        rate, cpu = load(folder, command, connections, mix)
                    except BenchError as error:
                        errors[who] = str(error)
                        continue
                    found[who][0].append(rate)
                    found[who][1].append(cpu)
            for who, (rates, cpus) in found.items():
                task = f"store {mix}, {connections} connections"
                error = errors.get(who)
                rows.append(Row(task, who, "requests/s", [] if error else rates, error))
                if not error:
                    rows.append(Row(task + ", server CPU", who, "us/request", cpus))
    return rows


def load(folder, command, connections, mix):
    with Server(command) as (port, pid):
        output = run([os.path.join(folder, "store_bench"), f"--port={port}", f"--connections={connections}",
                      "--seconds=2", f"--mix={mix}", f"--server_pid={pid}"], 60)
    result = json.loads(output)
    return result["requests_per_second"], result["server_cpu_us_per_request"]
