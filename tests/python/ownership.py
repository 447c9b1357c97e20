"""Which process writes into a worker's page, and which pages none writes into: one scenario, which
is named."""

import fcntl
import os
import signal
import sys
import tempfile

from page import BYTES, MAGIC, VERSION, Page, run, start

REPORT = """
import os, sys, ddprun
ddprun.report_step(1, 1)
with ddprun.phase("evaluation"): pass
"""


def forked():
    """As the workers of a DataLoader: by multiprocessing, by fork() and as another program."""
    page = Page()
    out, err = run(
        """
import multiprocessing, os, subprocess, sys, ddprun
ddprun.report_step(1)
report = ddprun.report_step
def child():
    for i in range(1000): report(1000 + i, 5)
    with ddprun.phase("checkpoint"): ddprun.report_step(5)
fork = multiprocessing.get_context("fork")
children = [fork.Process(target=child) for _ in range(2)]
for each in children: each.start()
for each in children: each.join()
assert [each.exitcode for each in children] == [0, 0]
if os.fork() == 0:
    child()
    os._exit(0)
assert os.wait()[1] == 0
child_code = "import ddprun; ddprun.report_step(9, 9)"
subprocess.run([sys.executable, "-c", child_code], check=True, close_fds=False)
ddprun.report_step(2)
print(os.getpid())
""",
        page.fd,
    )
    assert err == ""
    assert (page.writer, page.steps, page.step, page.samples) == (int(out), 2, 2, 0)
    assert (page.phase, page.checkpoint_time) == (2, 0)


def wrapped():
    """A program that has not told anything leaves the page to the one that it starts."""
    page = Page()
    run(
        f"""
import os, subprocess, sys, ddprun
fd = int(os.environ["DDPRUN_COUNTERS_FD"])
subprocess.run([sys.executable, "-c", {REPORT!r}], check=True, pass_fds=(fd,))
""",
        page.fd,
    )
    assert page.steps == 1


def refused_pages():
    for page in (
        Page(seals=0),
        Page(seals=fcntl.F_SEAL_GROW),
        Page(size=BYTES - 1),
        Page(size=16),
        Page(magic=MAGIC + 1),
        Page(magic=0),
        Page(seals=fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_WRITE),
    ):
        assert run(REPORT, page.fd) == ("", "")
        assert page.is_untouched()
    larger = Page(size=2 * BYTES)
    run(REPORT, larger.fd)
    assert larger.steps == 1
    # One that cannot be written to.
    page = Page()
    reader = os.open(f"/proc/self/fd/{page.fd}", os.O_RDONLY)
    assert run(REPORT, reader) == ("", "")
    assert page.is_untouched()


def other_version():
    page = Page(version=VERSION + 1)
    assert run(REPORT + "ddprun.report_step(2)", page.fd)[1] == (
        "ddprun: this package counts its steps in a page of version 1, and the launcher has made "
        "one of version 2: no step is reported; install both from one release\n"
    )
    assert page.is_untouched()
    # Nor where there is nothing to say it on.
    for close in ("sys.stderr = None", "sys.stderr.close()", "os.close(2)"):
        run("import os, sys\n" + close + "\n" + REPORT, page.fd)


def other_descriptors():
    read, write = os.pipe()
    directory = os.open("/", os.O_RDONLY)
    terminal, other_end = os.openpty()
    null = os.open("/dev/null", os.O_RDWR)
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * BYTES)
        for fd in (read, write, directory, terminal, other_end, null, file.fileno()):
            assert run(REPORT, fd) == ("", "")
        file.seek(0)
        assert not any(file.read())
    closed = Page()
    assert run(REPORT, None, str(closed.fd)) == ("", "")


def other_texts():
    page = Page()
    for text in ("", "x", "-1", "99999999999", "9" * 5000, f"+{page.fd}", f" {page.fd}", "1.0"):
        assert run(REPORT, page.fd, text) == ("", ""), text
    assert run(REPORT, page.fd, "\u0661") == ("", "")
    assert run(REPORT, page.fd, "0") == ("", "")
    assert page.is_untouched()


