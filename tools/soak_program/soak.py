#!/usr/bin/env python3
"""Small jobs under random faults for a while; see tools/soak, which builds what they need and calls this."""

import argparse
import glob
import os
import random
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from ledger import Ledger
from long_job import LongJob
from processes import cgroups_of, folders_below, own_cgroup
from short_jobs import ShortJobs

END_S = 600  # a job that has not ended so long after its time never does
TELL_S = 60
SAMPLE_S = 5
LANES = "apart,hosted,short"
ETCD_LANES = "elected,unspared,short"


class Settings:
    """What all jobs share. take_port(): one that no other job of this soak was given."""

    def __init__(self, options, scratch):
        self.ddprun, self.worker, self.extra = options.ddprun, options.worker, options.extra
        self.scratch = scratch
        names = ("PET_", "DDPRUN_", "TORCHELASTIC_", "SLURM_")
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        if token := os.environ.get("DDPRUN_TOKEN") or (options.token and new_token(options.ddprun)):
            self.env["DDPRUN_TOKEN"] = token
        self.env |= {"TMPDIR": os.path.join(scratch, "tmp"), "DDPRUN_LOG_LEVEL": "info"}
        os.makedirs(self.env["TMPDIR"])
        self.small_disk = mount_small_disk(scratch, options.minutes)
        self._ports = iter(range(12000 + (os.getpid() * 37) % 8000, 32000))
        self._lock = threading.Lock()

    def take_port(self):
        with self._lock:
            return next(port for port in self._ports if is_free(port))


def is_free(port):
    try:
        with socket.create_server(("127.0.0.1", port)):
            return True
    except OSError:
        return False


def new_token(ddprun):
    return subprocess.run([ddprun, "token", "new"], stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


def mount_small_disk(scratch, minutes):
    """A file system of some MiB for the logs; None where we may not mount one."""
    folder = os.path.join(scratch, "disk")
    os.makedirs(folder)
    size = 8 + int(minutes / 5)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "soak", folder], stderr=subprocess.DEVNULL,
                          check=False)
    return folder if done.returncode == 0 else None


def parse():
    parser = argparse.ArgumentParser(description="Small jobs under random faults. Prints what broke, what was left "
                                                 "behind, and the slopes of memory, descriptors, threads and cgroups. "
                                                 "Exits with 1 if a promise broke.",
                                     usage="tools/soak [--minutes N] [--seed S] [--lanes NAME,...] [--etcd]"
                                           " [--token] [-- ddprun options]")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**9), help="of faults and pauses")
    parser.add_argument("--lanes", help=f"of these: which kinds of jobs run side by side: {LANES}; with --etcd "
                                        f"{ETCD_LANES}")
    parser.add_argument("--etcd", action="store_true", help="the long jobs have an etcd each (tools/setup --with-etcd)")
    parser.add_argument("--token", action="store_true", help="with a token; so, too, where DDPRUN_TOKEN is set")
    parser.add_argument("--keep", action="store_true", help="the folder with all output, also when nothing broke")
    parser.add_argument("--ddprun", required=True, help=argparse.SUPPRESS)
    parser.add_argument("--worker", required=True, help=argparse.SUPPRESS)
    parser.add_argument("extra", nargs="*", help="options for every agent of more than one node")
    options = parser.parse_args()
    lanes = ETCD_LANES if options.etcd else LANES
    options.lanes = options.lanes or lanes
    unknown = set(options.lanes.split(",")) - set(lanes.split(","))
    if unknown or not 0 < options.minutes <= 14 * 24 * 60:
        parser.error(f"no such lane: {unknown.pop()!r}" if unknown else "--minutes must be above 0")
    return options


def make_lanes(settings, ledger, options):
    until_s = options.minutes * 60
    for lane in options.lanes.split(","):
        if lane == "short":
            yield ShortJobs(settings, ledger, options.seed, until_s)
        else:
            yield LongJob(settings, ledger, lane, options.seed, until_s)


def count_cgroups(pids):
    """Those that agents of these pids have made, and what is below them."""
    cgroups = cgroups_of(pids)
    return len(cgroups) + sum(folders_below(path) for path in cgroups)


def soak(settings, ledger, options):
    lanes = list(make_lanes(settings, ledger, options))
    for lane in lanes:
        lane.start()
    deadline = time.monotonic() + options.minutes * 60 + END_S
    told = sampled = time.monotonic()
    while any(lane.is_alive() for lane in lanes) and time.monotonic() < deadline:
        time.sleep(0.5)
        if time.monotonic() - sampled > SAMPLE_S:
            sampled = time.monotonic()
            for lane in lanes:
                ledger.sample(f"{lane.name}: all its agents", {"cgroups": count_cgroups(lane.agent_pids)})
        if time.monotonic() - told > TELL_S:
            told = time.monotonic()
            ledger.say(f"{sum(ledger.faults.values())} faults, {sum(ledger.endings.values())} short jobs, "
                       f"{len(ledger.breaks)} breaks")
    if any(lane.is_alive() for lane in lanes):
        ledger.broke(f"a lane has not ended {END_S} s after its time")
    pids = [pid for lane in lanes for pid in lane.agent_pids]
    ledger.remains("cgroups", cgroups_of(pids))
    ledger.remains("folders", os.listdir(settings.env["TMPDIR"]))
    ledger.remains("control sockets", glob.glob(os.path.join(settings.scratch, "*", "control", "*.sock")))


def main():
    options = parse()
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    scratch = tempfile.mkdtemp(prefix="ddprun-soak.")
    ledger = Ledger()
    print(f"seed {options.seed}, {options.minutes:g} minutes, lanes {options.lanes}, ddprun options: "
          f"{' '.join(options.extra) or 'none'}", flush=True)
    settings = Settings(options, scratch)
    ledger.say("with a token" if "DDPRUN_TOKEN" in settings.env else "without a token")
    try:
        with own_cgroup():
            soak(settings, ledger, options)
    finally:
        if settings.small_disk:
            subprocess.run(["umount", "-l", settings.small_disk], check=False)
    is_well = ledger.report()
    if is_well and not options.keep:
        shutil.rmtree(scratch, ignore_errors=True)
    else:
        print(f"all output is in {scratch}")
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
