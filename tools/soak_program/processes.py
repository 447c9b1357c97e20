"""Processes of the soak: started with marks, found by them, measured, and never left behind."""

import contextlib
import os
import signal
import subprocess
import time

MARK = "SOAK_MARK"


def environment_of(pid):
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return dict(pair.split(b"=", 1) for pair in file.read().split(b"\0") if b"=" in pair)
    except OSError:
        return {}


def state_of(pid):
    """"R", "S", "T", "Z"; "" where it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""


def marked(mark):
    """Pids of living processes that were started with this mark, or by those that were."""
    wanted = mark.encode()
    pids = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in pids if environment_of(pid).get(MARK.encode()) == wanted and state_of(pid) not in ("", "Z")]


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return " ".join(word.decode(errors="replace") for word in file.read().split(b"\0"))[:100]
    except OSError:
        return "?"


def kill(pid, number):
    """False: it is gone already."""
    try:
        os.kill(pid, number)
        return True
    except ProcessLookupError:
        return False


def until(condition, limit_s, pause_s=0.05):
    """The first true value of condition(), or its last one after limit_s."""
    deadline = time.monotonic() + limit_s
    while True:
        value = condition()
        if value or time.monotonic() > deadline:
            return value
        time.sleep(pause_s)


class Program:
    """One ddprun, its output in a file."""

    count = 0

    def __init__(self, argv, env, log):
        Program.count += 1
        self.mark = f"{os.getpid()}.{Program.count}"
        self.log = log
        with open(log, "ab") as out:
            self.process = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                            env={**env, MARK: self.mark}, start_new_session=True)
        self.pid = self.process.pid
        self.started_at = time.monotonic()

    def signal(self, number):
        if self.process.poll() is None:
            self.process.send_signal(number)

    def wait(self, limit_s):
        """The exit code as a shell has it, None: it still runs."""
        try:
            code = self.process.wait(limit_s)
        except subprocess.TimeoutExpired:
            return None
        return 128 - code if code < 0 else code

    def is_running(self):
        return self.process.poll() is None

    def said(self, last=2000):
        try:
            with open(self.log, encoding="utf-8", errors="replace") as file:
                return file.read()[-last:]
        except OSError:
            return ""

    def others(self):
        """Its workers, their helpers and its guardian."""
        return [pid for pid in marked(self.mark) if pid != self.pid]

    def guardian(self):
        """The process beside it that runs the same program; None: it cannot be told."""
        workers = b"RANK"
        found = [pid for pid in self.others() if workers not in environment_of(pid)]
        return found[0] if len(found) == 1 else None

    def left(self, limit_s=10):
        """What is left of it `limit_s` after its end; ended here, so that one break is told once."""
        until(lambda: not marked(self.mark), limit_s, 0.1)
        left = marked(self.mark)
        names = [f"{pid} {name_of(pid)}" for pid in left]
        for pid in left:
            kill(pid, signal.SIGKILL)
        return names

    def end(self):
        """Whatever it does, it is over after this."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        if self.wait(15) is None:
            self.signal(signal.SIGKILL)
            self.wait(5)
        for pid in marked(self.mark):
            kill(pid, signal.SIGKILL)


def use_of(pid):
    """Resident KiB, descriptors and threads; None: it is gone."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        return {"rss_kib": int(fields["VmRSS"].split()[0]), "threads": int(fields["Threads"]),
                "descriptors": len(os.listdir(f"/proc/{pid}/fd"))}
    except (OSError, KeyError):
        return None


def listens_at(pid, port):
    """Whether the process has a listening socket on this port."""
    inodes = set()
    for line in _lines(f"/proc/{pid}/net/tcp") + _lines(f"/proc/{pid}/net/tcp6"):
        fields = line.split()
        if fields[3] == "0A" and int(fields[1].rpartition(":")[2], 16) == port:
            inodes.add(f"socket:[{fields[9]}]")
    try:
        return any(os.readlink(f"/proc/{pid}/fd/{name}") in inodes for name in os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return False  # it is gone


def _cgroup_folder():
    """The directory of this process's cgroup; "" where there is no cgroup v2."""
    mounts = [line.split() for line in _lines("/proc/mounts")]
    mount = next((fields[1] for fields in mounts if len(fields) > 2 and fields[2] == "cgroup2"), None)
    own = next((line[3:].strip() for line in _lines("/proc/self/cgroup") if line.startswith("0::")), "/")
    folder = (mount or "") + own
    return folder.rstrip("/") if mount and os.path.isdir(folder) else ""


def _move_to_cgroup(folder):
    with open(os.path.join(folder, "cgroup.procs"), "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))


@contextlib.contextmanager
def own_cgroup():
    """This program and what it starts are in a cgroup of their own, if one can be made.

    Beside it other agents' cgroups come and go, whose pids may be those of agents that ended here.
    """
    parent = _cgroup_folder()
    folder = os.path.join(parent, f"soak-{os.getpid()}")
    try:
        if parent:
            with contextlib.suppress(OSError):  # we may not
                os.mkdir(folder)
                _move_to_cgroup(folder)
        yield
    finally:
        if _cgroup_folder() == folder:
            _move_to_cgroup(parent)
        for path, _, _ in os.walk(folder, topdown=False) if parent else ():
            with contextlib.suppress(OSError):  # a process that was left is in it, and was told
                os.rmdir(path)


def cgroups_of(pids):
    """Directories of the jobs' cgroups that agents of these pids have left."""
    found, wanted = [], {str(pid) for pid in pids}
    folder = _cgroup_folder()
    for name in os.listdir(folder) if folder else []:
        words = name.split("-")
        if words[0] == "ddprun" and len(words) > 2 and words[2] in wanted:
            found.append(os.path.join(folder, name))
    return found


def folders_below(path):
    """How many folders are below this one; what goes meanwhile may count or not."""
    return sum(len(folders) for _, folders, _ in os.walk(path))


def populated(cgroups):
    """Those of these directories in or below which a process lives."""
    return [path for path in cgroups if "populated 1\n" in _lines(os.path.join(path, "cgroup.events"))]


def _lines(path):
    try:
        with open(path, encoding="utf-8") as file:
            return file.readlines()
    except OSError:
        return []
