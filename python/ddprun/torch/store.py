"""Any c10d store as a store of libddp."""

import ctypes
import datetime
import os
import socket
import time

from ddprun.library import (
    DEADLINE_EXCEEDED,
    OK,
    UNAVAILABLE,
    CheckFunction,
    GetFunction,
    SetFunction,
    Store,
    lib,
)

# Of TEST-NET-1: nobody has it, and a datagram socket sends nothing when it is connected.
_ELSEWHERE = ("192.0.2.1", 9)


class CallbackStore:
    """Callbacks for ddp_group_from_store() over `store`, which are called by the thread that forms
    the group alone. Their waits are the store's own, which do not end by Ctrl-C."""

    def __init__(self, store):
        self._store = store
        self._is_abandoned = False
        self.address = address_of(store)
        # ctypes does not keep them.
        self.functions = Store(
            None,
            SetFunction(self._set),
            GetFunction(self._get),
            CheckFunction(self._check),
            SetFunction(self._set_if_absent),
            self.address.encode(),
            0,
        )

    def abandon(self):
        """Every later call fails at once: the interpreter may end while its thread goes on."""
        self._is_abandoned = True

    def _answered(self, answer, call):
        try:
            if self._is_abandoned:
                raise InterruptedError("the forming of the group was given up")
            return call()
        except BaseException as error:  # there is nobody above to hear of it
            lib.ddp_answer_error(
                answer,
                str(error).splitlines()[0][:500].encode()
                if str(error)
                else type(error).__name__.encode(),
            )
            return UNAVAILABLE

    def _set(self, _context, key, value, size, answer):
        def call():
            self._store.set(key.decode(), ctypes.string_at(value, size))
            return OK

        return self._answered(answer, call)

    def _get(self, _context, key, timeout_ms, answer):
        def call():
            text = key.decode()
            end = time.monotonic() + timeout_ms / 1000
            try:
                self._store.wait([text], datetime.timedelta(milliseconds=timeout_ms))
            except Exception:
                if time.monotonic() < end:
                    raise
                return DEADLINE_EXCEEDED
            value = self._store.get(text)
            lib.ddp_answer_value(answer, value, len(value))
            return OK

        return self._answered(answer, call)

    def _check(self, _context, keys, count, are_there, answer):
        def call():
            texts = [keys[i].decode() for i in range(count)]
            are_there[0] = 1 if self._store.check(texts) else 0
            return OK

        return self._answered(answer, call)

    def _set_if_absent(self, _context, key, value, size, answer):
        def call():
            held = self._store.compare_set(
                key.decode(), "", ctypes.string_at(value, size).decode(errors="replace")
            )
            lib.ddp_answer_value(answer, held, len(held))
            return OK

        return self._answered(answer, call)


def address_of(store):
    """The address at which other hosts reach this process: the launcher's word where workers find the
    store on loopback, else the one from which this process reaches the store's host, or, where that
    is this host itself or the store has none, the default route's."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if os.environ.get("DDPRUN_NODE_ADDR"):
        return os.environ["DDPRUN_NODE_ADDR"]
    host = getattr(store, "host", None)
    address = _address_toward((host, store.port)) if host else ""
    if not address or address.startswith("127.") or address == "::1":
        address = _address_toward(_ELSEWHERE) or address
    return address or "127.0.0.1"


def _address_toward(place):
    try:
        found = socket.getaddrinfo(*place, type=socket.SOCK_DGRAM)
    except OSError:
        return ""
    for family, kind, protocol, _name, address in found:
        try:
            with socket.socket(family, kind, protocol) as probe:
                probe.connect(address)
                return probe.getsockname()[0]
        except OSError:
            continue
    return ""