def second_process():
    page = Page()
    first = start(REPORT + "print(os.getpid(), flush=True)\nsys.stdin.read()\n", page.fd)
    pid = int(first.stdout.readline())
    before = page.bytes()
    assert run(REPORT, page.fd) == ("", "")
    assert page.bytes() == before and page.writer == pid
    page.longest_step = page.waited = 5
    first.send_signal(signal.SIGKILL)
    first.communicate()
    # The next one begins anew.
    out, _ = run(REPORT + "ddprun.report_step(3)\nprint(os.getpid())", page.fd)
    assert page.writer == int(out) != pid
    assert (page.steps, page.step, page.samples, page.waited) == (2, 3, 1, 0)
    assert page.longest_step == page.step_time
    # Where nobody can be asked for, it stays.
    for nobody in (-1, -(2**63), 2**40):
        page.writer = nobody
        before = page.bytes()
        run(REPORT, page.fd)
        assert page.bytes() == before


def own_pid():
    """C++ in the same process was there first: nothing of what it has written goes."""
    page = Page()
    page.waited = 12
    program = "import os, sys\nsys.stdin.readline()\n" + REPORT
    process = start(program, page.fd)
    page.writer = process.pid
    process.communicate("go\n", timeout=60)
    assert (process.returncode, page.writer, page.steps, page.waited) == (0, process.pid, 1, 12)


def library():
    """libddp_stop.so and Python in one process, whichever comes first; a fork ends it for both."""
    load = "import ctypes, os, ddprun\nstop = ctypes.CDLL(os.environ['LIBRARY'])\n"
    first, then = "ddprun.report_step(1, 2)\n", "stop.ddp_report_step(2, 3)\n"
    for program, step in ((first + then, 2), (then + first, 1)):
        page = Page()
        child = "if os.fork() == 0:\n    " + first + "    " + then + "    os._exit(0)\nos.wait()\n"
        out, _ = run(load + program + child + "print(os.getpid())", page.fd)
        assert (page.writer, page.steps, page.step, page.samples) == (int(out), 2, step, 5)
        assert 0 < page.step_time == page.longest_step == page.step_at - page.first_step_at


def reloaded():
    """Another copy of the module in one process goes on."""
    page = Page()
    again = "import importlib, ddprun.counters as c\nimportlib.reload(c)\nc.report_step(2, 4)"
    run(REPORT + again, page.fd)
    assert (page.steps, page.step, page.samples) == (2, 2, 5)
    assert 0 < page.step_time == page.longest_step


def descriptor():
    """No child sees it, and the program may close it."""
    page = Page()
    run(
        """
import os, ddprun
fd = int(os.environ["DDPRUN_COUNTERS_FD"])
assert os.get_inheritable(fd)
ddprun.report_step(1)
assert not os.get_inheritable(fd)
assert "counters" not in "".join(os.popen("ls -l /proc/self/fd"))
os.closerange(3, 1024)
ddprun.report_step(2)
""",
        page.fd,
    )
    assert page.steps == 2


def killed():
    """A program that is killed while it writes leaves whole words."""
    loop = """
import ddprun
ddprun.report_step(0)
print(flush=True)
step = 0
while True:
    step = 0x0101010101010101 if step == 0x7E7E7E7E7E7E7E7E else 0x7E7E7E7E7E7E7E7E
    ddprun.report_step(step, 0x0000000100000001)
"""
    for _ in range(5):
        page = Page()
        process = start(loop, page.fd)
        process.stdout.readline()
        seen = {page.step for _ in range(2000)}
        process.kill()
        process.communicate()
        assert seen | {page.step} <= {0, 0x0101010101010101, 0x7E7E7E7E7E7E7E7E}, seen
        assert page.samples >> 32 == page.samples & 0xFFFFFFFF
        assert page.samples & 0xFFFFFFFF in (page.steps - 1, page.steps)


def main():
    globals()[sys.argv[1].replace("-", "_")]()
    print("checks passed", flush=True)


if __name__ == "__main__":
    os.environ.pop("DDPRUN_COUNTERS_FD", None)
    main()
