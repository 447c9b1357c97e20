"""How far one coordinator goes: real connections of the product's client over loopback, the machine alone, and the simulator.

A farm is two processes, the coordinator and all agents (scale/rendezvous_farm.cc), which start no workers. The machine
(scale/machine_farm.cc) has agents that are only names, in virtual time. The simulator (tests/sim) has whole agents in it, and streams.
"""

import json
import os
import subprocess
import time

from harness import BenchError, Part, Row, build

# Agents, and how many of them start a second: 0 is all at once.
FARMS = ((256, 0), (1024, 0), (2048, 0), (4096, 0))
# Nodes, and how many of them a relay would stand for.
MACHINES = ((1024, 1), (4096, 1), (16384, 1), (100000, 1), (100000, 64), (100000, 256))
CROWDS = (1024, 4096, 16384, 100000)
FIGURES = {"cpu_ms": "ms", "virtual_ms": "ms", "messages_a_node": "", "bytes_a_node": "", "said_a_node": "", "told_a_node": "",
           "heard": "messages", "told": "messages", "kib_a_node": "KiB"}
IDLE_S = 10
FAILURES = 3
LIMIT_S = 240
CROWD_LIMIT_S = 1200


def measure_farm(program, nodes, rate):
    """Figures of one farm: task, unit, values."""
    coordinator = Part(program, "coordinator", nodes)
    parts = [coordinator]
    try:
        port = coordinator.ready()["port"]
        agents = Part(program, "agents", port, nodes, rate)
        parts.append(agents)
        formed = agents.ready()
        used = coordinator.ask("use")
        rows = [("first start to last place", "ms", [formed["placed_last_ms"]]),
                ("messages to an agent until then", "", [formed["messages_an_agent"]]),
                ("coordinator until then, CPU", "ms", [used["cpu_ms"]])]
        before = time.monotonic()
        idle = agents.ask(f"wait {IDLE_S}")
        later = coordinator.ask("use")
        seconds = time.monotonic() - before
        rows += [("idle: coordinator", "% of a core", [(later["cpu_ms"] - used["cpu_ms"]) / seconds / 10]),
                 ("idle: contacts lost", "", [idle["lost"]]),
                 ("coordinator, memory", "MiB", [later["rss_kib"] / 1024]),
                 ("coordinator, descriptors", "", [later["descriptors"]])]
        failures = [agents.ask("fail") for _ in range(FAILURES)]
        rows += [("failure to the last agent told", "ms", [failure["told_last_ms"] for failure in failures]),
                 ("failure to the last place in the next round", "ms", [failure["placed_last_ms"] for failure in failures]),
                 ("messages to an agent for that", "", [failure["messages_an_agent"] for failure in failures])]
        round_before = agents.ask("note")["round"]
        coordinator.kill()
        coordinator = Part(program, "coordinator", nodes, port)
        parts.insert(0, coordinator)
        coordinator.ready()
        back = agents.ask("back")
        used = coordinator.ask("use")
        # Who does not come back in time ends the round some seconds later.
        later = agents.ask(f"stay {IDLE_S}")
        kept = later["round"] == round_before and later["drained"] == 0
        rows += [("coordinator killed, a new one at once, to the last agent back", "ms", [back["back_last_ms"]]),
                 ("the round is kept by it (1) or ends (0)", "", [int(kept)]),
                 ("the new coordinator until then, CPU", "ms", [used["cpu_ms"]]),
                 ("the new coordinator, most memory", "MiB", [used["peak_kib"] / 1024])]
        agents.ask("fail")  # it leads the job on
        return rows
    finally:
        for part in reversed(parts):
            part.end()


def measure_phases(command, limit_s):
    """Figures of a program that prints a line of JSON for each phase of a job."""
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, timeout=limit_s, text=True, check=False)
    if done.returncode != 0:
        words = [line.strip() for line in done.stdout.splitlines() if not line.startswith("{")]
        raise BenchError(f"{' '.join(command)} ended with {done.returncode}: {'; '.join(words)}")
    for line in done.stdout.splitlines():
        phase = json.loads(line)
        for what, unit in FIGURES.items():
            if what in phase:
                yield f"{phase['phase']}: {what}", unit, [phase[what]]


def scale_case(_scratch, _runs):
    folder = os.path.join(build("//tools/bench/scale:all"), "tools/bench/scale")
    rows = []
    for nodes, rate in FARMS:
        name = f"farm of {nodes} connections"
        try:
            found = measure_farm(os.path.join(folder, "rendezvous_farm"), nodes, rate)
            rows += [Row(f"{name}: {task}", "ddprun", unit, values) for task, unit, values in found]
        except (BenchError, OSError) as error:
            rows.append(Row(name, "ddprun", "", error=str(error)))
    machine = os.path.join(folder, "machine_farm")
    simulator = os.path.join(build("//tests/sim:sim_main"), "tests/sim/sim_main")
    alone = [(f"machine with {nodes} nodes" + (f", {width} a relay" if width > 1 else ""), [machine, str(nodes), str(width)],
              LIMIT_S) for nodes, width in MACHINES]
    simulated = [(f"simulated job of {nodes} nodes", [simulator, "--crowd", str(nodes)], CROWD_LIMIT_S) for nodes in CROWDS]
    for name, command, limit_s in alone + simulated:
        try:
            found = list(measure_phases(command, limit_s))
            rows += [Row(f"{name}: {task}", "ddprun", unit, values) for task, unit, values in found]
        except (BenchError, subprocess.SubprocessError, OSError) as error:
            rows.append(Row(name, "ddprun", "", error=str(error)))
    return rows
