"""What a training program tells ddprun of itself: which step it is at, and what else it does.

The words lie in a page that the program shares with its agent; worker_runtime/counters_page.h
explains each. To tell is a few stores to memory, and nobody is waited for. Without a page, as under
another launcher, nothing happens. Standard library only.
"""

import operator
import os
import sys
import time

PAGE_VARIABLE = "DDPRUN_COUNTERS_FD"

_BYTES = 8192
_MAGIC = 0x3153544E43504444
_VERSION = 1

_MAGIC_WORD = 0
_VERSION_WORD = 1
_WRITER_WORD = 2
_PHASE_WORD = 3
_PHASE_SINCE_WORD = 4
_STEPS_WORD = 5
_STEP_WORD = 6
_STEP_AT_WORD = 7
_SAMPLES_WORD = 8
_FIRST_STEP_AT_WORD = 9
_LONGEST_STEP_WORD = 10
_STEP_TIME_WORD = 11
_EVALUATION_TIME_WORD = 14
_CHECKPOINT_TIME_WORD = 15

_UNKNOWN, _START, _TRAIN, _EVALUATION, _CHECKPOINT = range(5)
_PHASES = {
    "start": _START,
    "train": _TRAIN,
    "evaluation": _EVALUATION,
    "checkpoint": _CHECKPOINT,
}
# What is no part of a step.
_TIME_WORDS = {_EVALUATION: _EVALUATION_TIME_WORD, _CHECKPOINT: _CHECKPOINT_TIME_WORD}

_INT64_MIN, _INT64_MAX = -(2**63), 2**63 - 1


def report_step(step: int, samples: int = 0) -> None:
    """Reports that optimizer step `step` is done, in which this rank took `samples` samples.

    Any program may call it, under ddprun or not. It waits for nothing. It raises only TypeError,
    for a value that is not an integer, and ValueError, for samples below 0. Call it from one
    thread. If several threads call it at the same time, a count may be lost, but nothing else. In a
    process that was forked after the first call it does nothing.
    """
    if step.__class__ is not int or samples.__class__ is not int or samples < 0:
        step, samples = _checked(step, samples)
    if _report is not None:
        _report(step, samples)


def phase(name: str) -> "_Phase":
    """Reports what the program does from now on: "start", "train", "evaluation" or "checkpoint".

        with ddprun.phase("evaluation"):
            evaluate(model)

    After a `with` the phase before it continues. The first reported step begins "train" without a
    call. A step's time contains neither evaluation nor checkpoints. If one of these is inside the
    other, its time counts only for itself. It is as safe as report_step(). Another name is a
    ValueError.
    """
    number = _PHASES.get(name)
    if number is None:
        raise ValueError(f"ddprun.phase: {name!r} is none of " + ", ".join(_PHASES))
    return _Phase(number)


class _Phase:
    __slots__ = ("_before", "_number")

    def __init__(self, number):
        self._number = number
        self._before = _enter(number)

    def __enter__(self):
        _enter(self._number)
        return self

    def __exit__(self, *_):
        _enter(self._before)


def _checked(step, samples):
    """Both as int: NumPy's integers, and tensors of one, count as such."""
    try:
        step, samples = operator.index(step), operator.index(samples)
    except TypeError:
        raise TypeError(
            f"ddprun.report_step: step and samples are integers, not {step!r} and {samples!r}"
        ) from None
    if samples < 0:
        raise ValueError(f"ddprun.report_step: samples is {samples}, and must not be below 0")
    return step, samples


def _clamped(number):
    return max(_INT64_MIN, min(number, _INT64_MAX))


