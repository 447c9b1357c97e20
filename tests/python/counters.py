"""What report_step() and phase() write into a worker's page: one scenario, which is named."""

import os
import sys
import time

from page import Page, run


def values():
    page = Page()
    before = time.monotonic_ns()
    out, err = run(
        """
import time, ddprun
ddprun.report_step(7, samples=32)
time.sleep(0.002)
ddprun.report_step(8, 32)
time.sleep(0.02)
ddprun.report_step(step=9, samples=0)
ddprun.report_step(10)
import os
print(os.getpid())
""",
        page.fd,
    )
    after = time.monotonic_ns()
    assert err == ""
    assert page.writer == int(out)
    assert (page.phase, page.steps, page.step, page.samples) == (2, 4, 10, 64)
    assert before < page.first_step_at == page.phase_since < page.step_at < after
    assert page.step_time == page.step_at - page.first_step_at
    assert 20_000_000 <= page.longest_step <= page.step_time - 2_000_000
    assert not any(page.bytes()[8 * 12 :])


def phases():
    page = Page()
    out, err = run(
        """
import os, struct, sys, time, ddprun
fd = int(os.environ["DDPRUN_COUNTERS_FD"])
def words():
    return struct.unpack("16q", os.pread(fd, 128, 0))
def now():
    return words()[3]
ddprun.phase("start")
assert now() == 1
with ddprun.phase("evaluation"):
    assert now() == 3
    assert words()[14] == 0, "only what has ended"
assert now() == 1
ddprun.report_step(1)
assert now() == 2
with ddprun.phase("evaluation") as entered:
    time.sleep(0.01)
    with ddprun.phase("checkpoint"):
        assert now() == 4
        time.sleep(0.03)
        since = words()[4]
    assert now() == 3 and words()[4] > since
    with ddprun.phase("evaluation"):
        assert now() == 3
assert now() == 2
try:
    with ddprun.phase("checkpoint"):
        assert now() == 4
        raise KeyError("mine")
except KeyError:
    assert now() == 2
ddprun.report_step(2)
a = words()
assert 10_000_000 <= a[14] <= a[7] - a[9] - a[15], a
assert 30_000_000 <= a[15] <= a[7] - a[9] - a[14], a
# The rest of it is the step, but for the time that the first evaluation took.
assert a[7] - a[9] - a[14] - a[15] <= a[11] <= a[7] - a[9] - 40_000_000, a
assert a[10] == a[11]
# A step that ends in an evaluation is what went by before that.
with ddprun.phase("evaluation"):
    time.sleep(0.03)
    ddprun.report_step(3)
    assert now() == 3
    taken = words()[11]
    assert taken > a[11]
    ddprun.report_step(4)
    assert words()[11] == taken
b = words()
assert 0 <= b[11] - a[11] < b[7] - a[7] - 30_000_000, (a, b)
ddprun.report_step(5)
assert words()[5:7] == (5, 5)
ddprun.phase("checkpoint")
ddprun.phase("train")
assert now() == 2 and words()[15] > b[15]
for name in ("test", "", None, 3, "Train"):
    try:
        ddprun.phase(name)
    except ValueError as error:
        expected = f"ddprun.phase: {name!r} is none of start, train, evaluation, checkpoint"
        assert str(error) == expected, error
    else:
        raise AssertionError(name)
assert now() == 2
# One that is kept is a phase each time.
kept = ddprun.phase("evaluation")
for _ in range(2):
    with kept:
        assert now() == 3
    assert now() == 2
""",
        page.fd,
    )
    assert err == ""
    assert page.steps == 5


WRONG = """
import ddprun
def raises(kind, *arguments):
    try:
        ddprun.report_step(*arguments)
    except kind as error:
        assert str(error).startswith("ddprun.report_step: ") or not arguments, error
    else:
        raise AssertionError((kind, arguments))
for step in ("1", None, 1.0, [1]):
    raises(TypeError, step)
    raises(TypeError, 1, step)
raises(TypeError)
raises(ValueError, 1, -1)
class Number:
    def __index__(self):
        return 12
ddprun.report_step(Number(), Number())
ddprun.report_step(True, True)
"""


def arguments():
    """What is wrong is so with a page and without one."""
    page = Page()
    assert run(WRONG, page.fd)[1] == ""
    assert (page.steps, page.step, page.samples) == (2, 1, 13)
    assert run(WRONG, None, "")[1] == ""


def numbers():
    for step, said in (
        (4, 4),
        (-3, -3),
        (2**63 - 1, 2**63 - 1),
        (2**63, 2**63 - 1),
        (2**64, 2**63 - 1),
        (-(2**70), -(2**63)),
    ):
        page = Page()
        run(f"import ddprun\nfor step in (5, {step}): ddprun.report_step(step, 3)", page.fd)
        assert (page.steps, page.step, page.samples) == (2, said, 6), (step, page.step)
    page = Page()
    run(
        """
import ddprun
for step, samples in ((2**70, 2**62), (1, 2**62), (2, 2**70), (3, 1)):
    ddprun.report_step(step, samples)
""",
        page.fd,
    )
    assert (page.steps, page.step, page.samples) == (4, 3, 2**63 - 1)


def threads():
    page = Page()
    run(
        """
import threading, ddprun
def report():
    for i in range(20000):
        ddprun.report_step(i, 1)
        with ddprun.phase("evaluation"):
            pass
threads = [threading.Thread(target=report) for _ in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
ddprun.phase("train")
ddprun.report_step(77)
""",
        page.fd,
    )
    assert 20_000 < page.steps <= 80_001 and page.step == 77
    assert page.phase == 2


def no_page():
    """A program that nobody has given one."""
    program = "import ddprun\nddprun.report_step(1)\nwith ddprun.phase('evaluation'): pass\n"
    assert run(program, None, "") == ("", "")
    # Neither PyTorch nor our library is asked for.
    program += "import sys\nassert not {'torch', 'ctypes', 'mmap'} & set(sys.modules)\n"
    run(program, None, "")


def main():
    globals()[sys.argv[1].replace("-", "_")]()
    print("checks passed", flush=True)


if __name__ == "__main__":
    os.environ.pop("DDPRUN_COUNTERS_FD", None)
    main()
