"""A group of ranks in libddp, and how it ends."""

import atexit
import ctypes
import os
import threading
import time
import weakref

from ddprun.library import GroupOptions, error_text, lib
from ddprun.torch.store import CallbackStore
from ddprun.torch.work import DESTROYED, Completions, Operation, Work, error_of

# How long operations that nobody waits for may take to end when their group does.
_DRAIN_S = 5.0
_DRAIN_AT_EXIT_S = 1.0

_groups = weakref.WeakSet()


class _Owner:
    """The group in libddp. Every operation of it has one, so that it is freed after them."""

    def __init__(self, handle, store, getpid=os.getpid):
        self._handle = handle
        self._store = store  # its callbacks
        self._getpid = getpid
        self._pid = getpid()
        self.communicator = lib.ddp_group_communicator(handle)

    def is_usable(self):
        """A forked child has a copy of this object, and nothing of what is behind it."""
        return self._handle is not None and self._getpid() == self._pid

    def abort(self, reason):
        if self.is_usable():
            lib.ddp_communicator_abort(self.communicator, reason.encode())

    def free(self):
        if self.is_usable():
            handle, self._handle = self._handle, None
            lib.ddp_group_free(handle)

    __del__ = free


def _milliseconds(timeout):
    return max(1, int(timeout.total_seconds() * 1000))


class Group:
    """What all collectives need: calls of libddp one at a time, and operations that outlive what
    the user keeps of them."""

    def _form(self, store, rank, size, timeout):
        """Collective, over the store alone."""
        self._rank = rank
        self._size = size
        self._timeout_ms = _milliseconds(timeout)
        self._lock = threading.RLock()
        self._is_closed = False
        self._messages = []  # under way, and nobody has their Work
        self.completions = Completions()
        callbacks = CallbackStore(store)
        handle = ctypes.c_void_p()
        code = lib.ddp_group_from_store(
            callbacks.functions, rank, size, GroupOptions(self._timeout_ms, 0, 0), handle
        )
        if code != 0:
            callbacks.raise_interrupt()
            raise error_of(code)
        self.owner = _Owner(handle.value, callbacks)
        _groups.add(self)

    def _call(self, function, *arguments, timeout=None):
        """One call of libddp, and its handle. `timeout` is that of the call's options, which have
        one below 0 for none."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("ddp: the process group was destroyed")
            owner = self.owner
            if not owner.is_usable():
                raise RuntimeError(
                    "ddp: this process was forked after init_process_group(), and is no rank of "
                    "the group: start workers before it, or by spawn"
                )
            if timeout is not None and timeout.days >= 0:
                lib.ddp_communicator_set_timeout(owner.communicator, _milliseconds(timeout))
                handle = function(owner.communicator, *arguments)
                lib.ddp_communicator_set_timeout(owner.communicator, self._timeout_ms)
            else:
                handle = function(owner.communicator, *arguments)
        if not handle:
            raise MemoryError("ddp: " + error_text())
        return handle

    def _work(self, handles, tensors, result, after=None):
        return Work(Operation(self, handles, tensors, result, after))

    def _several(self, works, result, after=None):
        """One Work of several that nobody has seen."""
        handles, tensors, afters = [], [], []
        for work in works:
            its_handles, its_tensors, its_after = work.operation.give_up()
            handles.extend(its_handles)
            tensors.append(its_tensors)
            afters.append(its_after)
        afters = [each for each in (*afters, after) if each is not None]

        def all_afters(operation):
            for each in afters:
                each(operation)

        return self._work(handles, tensors, result, all_afters if afters else None)

    def _message_work(self, handle, tensors, result, after=None):
        self._forget_done_messages()
        return Work(Operation(self, [handle], tensors, result, after), is_message=True)

    def adopt(self, operation, is_message):
        """Keeps an operation that the user has dropped, until it is done: it uses its tensors."""
        if not operation.is_usable():
            return
        if self._is_closed:
            operation.end(_DRAIN_S)
        elif is_message:
            self._messages.append(operation)
        else:
            self.completions.add(operation)

    def _forget_done_messages(self):
        if self._messages:
            self._messages = [each for each in self._messages if not each.is_done()]

    def rank(self):
        return self._rank

    def size(self):
        return self._size

    getRank = rank
    getSize = size

    def name(self):
        return "ddp"

    getBackendName = name
    _get_backend_name = name

    def set_timeout(self, timeout):
        with self._lock:
            self._timeout_ms = _milliseconds(timeout)
            if self.owner.is_usable():
                lib.ddp_communicator_set_timeout(self.owner.communicator, self._timeout_ms)

    _set_default_timeout = set_timeout

    def abort(self):
        """Ends everything under way, on all ranks."""
        self.owner.abort("abort() was called")

    def shutdown(self):
        """Leaves the group. The other ranks need not come; what they do without this one fails."""
        self._close(_DRAIN_S)

    def _close(self, patience_s):
        with self._lock:
            if self._is_closed or not self.owner.is_usable():
                return
            self._is_closed = True
        end = time.monotonic() + patience_s
        for message in self._messages:
            message.wait_for(max(1, int((end - time.monotonic()) * 1000)))
        self._messages = []
        self.completions.close(patience_s, lambda: self.owner.abort(DESTROYED))
        self.owner = _Closed()

    def _end(self):
        """At the interpreter's end, where Works may still be there which nobody waits for."""
        owner = self.owner
        self._close(_DRAIN_AT_EXIT_S)
        owner.free()


class _Closed:
    """What a group that has ended has for an owner."""

    def is_usable(self):
        return False

    def abort(self, _reason):
        pass

    def free(self):
        pass


@atexit.register
def _end_all():
    for group in list(_groups):
        group._end()
