"""Operations under way, and what torch.distributed gets to wait for them."""

import queue
import threading

import torch
import torch.distributed as dist

from ddprun.library import INVALID_ARGUMENT, error_text, lib

# How long a wait stays in C: a signal such as Ctrl-C is seen after it at the latest.
_SLICE_MS = 100

# Why a group that ends aborts what is still under way.
DESTROYED = "its process group was destroyed"
FORKED = (
    "ddp: this process was forked after init_process_group(), and is no rank of the group: start "
    "workers before it, or by spawn"
)


# What ends the group begins so, and is of the same code as what this rank alone has done wrong.
_MISMATCH = "the ranks call different operations"


def error_of(code):
    """The exception for a call of libddp that has just failed on this thread."""
    text = error_text()
    is_own = code == INVALID_ARGUMENT and not text.startswith(_MISMATCH)
    return (ValueError if is_own else dist.DistBackendError)("ddp: " + text)


def start_thread(thread, what):
    """Or raises an error that names the limit. `what`: "to do this on"."""
    try:
        thread.start()
    except RuntimeError as error:
        raise dist.DistBackendError(
            f"ddp: there is no thread {what} ({error}): a limit on processes (ulimit -u, pids.max) "
            "or on memory (ulimit -v) is reached"
        ) from None


class Handle:
    """One call of libddp, until nobody has it any more. What uses it has it from first to last."""

    __slots__ = ("owner", "pointer", "name")

    def __init__(self, owner, pointer, name):
        self.owner = owner  # which is freed after its handles
        self.pointer = pointer
        self.name = name  # the function's, as "ddp_all_reduce"

    def __del__(self):
        if self.owner.is_usable():
            lib.ddp_work_free(self.pointer)


# All operations that have not ended: libddp uses their tensors, whatever the user keeps of them.
_under_way = set()


class Operation:
    """One or several calls of libddp that are one to the user. It holds the tensors that they use
    until they are done. Any thread."""

    __slots__ = (
        "group",
        "is_message",
        "is_settled",
        "error",
        "result",
        "source",
        "_handles",
        "_tensors",
        "_after",
        "_lock",
        "_future",
    )

    def __init__(self, group, handles, tensors, result, after=None, is_message=False):
        """`after` moves results to where the user wants them, once the calls are done."""
        self.group = group
        self.is_message = is_message
        self.is_settled = False
        self.error = None
        self.result = result
        self.source = -1  # of a message that has come
        self._handles = handles
        self._tensors = tensors
        self._after = after
        self._lock = threading.Lock()
        self._future = None
        _under_way.add(self)

    @staticmethod
    def under_way(group):
        return [each for each in list(_under_way) if each.group is group]

    def is_done(self):
        handles = self._of_this_process()
        if not self.is_settled and all(lib.ddp_work_is_done(each.pointer) == 1 for each in handles):
            self._settle()
        return self.is_settled

    def wait(self):
        """Until it is done, at most until its own timeout. Does not raise its error."""
        for handle in self._of_this_process():
            lib.ddp_work_wait(handle.pointer)
        self._settle()

    def wait_for(self, patience_ms):
        """The same where signals have to be seen meanwhile; false if it takes longer than so long,
        where that is not None."""
        for handle in self._of_this_process():
            while not self.is_settled and not lib.ddp_work_wait_for(
                handle.pointer, _SLICE_MS if patience_ms is None else min(_SLICE_MS, patience_ms)
            ):
                if patience_ms is not None:
                    patience_ms -= _SLICE_MS
                    if patience_ms <= 0:
                        return False
        self._settle()
        return True

    def future(self):
        """A future of `result`, which completes when the operation is settled, on the thread that
        settles it."""
        completions = self.group.completions
        if completions.is_own_thread():
            # A callback of another future asks, and may wait for this one: nobody else would
            # complete it.
            self.wait()
        with self._lock:
            is_first = self._future is None
            if is_first:
                self._future = _Future()
            is_settled = self.is_settled
        if is_settled:
            self._future.complete(self)
        elif is_first:
            self._await_completion(completions)
        return self._future.shown

    def _await_completion(self, completions):
        try:
            is_awaited = completions.add(self)
        except dist.DistBackendError:
            self._future = None  # nobody would complete it; who asks again may have a thread
            raise
        if not is_awaited:
            self.wait()

    def name(self):
        names = [each.name.removeprefix("ddp_") for each in self._handles]
        return " and ".join(dict.fromkeys(names)) or "an operation"

    def missing(self):
        """Who has not come, as far as that is known: ": rank 1 did not arrive"."""
        words = (lib.ddp_work_missing(each.pointer).decode() for each in self._of_this_process())
        return next((f": {each}" for each in words if each), "")

    def _of_this_process(self):
        """Its handles; none when it is settled."""
        handles = self._handles
        if handles and not handles[0].owner.is_usable():
            raise RuntimeError(FORKED)
        return handles

    def _settle(self):
        """REQUIRES: the calls are done."""
        with self._lock:
            if self.is_settled:
                return
            for handle in self._handles:
                code = lib.ddp_work_wait(handle.pointer)
                if code != 0 and self.error is None:
                    self.error = error_of(code)
            if self.is_message and self.error is None:
                self.source = lib.ddp_work_source(self._handles[0].pointer)
            try:
                if self.error is None and self._after is not None:
                    with torch.no_grad():
                        self._after(self)
            except Exception as error:
                self.error = error
            self._end()
        if self._future is not None:
            self._future.complete(self)

    def _end(self):
        """REQUIRES: its lock, or that nobody else has it."""
        self._handles = ()
        self._after = self._tensors = None
        self.is_settled = True
        _under_way.discard(self)

    def abandon(self, error):
        """Ends a message with `error` before it is done. Its tensors, which are in use until the
        group is freed."""
        with self._lock:
            tensors = self._tensors
            if not self.is_settled:
                self.error = error
                self._end()
        return tensors

    def give_up(self):
        """Its parts, for an operation that takes its place: handles, tensors, what comes after."""
        parts = self._handles, self._tensors, self._after
        self._end()
        return parts


