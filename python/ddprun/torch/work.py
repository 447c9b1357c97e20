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


def error_of(code):
    """The exception for a call of libddp that has just failed on this thread."""
    kind = ValueError if code == INVALID_ARGUMENT else dist.DistBackendError
    return kind("ddp: " + error_text())


class Operation:
    """One or several calls of libddp that are one to the user. It owns their handles, and holds the
    tensors that they use until they are done. Any thread."""

    __slots__ = (
        "group",
        "_owner",
        "_handles",
        "_tensors",
        "_after",
        "_lock",
        "_future",
        "is_settled",
        "error",
        "result",
    )

    def __init__(self, group, handles, tensors, result, after=None):
        """`after` moves results to where the user wants them, once the calls are done."""
        self.group = group
        self._owner = group.owner
        self._handles = handles
        self._tensors = tensors
        self._after = after
        self._lock = threading.Lock()
        self._future = None
        self.is_settled = False
        self.error = None
        self.result = result

    def __del__(self):
        if self._owner.is_usable():
            for handle in self._handles:
                lib.ddp_work_free(handle)

    def is_done(self):
        if not self.is_settled and all(lib.ddp_work_is_done(each) == 1 for each in self._handles):
            self._settle()
        return self.is_settled

    def wait(self):
        """Until it is done, at most until its own timeout. Does not raise its error."""
        if not self.is_settled:
            for handle in self._handles:
                lib.ddp_work_wait(handle)
            self._settle()

    def wait_for(self, patience_ms):
        """The same where signals have to be seen meanwhile; false if it takes longer than so long,
        where that is not None."""
        for handle in () if self.is_settled else self._handles:
            while not lib.ddp_work_wait_for(
                handle, _SLICE_MS if patience_ms is None else min(_SLICE_MS, patience_ms)
            ):
                if patience_ms is not None:
                    patience_ms -= _SLICE_MS
                    if patience_ms <= 0:
                        return False
        if not self.is_settled:
            self._settle()
        return True

    def future(self):
        """A future of `result`, which completes on the group's thread."""
        completions = self.group.completions
        if completions.is_own_thread():
            # A callback of another future asks, and may wait for this one: nobody else would
            # complete it.
            self.wait()
        with self._lock:
            if self._future is None:
                self._future = _Future(self)
                if not self.is_settled:
                    completions.add(self)
                    return self._future.shown
            future = self._future
        future.complete()
        return future.shown

    def _settle(self):
        """REQUIRES: the calls are done."""
        with self._lock:
            if self.is_settled:
                return
            for handle in self._handles:
                code = lib.ddp_work_wait(handle)
                if code != 0 and self.error is None:
                    self.error = error_of(code)
            try:
                if self.error is None and self._after is not None:
                    with torch.no_grad():
                        self._after(self)
            except Exception as error:
                self.error = error
            self._after = self._tensors = None
            self.is_settled = True
            future = self._future
        if future is not None:
            future.complete()

    def source_of_message(self):
        return lib.ddp_work_source(self._handles[0])

    def is_usable(self):
        return self._owner.is_usable()

    def end(self, patience_s):
        """Waits for it at most so long, and aborts its group then: for one that nobody looks after
        any more, and whose tensors it must not outlive."""
        if not self.wait_for(int(1000 * patience_s)):
            self._owner.abort(DESTROYED)
            self.wait()

    def give_up(self):
        """Its parts, for an operation that takes its place: handles, tensors, what comes after."""
        parts = self._handles, self._tensors, self._after
        self._handles = ()
        self.is_settled = True
        return parts


class _Future:
    """torch's set_exception() is seen in Python alone; what a callback raises, in C++ as well."""

    def __init__(self, operation):
        self.operation = operation
        self._lock = threading.Lock()
        self._is_complete = False
        self._inner = torch.futures.Future()
        self.shown = self._inner.then(self._outcome)

    def _outcome(self, _):
        if self.operation.error is not None:
            raise self.operation.error
        return self.operation.result

    def complete(self):
        with self._lock:
            if self._is_complete:
                return
            self._is_complete = True
        self._inner.set_result(None)


class Work(dist._Work):
    """What the user waits for. It may be dropped: its operation goes on."""

    def __init__(self, operation, is_message=False):
        super().__init__()
        self.operation = operation
        self._is_message = is_message

    def __del__(self):
        operation = self.operation
        if not operation.is_settled:
            operation.group.adopt(operation, self._is_message)

    def wait(self, timeout=None):
        operation = self.operation
        patience_ms = None if not timeout else max(1, int(timeout.total_seconds() * 1000))
        if not operation.wait_for(patience_ms):
            raise dist.DistBackendError(
                f"ddp: waited {timeout.total_seconds():g} s for an operation that is still under "
                "way; the timeout of the group ends it"
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
        return self.operation.source_of_message()

    _source_rank = source_rank

    def get_future(self):
        if self._is_message:
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
        self._lock = threading.Lock()

    def add(self, operation):
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ddprun", daemon=True)
                self._thread.start()
        self._queue.put(operation)

    def is_own_thread(self):
        return self._thread is threading.current_thread()

    def close(self, patience_s, hurry):
        """Waits for what was added. Calls `hurry`, which ends it, when that takes longer. No call
        of add() follows."""
        thread = self._thread
        if thread is None or self.is_own_thread():
            return
        self._queue.put(None)
        thread.join(patience_s)
        if thread.is_alive():
            hurry()
            thread.join()

    def _run(self):
        while (operation := self._queue.get()) is not None:
            # Not wait(): it would execute the operation here as one that the program waits for,
            # and spin for the other ranks on a core where this rank computes.
            operation.wait_for(None)
            del operation  # it holds tensors, and the next one may be long in coming
