"""What the soak has done and found, of all its threads: faults by kind, breaks, figures."""

import collections
import statistics
import sys
import threading
import time

WARM_UP_S = 120  # what a process needs once is not growth


class Ledger:
    def __init__(self):
        self._lock = threading.Lock()
        self.began = time.monotonic()
        self.faults = collections.Counter()
        self.endings = collections.Counter()
        self.breaks = []
        self.left = []  # processes, cgroups and folders that outlived their job
        self.recoveries = collections.defaultdict(list)  # of a kind of fault: seconds until all ranks step again
        self.samples = collections.defaultdict(list)  # of a process or a lane: (s, use)
        self.rounds = 0
        self.steps = 0

    def say(self, text):
        print(f"soak: {time.monotonic() - self.began:7.1f} s: {text}", file=sys.stderr, flush=True)

    def fault(self, kind):
        with self._lock:
            self.faults[kind] += 1

    def ending(self, kind):
        with self._lock:
            self.endings[kind] += 1

    def recovered(self, kind, seconds):
        with self._lock:
            self.recoveries[kind].append(seconds)

    def broke(self, text):
        with self._lock:
            self.breaks.append(text)
        self.say(f"BREAK: {text}")

    def remains(self, what, names):
        """Notes what is left of something that has ended; nothing if `names` is empty."""
        if not names:
            return
        with self._lock:
            self.left += names
        self.broke(f"{what}: left behind: {', '.join(names)}")

    def sample(self, who, use):
        if use:
            with self._lock:
                self.samples[who].append((time.monotonic() - self.began, use))

    def add(self, rounds=0, steps=0):
        with self._lock:
            self.rounds += rounds
            self.steps += steps

    def report(self):
        """Prints all of it; whether nothing broke."""
        minutes = (time.monotonic() - self.began) / 60
        print(f"{minutes:.1f} minutes, {sum(self.faults.values())} faults, {self.rounds} rounds of the long jobs, "
              f"{self.steps} times 20 steps of a rank, {sum(self.endings.values())} short jobs")
        print("\nfaults, and seconds until all ranks step again (median, 99 %, longest)")
        for kind, count in sorted(self.faults.items()):
            print(f"  {kind:34} {count:5}  {quantiles(self.recoveries[kind])}")
        print("\nshort jobs by their end")
        for kind, count in sorted(self.endings.items()):
            print(f"  {kind:34} {count:5}")
        print(f"\nwhat agents that nobody killed use, and the cgroups that all agents have made and not removed, from "
              f"{WARM_UP_S} s on: first, last, slope an hour")
        for who, samples in sorted(self.samples.items()):
            for line in slopes(who, samples):
                print(line)
        print(f"\nleft behind: {len(self.left)}; invariants broken: {len(self.breaks)}")
        for text in self.breaks:
            print(f"  {text}")
        return not self.breaks


def quantiles(values):
    if not values:
        return ""
    ordered = sorted(values)
    near_last = ordered[min(len(ordered) - 1, int(0.99 * len(ordered)))]
    return f"{statistics.median(ordered):6.2f} {near_last:6.2f} {ordered[-1]:6.2f}"


def slopes(who, samples):
    """Lines for a process or a lane: least squares over what is behind the warm-up."""
    warm = [(at, use) for at, use in samples if at >= WARM_UP_S]
    if len(warm) < 10:
        yield f"  {who}: too few samples ({len(warm)})"
        return
    for what in warm[0][1]:
        times = [at for at, _ in warm]
        values = [use[what] for _, use in warm]
        unit = "KiB" if what == "rss_kib" else ""
        slope = statistics.linear_regression(times, values).slope * 3600
        share = f", {100 * slope / statistics.mean(values):+.2f} %" if what == "rss_kib" else ""
        yield (f"  {who:28} {what:12} {values[0]:8} {values[-1]:8} {unit:4} "
               f"(between {min(values)} and {max(values)}) {slope:+.1f} an hour{share}")
