"""Reads what the workers of a job say of themselves, and judges it as it comes."""

import os


class Worker:
    def __init__(self, node, epoch, round_, restart, rank, world, store, pid):
        self.node, self.store = node, store
        self.at = (int(epoch), int(round_))
        self.restart, self.rank, self.world, self.pid = int(restart), int(rank), int(world), int(pid)


class Events:
    """The lines of a job's `events`, read by one thread. Breaks go to `broke`. `same`: what all ranks are told alike."""

    def __init__(self, folder, broke, same=("world", "restart", "store")):
        self.path = os.path.join(folder, "events")
        self.broke = broke
        self.same = same
        self.offset = 0
        self.rounds = {}  # (epoch, round): {rank: Worker}
        self.newest_of_node = {}
        self.restarts = 0  # by the newest round
        self.newest = (0, 0)
        self.stepping = set()  # pids
        self.steps = 0
        self.done = 0

    def read(self):
        try:
            with open(self.path, "rb") as file:
                file.seek(self.offset)
                text = file.read()
        except FileNotFoundError:
            return
        whole = text.rfind(b"\n") + 1
        self.offset += whole
        for line in text[:whole].decode(errors="replace").splitlines():
            self._take(line)

    def _take(self, line):
        words = line.split()
        if words[:1] == ["start"] and len(words) == 9:
            self._start(Worker(*words[1:]))
        elif words[:1] == ["step"] and len(words) == 5:
            self.steps += 1
            self.stepping.add(int(words[4]))
        elif words[:1] == ["done"]:
            self.done += 1
        elif words[:1] == ["broken"]:
            self.broke(line[7:])
        else:
            self.broke(f"a line of events that is none: {line!r}")

    def _start(self, worker):
        ranks = self.rounds.setdefault(worker.at, {})
        where = f"round {worker.at}, rank {worker.rank} on {worker.node}"
        if worker.rank in ranks:
            self.broke(f"S1: {where}: {ranks[worker.rank].node} has that rank, too")
        if not 0 <= worker.rank < worker.world:
            self.broke(f"S1: {where}: of {worker.world} ranks")
        for other in ranks.values():
            for what in self.same:
                if getattr(other, what) != getattr(worker, what):
                    self.broke(f"S2: {where}: {what} is {getattr(worker, what)}, for rank {other.rank} "
                               f"{getattr(other, what)}")
            break
        ranks[worker.rank] = worker
        newest = self.newest_of_node.get(worker.node, (0, 0))
        if worker.at < newest:
            self.broke(f"S3: {where}: the node has been in {newest} before")
        self.newest_of_node[worker.node] = max(newest, worker.at)
        if worker.at > self.newest:
            if worker.restart < self.restarts:
                self.broke(f"S9: {where}: the restart count falls from {self.restarts} to {worker.restart}")
            rounds = worker.at[1] - self.newest[1]
            if worker.at[0] == self.newest[0] and worker.restart > self.restarts + rounds:
                self.broke(f"S9: {where}: {worker.restart} restarts, {rounds} rounds before {self.restarts}")
            self.newest, self.restarts = worker.at, worker.restart

    def is_whole(self):
        """Whether the newest round's ranks are all there and have stepped."""
        ranks = self.rounds.get(self.newest, {})
        world = next(iter(ranks.values())).world if ranks else 0
        return 0 < world == len(ranks) and all(worker.pid in self.stepping for worker in ranks.values())

    def workers(self):
        return list(self.rounds.get(self.newest, {}).values())
