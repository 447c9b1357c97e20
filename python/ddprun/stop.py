"""What the launcher wants of the program, and what it shows of it, by libddp.so. It is loaded by the
first call: who does not ask pays nothing."""

import operator

_lib = None


def _library():
    global _lib
    if _lib is None:
        _lib = _open()
    return _lib


def _open():
    import ctypes

    from ddprun.library import lib

    lib.ddp_should_stop.restype = ctypes.c_int
    lib.ddp_should_stop.argtypes = ()
    lib.ddp_last_error.restype = ctypes.c_char_p
    lib.ddp_last_error.argtypes = ()
    lib.ddp_report_progress.restype = None
    lib.ddp_report_progress.argtypes = (ctypes.c_longlong, ctypes.c_longlong)
    return lib


def should_stop() -> bool:
    """Returns whether the launcher wants the job to save and end, for example after a signal of
    preemption or `ddprun stop --graceful`.

        for step, batch in enumerate(batches):
            train(batch)
            if ddprun.should_stop():
                save(step)
                break

    Collective: every rank calls it at the same steps, and all get the same answer. It neither uses
    nor disturbs the program's own process groups. The first call forms a group of all ranks on the
    CPU from RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Without RANK the process is the only
    rank. The call waits at most 30 minutes for the other ranks. It raises RuntimeError if a rank is
    gone, or has not come. After a True every call returns True at once.
    """
    library = _library()
    answer = library.ddp_should_stop()
    if answer < 0:
        raise RuntimeError(
            "ddprun.should_stop: " + library.ddp_last_error().decode(errors="replace")
        )
    return answer == 1


def report_progress(steps_done: int, steps_in_all: int) -> None:
    """Reports that `steps_done` of `steps_in_all` steps are done, those before a restart included.

    Kubeflow Trainer shows it. Rank 0's last call counts, and all ranks may call it. It waits for
    nothing. It does nothing under a launcher that does not ask, or if `steps_in_all` is not above
    0. It raises TypeError for a value that is not an integer, and OverflowError for one that does
    not fit in 64 bits.
    """
    _library().ddp_report_progress(_checked(steps_done), _checked(steps_in_all))


def _checked(number):
    """As int: NumPy's integers count as such."""
    try:
        number = operator.index(number)
    except TypeError:
        raise TypeError(
            f"ddprun.report_progress: steps are counted by integers, not by {number!r}"
        ) from None
    if not -(2**63) <= number < 2**63:
        raise OverflowError(f"ddprun.report_progress: {number} has more than 64 bits")
    return number