class _Future:
    """torch's set_exception() is seen in Python alone; what a callback raises, in C++ as well."""

    def __init__(self):
        self._lock = threading.Lock()
        self._is_complete = False
        self._operation = None
        self._inner = torch.futures.Future()
        self.shown = self._inner.then(self._outcome)

    def _outcome(self, _):
        # Not kept: the operation has this future, and both would live on with their tensors.
        operation, self._operation = self._operation, None
        if operation.error is not None:
            raise operation.error
        return operation.result

    def complete(self, operation):
        with self._lock:
            if self._is_complete:
                return
            self._is_complete = True
        self._operation = operation
        self._inner.set_result(None)


class Work(dist._Work):
    """What the user waits for. It may be dropped: its operation goes on."""

    def __init__(self, operation):
        super().__init__()
        self.operation = operation

    def __del__(self):
        operation = self.operation
        if not operation.is_settled:
            operation.group.adopt(operation)

    def wait(self, timeout=None):
        operation = self.operation
        patience_ms = None if not timeout else max(1, int(timeout.total_seconds() * 1000))
        if not operation.wait_for(patience_ms):
            raise dist.DistBackendError(
                f"ddp: waited {timeout.total_seconds():g} s for {operation.name()}, which is still "
                f"under way{operation.missing()}; the timeout of the group ends it"
            )
        if operation.error is not None:
            raise operation.error
        return True

    def synchronize(self):
        self.wait()

    def is_completed(self):
        return self.operation.is_done()

    def is_success(self):
        return self.operation.is_done() and self.operation.error is None

    def exception(self):
        return self.operation.error if self.operation.is_done() else None

    def result(self):
        self.wait()
        return self.operation.result

    def source_rank(self):
        self.wait()
        return self.operation.source

    _source_rank = source_rank

    def get_future(self):
        if self.operation.is_message:
            raise RuntimeError(
                "ddp: a message has no future, as over Gloo: wait() for what send, recv, isend and "
                "irecv return"
            )
        return self.operation.future()


class Completions:
    """The one thread that waits for operations whose future somebody has, or whose Work nobody has
    any more. It waits in C, without the interpreter's lock."""

    def __init__(self):
        self._queue = queue.SimpleQueue()
        self._thread = None
        self._is_closed = False
        self._lock = threading.RLock()  # a collection may drop a Work where this is held

    def add(self, operation):
        """False when it is closed. Raises where there is no thread for it."""
        with self._lock:
            if self._is_closed:
                return False
            if self._thread is None:
                thread = threading.Thread(target=self._run, name="ddprun", daemon=True)
                if self._thread is None:
                    # Before it starts: a collection in between comes here again.
                    self._thread = thread
                    try:
                        start_thread(thread, "to wait on for operations")
                    except dist.DistBackendError:
                        self._thread = None
                        raise
            self._queue.put(operation)
        return True

    def is_own_thread(self):
        return self._thread is threading.current_thread()

    def close(self, patience_s):
        """Waits at most so long for what was added, and for the callbacks of its futures."""
        with self._lock:
            self._is_closed = True
            self._queue.put(None)
        if self._thread is not None and not self.is_own_thread():
            self._thread.join(patience_s)

    def _run(self):
        while (operation := self._queue.get()) is not None:
            # Not wait(): it would execute the operation here as one that the program waits for,
            # and spin for the other ranks on a core where this rank computes.
            operation.wait_for(None)
            del operation  # it holds tensors, and the next one may be long in coming
