"""A group of ranks in libddp, and how it ends."""

import atexit
import collections
import ctypes
import os
import threading
import time
import weakref

import torch.distributed as dist

from ddprun.library import GroupOptions, error_text, lib
from ddprun.torch.store import CallbackStore
from ddprun.torch.work import (
    DESTROYED,
    FORKED,
    Completions,
    Handle,
    Operation,
    Work,
    error_of,
    start_thread,
)

# How long what is under way may take to end when its group does; at the interpreter's end, when all
# groups do.
_DRAIN_S = 5.0
_DRAIN_AT_EXIT_S = 1.0

# How long the callbacks of its futures may take behind that: a thread that comes back from one when
# the interpreter has ended aborts the process.
_CALLBACKS_S = 2.0

_groups = weakref.WeakSet()


class _Owner:
    """The group in libddp. Every handle of it has one, so that it is freed after them."""

    def __init__(self, pointer, store, getpid=os.getpid):
        self._pointer = pointer
        self._store = store  # its callbacks
        self._in_use = []
        self._getpid = getpid
        self._pid = getpid()
        self.communicator = lib.ddp_group_communicator(pointer)

    def is_usable(self):
        """A forked child has a copy of this object, and nothing of what is behind it."""
        return self._getpid() == self._pid

    def abort(self, reason):
        if self.is_usable():
            lib.ddp_communicator_abort(self.communicator, reason.encode())

    def keep(self, tensors):
        """Until the group is freed."""
        self._in_use.append(tensors)

    def __del__(self):
        if self.is_usable():
            lib.ddp_group_free(self._pointer)


def _job_ranks(rank, size, global_ranks):
    """Which ranks of the launcher's job the group's are; None where this process is not the rank
    that a launcher has started, as one of torch.multiprocessing's."""
    ranks = list(global_ranks) or list(range(size))
    try:
        own, count = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    except (KeyError, ValueError):
        return None
    if ranks[rank] != own or max(ranks) >= count or not (global_ranks or size == count):
        return None
    return (ctypes.c_int * size)(*ranks)


def _milliseconds(timeout):
    return max(1, int(timeout.total_seconds() * 1000))


class _Forming:
    """A group that forms on a thread of its own: neither libddp nor a store's wait ends by Ctrl-C.
    The thread is left behind then, and the store is in its use until the call of it ends that is
    under way."""

    def __init__(self, store, rank, size, options):
        self._callbacks = CallbackStore(store)
        self._arguments = (rank, size, options)
        self._has_ended = threading.Event()
        self._owner = None
        self._error = None

    def owner(self):
        """Waits for it."""
        thread = threading.Thread(target=self._form, name="ddp-forms", daemon=True)
        start_thread(thread, "to form the group on")
        try:
            self._has_ended.wait()
        except BaseException:
            self._callbacks.abandon()
            raise
        if self._error is not None:
            raise self._error
        return self._owner

    def _form(self):
        try:
            pointer = ctypes.c_void_p()
            code = lib.ddp_group_from_store(self._callbacks.functions, *self._arguments, pointer)
            if code != 0:
                self._error = error_of(code)
            else:
                self._owner = _Owner(pointer.value, self._callbacks)
        except BaseException as error:
            self._error = error
        finally:
            self._has_ended.set()


class Group:
    """What all collectives need: calls of libddp one at a time, and operations that outlive what
    the user keeps of them."""

    def _form(self, store, rank, size, timeout, global_ranks=()):
        """Collective, over the store alone. `global_ranks` are those of the ranks; none: the
        same."""
        self._rank = rank
        self._size = size
        self._timeout_ms = _milliseconds(timeout)
        self._lock = threading.RLock()
        self._is_closed = False
        self._dropped = collections.deque()  # messages whose Work nobody has
        self.completions = Completions()
        options = GroupOptions(self._timeout_ms, 0, 0, _job_ranks(rank, size, global_ranks))
        self.owner = _Forming(store, rank, size, options).owner()
        _groups.add(self)

    def _call(self, function, *arguments, timeout=None):
        """One call of libddp, and its handle. `timeout` is that of the call's options, which have
        one below 0 for none."""
        with self._lock:
            if self._is_closed:
                raise RuntimeError("ddp: the process group was destroyed")
            owner = self.owner
            if not owner.is_usable():
                raise RuntimeError(FORKED)
            if timeout is not None and timeout.days >= 0:
                lib.ddp_communicator_set_timeout(owner.communicator, _milliseconds(timeout))
                pointer = function(owner.communicator, *arguments)
                lib.ddp_communicator_set_timeout(owner.communicator, self._timeout_ms)
            else:
                pointer = function(owner.communicator, *arguments)
        if not pointer:
            raise MemoryError("ddp: " + error_text())
        return Handle(owner, pointer, function.__name__)

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
        self._settle_dropped()
        return Work(Operation(self, [handle], tensors, result, after, is_message=True))

    def adopt(self, operation):
        """Looks after an operation whose Work the user has dropped."""
        if not self.owner.is_usable():
            return
        if operation.is_message:
            self._dropped.append(operation)
        else:
            self.completions.add(operation)

    def _settle_dropped(self):
        """Those that are done. Other threads may do the same, and a collection may add to them."""
        for _ in range(len(self._dropped)):
            try:
                operation = self._dropped.popleft()
            except IndexError:
                return
            if not operation.is_done():
                self._dropped.append(operation)

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
        self.close(time.monotonic() + _DRAIN_S)

    def close(self, end):
        """Leaves the group when what is under way has ended, and at `end` at the latest."""
        with self._lock:
            if self._is_closed or not self.owner.is_usable():
                return
            self._is_closed = True
        operations = Operation.under_way(self)
        late = [each for each in operations if not each.wait_for(1 + int(1000 * _left(end)))]
        if all(each.is_message for each in late):
            # The other ranks may go on without this one.
            for each in late:
                self.owner.keep(each.abandon(dist.DistBackendError(f"ddp: {DESTROYED}")))
        else:
            self.owner.abort(DESTROYED)
            for each in late:
                each.wait()
        self._dropped.clear()
        self.completions.close(_left(end + _CALLBACKS_S))
        self.owner = _Closed()


def _left(end):
    return max(0, end - time.monotonic())


class _Closed:
    """What a group that has ended has for an owner."""

    def is_usable(self):
        return False

    def abort(self, _reason):
        pass


@atexit.register
def _close_all():
    end = time.monotonic() + _DRAIN_AT_EXIT_S
    for group in list(_groups):
        group.close(end)
