"""The worker's store beside PyTorch's server, same C++ clients on each: requests per second and the
server's CPU per request under load, and the start of many ranks at once."""

import contextlib
import json
import os
import re
import subprocess

from harness import HERE, NO_TORCH, BenchError, Row, build, compile_program, run, torch_python

MIXES = ("get", "set", "add", "wait", "mixed")
CONNECTIONS = (1, 64, 1024)
RANKS = (64, 256, 1024)
PEER = "PyTorch TCPStore"
FLOOR = "bare epoll echo"
SECRET = "ddprun, through two agents in TLS"  # both of them in the server's process, as is its CPU
# Where the scheduler puts two processes that answer each other decides more than what they do: together on
# one core, 1 connection makes four times as many requests as on two that fall asleep in between. So every
# server has one core and every client another.
CORES = sorted(os.sched_getaffinity(0))
ON_SERVER_CORE = ["taskset", "-c", str(CORES[-1])]
ON_CLIENT_CORE = ["taskset", "-c", str(CORES[0])]
# PyTorch's server asks for the name of every address that it accepts, which takes as long as the
# name server likes. In a mount namespace of its own it finds the name in a file instead.
NAMES = "127.0.0.1 localhost\n::1 localhost\n::ffff:127.0.0.1 localhost\n"
WITH_NAMES = ["unshare", "--mount", "sh", "-c", 'mount --bind "$1" /etc/hosts; shift; exec "$@"', "sh"]


class Server:
    """A server process that prints "port=N pid=N" and lives until its stdin ends."""

    def __init__(self, command):
        self.process = subprocess.Popen([*ON_SERVER_CORE, *command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=subprocess.DEVNULL, text=True)

    def __enter__(self):
        found = re.match(r"port=(\d+) pid=(\d+)", self.process.stdout.readline())
        if not found:
            self.__exit__()
            raise BenchError(f"{self.process.args[0]} did not say where it listens")
        return [f"--port={found[1]}", f"--server_pid={found[2]}"]

    def __exit__(self, *_):
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stdout.close()


def programs():
    """The folder of our benchmark programs."""
    names = ("store_bench", "init_bench", "store_server_main")
    return os.path.join(build(*("//tools/bench/store:" + name for name in names)), "tools/bench/store")


def torch_server(scratch):
    """(command, note) of PyTorch's server, (None, why) without one."""
    python = torch_python()
    if not python:
        return None, NO_TORCH
    command = [python, os.path.join(HERE, "store", "torch_store_server.py")]
    names = os.path.join(scratch, "hosts")
    with open(names, "w", encoding="utf-8") as out:
        out.write(NAMES)
    try:
        run([*WITH_NAMES, names, "true"], 20)
    except BenchError:
        return command, "with a name lookup for each connection"
    return [*WITH_NAMES, names, *command], ""


@contextlib.contextmanager
def servers(folder, scratch, with_floor=False):
    """Starts all servers; yields {who: client arguments}, and the rows' note or error for PyTorch's."""
    command, note = torch_server(scratch)
    with contextlib.ExitStack() as stack:
        ours = os.path.join(folder, "store_server_main")
        found = {"ddprun": stack.enter_context(Server([ours])), SECRET: stack.enter_context(Server([ours, "--tls"]))}
        if command:
            found[PEER] = stack.enter_context(Server(command))
        if with_floor:
            floor = compile_program(scratch, "store", "echo_floor")
            found[FLOOR] = stack.enter_context(Server([floor]))
        yield found, note


def measure(task, units, clients, turns, note):
    """Calls each server's client in turns; a client returns one value for each (suffix, unit) of `units`."""
    values, errors = {who: [] for who in clients}, {}
    for _ in range(turns):
        for who, client in clients.items():
            if who in errors:
                continue
            try:
                values[who].append(client())
            except BenchError as error:
                errors[who] = str(error)
    rows = []
    for i, (suffix, unit) in enumerate(units):
        for who in clients:
            row = Row(task + suffix, who, unit, [value[i] for value in values[who]], errors.get(who))
            if who == PEER:
                row.note = note
            rows.append(row)
        if PEER not in clients:
            rows.append(Row(task + suffix, PEER, unit, error=note))
    return rows


def store_case(scratch, runs):
    folder = programs()

    def client(arguments, connections, mix):
        output = run([*ON_CLIENT_CORE, os.path.join(folder, "store_bench"), *arguments,
                      f"--connections={connections}", "--milliseconds=1000", f"--mix={mix}"], 60)
        result = json.loads(output)
        return result["requests_per_second"], result["server_cpu_us_per_request"]

    units = [("", "requests/s"), (", server CPU", "us/request")]
    rows = []
    with servers(folder, scratch, with_floor=True) as (found, note):
        for connections in CONNECTIONS:
            for mix in MIXES:
                clients = {who: lambda arguments=arguments: client(arguments, connections, mix)
                           for who, arguments in found.items() if who != FLOOR or mix == "get"}
                rows += measure(f"store {mix}, {connections} connections", units, clients, max(3, runs // 2), note)
    return rows


def store_init_case(scratch, runs):
    """N ranks do what init_process_group does, all at once, to the last one's end."""
    folder = programs()

    def client(arguments, ranks):
        output = run([*ON_CLIENT_CORE, os.path.join(folder, "init_bench"), *arguments, f"--ranks={ranks}"], 120)
        result = json.loads(output)
        return result["milliseconds"], result["server_cpu_us_per_rank"]

    units = [("", "ms"), (", server CPU", "us/rank")]
    rows = []
    with servers(folder, scratch) as (found, note):
        for ranks in RANKS:
            clients = {who: lambda arguments=arguments: client(arguments, ranks) for who, arguments in found.items()}
            rows += measure(f"store, start of {ranks} ranks", units, clients, 2 * runs, note)
    return rows