def _writer(words, clock=time.monotonic_ns):
    """The two functions that write into the page, over state of their own: reading it back would
    take as long as writing. All stores are of 64 bits aligned, which memoryview copies as one."""
    steps, samples_in_all = words[_STEPS_WORD], words[_SAMPLES_WORD]
    longest, step_time = words[_LONGEST_STEP_WORD], words[_STEP_TIME_WORD]
    now_in, now_in_since = words[_PHASE_WORD], words[_PHASE_SINCE_WORD]
    since = words[_STEP_AT_WORD]  # the step's time so far is what has gone by since then
    held = 0  # in a phase that is no part of it: its time before that
    is_usual = False  # the phase is train, and there was a step

    def report(step, samples):
        nonlocal steps, samples_in_all, longest, step_time, since
        now = clock()
        took = now - since if is_usual else unusual(now)
        since = now
        if took > longest:
            words[_LONGEST_STEP_WORD] = longest = took
        words[_STEP_TIME_WORD] = step_time = step_time + took
        samples_in_all += samples
        try:
            words[_STEP_WORD] = step
            words[_SAMPLES_WORD] = samples_in_all
        except ValueError:  # more than 64 bits
            words[_STEP_WORD] = _clamped(step)
            words[_SAMPLES_WORD] = samples_in_all = _clamped(samples_in_all)
        words[_STEP_AT_WORD] = now
        words[_STEPS_WORD] = steps = steps + 1

    def unusual(now):
        """Makes a step usual where it can, and returns how long it took."""
        nonlocal held, is_usual
        if now_in < _TRAIN:
            change(_TRAIN, now)
        if steps == 0:
            words[_FIRST_STEP_AT_WORD] = now
            took = 0
        else:
            took = held if now_in in _TIME_WORDS else now - since
        held = 0
        is_usual = now_in == _TRAIN
        return took

    def change(number, now):
        nonlocal now_in, now_in_since, since, held, is_usual
        words[_PHASE_SINCE_WORD] = now  # before the sum, lest a reader counts time twice
        if now_in in _TIME_WORDS:
            words[_TIME_WORDS[now_in]] += now - now_in_since
            if number not in _TIME_WORDS:
                since = now - held
        elif number in _TIME_WORDS:
            held = now - since if steps else 0
        now_in_since = now
        words[_PHASE_WORD] = now_in = number
        is_usual = number == _TRAIN and steps > 0

    def enter(number):
        """Returns the phase before."""
        before = now_in
        if number != before:
            change(number, clock())
        return before

    return report, enter


def _lives(pid):
    if not 0 < pid < 2**31:
        return True  # nothing that we understand
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return True


def _claim(words):
    """Whether the page is this process's. Python has no compare-and-exchange, so this writes and
    reads back: where two processes of one worker make their first report within the same
    microsecond, both may go on. Their numbers are mixed then, in whole words, and nothing else is
    wrong; programs where two processes train under one rank are rarer still."""
    writer, pid = words[_WRITER_WORD], os.getpid()
    if writer == pid:
        return True  # C++ in this process has been here
    if writer != 0 and _lives(writer):
        return False
    words[_WRITER_WORD] = pid
    if words[_WRITER_WORD] != pid:
        return False
    if writer != 0:
        for word in range(_STEPS_WORD, len(words)):
            words[word] = 0
        words[_PHASE_WORD] = words[_PHASE_SINCE_WORD] = 0
    return True


def _map(text):
    """The words of the page; None where there is none, or one that is not safe to write to."""
    import fcntl
    import mmap
    import stat

    if not (text.isascii() and text.isdigit()):
        return None
    descriptor = int(text)
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode) or status.st_size < _BYTES:
        return None
    # Of a page that can shrink a store may be a SIGBUS.
    if not fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & fcntl.F_SEAL_SHRINK:
        return None
    words = memoryview(mmap.mmap(descriptor, _BYTES)).cast("q")
    if words[_MAGIC_WORD] != _MAGIC:
        return None
    if words[_VERSION_WORD] != _VERSION:
        _warn(
            f"ddprun: this package counts its steps in a page of version {_VERSION}, and the "
            f"launcher has made one of version {words[_VERSION_WORD]}: no step is reported; install "
            "both from one release"
        )
        return None
    if not _claim(words):
        return None
    os.set_inheritable(descriptor, False)
    return words


def _warn(text):
    try:
        if sys.stderr is not None:
            print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass


def _enter_nowhere(_number):
    return _UNKNOWN


def _be_silent():
    global _report, _enter
    _report, _enter = None, _enter_nowhere


def _open():
    """Once, at the first use: then the two functions are what is right for this process."""
    global _report, _enter
    words = None
    text = os.environ.get(PAGE_VARIABLE)
    if text:
        try:
            words = _map(text)
        except (OSError, ValueError, OverflowError, ImportError, AttributeError):
            pass  # no such descriptor, no right to write, a system without memfd
    _be_silent()
    if words is not None:
        _report, _enter = _writer(words)
        os.register_at_fork(after_in_child=_be_silent)


def _report_first(step, samples):
    _open()
    if _report is not None:
        _report(step, samples)


def _enter_first(number):
    _open()
    return _enter(number)


_report, _enter = _report_first, _enter_first
