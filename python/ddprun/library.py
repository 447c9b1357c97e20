"""libddp.so, as ctypes sees it. The contract of each function is in ddp/c.h."""

import ctypes
import os

from ddprun import __version__

LIBRARY_VARIABLE = "DDPRUN_LIBDDP"

OK = 0
INVALID_ARGUMENT = 3
DEADLINE_EXCEEDED = 4
UNAVAILABLE = 14

_pointer = ctypes.c_void_p
_size = ctypes.c_size_t
_int = ctypes.c_int
_text = ctypes.c_char_p

SetFunction = ctypes.CFUNCTYPE(_int, _pointer, _text, _pointer, _size, _pointer)
GetFunction = ctypes.CFUNCTYPE(_int, _pointer, _text, ctypes.c_int64, _pointer)
CheckFunction = ctypes.CFUNCTYPE(
    _int, _pointer, ctypes.POINTER(_text), _size, ctypes.POINTER(_int), _pointer
)


class Store(ctypes.Structure):
    _fields_ = [
        ("context", _pointer),
        ("set", SetFunction),
        ("get", GetFunction),
        ("check", CheckFunction),
        ("set_if_absent", SetFunction),
        ("address", _text),
        ("is_for_any_thread", _int),
    ]


class GroupOptions(ctypes.Structure):
    _fields_ = [
        ("timeout_ms", ctypes.c_int64),
        ("device", _int),
        ("backend", _int),
        ("job_ranks", ctypes.POINTER(_int)),
    ]


_PROTOTYPES = {
    "ddp_version": (_text,),
    "ddp_error_text": (_text,),
    "ddp_answer_value": (None, _pointer, _pointer, _size),
    "ddp_answer_error": (None, _pointer, _text),
    "ddp_group_from_store": (
        _int,
        ctypes.POINTER(Store),
        _int,
        _int,
        ctypes.POINTER(GroupOptions),
        ctypes.POINTER(_pointer),
    ),
    "ddp_group_free": (None, _pointer),
    "ddp_group_communicator": (_pointer, _pointer),
    "ddp_communicator_set_timeout": (_int, _pointer, ctypes.c_int64),
    "ddp_communicator_abort": (_int, _pointer, _text),
    "ddp_all_reduce": (_pointer, _pointer, _pointer, _size, _int, _int, _pointer),
    "ddp_broadcast": (_pointer, _pointer, _pointer, _size, _int, _int, _pointer),
    "ddp_all_gather": (_pointer, _pointer, _pointer, _pointer, _size, _int, _pointer),
    "ddp_reduce_scatter": (_pointer, _pointer, _pointer, _pointer, _size, _int, _int, _pointer),
    "ddp_reduce": (_pointer, _pointer, _pointer, _pointer, _size, _int, _int, _int, _pointer),
    "ddp_gather": (_pointer, _pointer, _pointer, _pointer, _size, _int, _int, _pointer),
    "ddp_scatter": (_pointer, _pointer, _pointer, _pointer, _size, _int, _int, _pointer),
    "ddp_all_to_all": (_pointer, _pointer, _pointer, _pointer, _size, _int, _pointer),
    "ddp_barrier": (_pointer, _pointer),
    "ddp_send": (_pointer, _pointer, _pointer, _size, _int, _int, ctypes.c_uint64),
    "ddp_receive": (_pointer, _pointer, _pointer, _size, _int, _int, ctypes.c_uint64),
    "ddp_work_missing": (_text, _pointer),
    "ddp_work_source": (_int, _pointer),
    "ddp_work_wait": (_int, _pointer),
    "ddp_work_wait_for": (_int, _pointer, ctypes.c_int64),
    "ddp_work_is_done": (_int, _pointer),
    "ddp_work_free": (None, _pointer),
}


def _places():
    """Where libddp.so may be, in order: named, in the installed package, beside the sources, on
    the loader's path."""
    named = os.environ.get(LIBRARY_VARIABLE)
    if named:
        return [named]
    here = os.path.dirname(os.path.abspath(__file__))
    sources = os.path.dirname(os.path.dirname(here))
    return [
        os.path.join(here, "lib", "libddp.so"),
        os.path.join(sources, "dist", "lib", "libddp.so"),
        "libddp.so",
    ]


def _open():
    failures = []
    for place in _places():
        if os.path.isabs(place) and not os.path.exists(place):
            failures.append(f"{place}: there is no such file")
            continue
        try:
            return ctypes.CDLL(place), place
        except OSError as error:
            failures.append(str(error) if place in str(error) else f"{place}: {error}")
    raise ImportError(
        "ddprun: cannot load libddp.so: " + "; ".join(failures) + ". Install the ddprun package, "
        f"run tools/build in a source tree, or name the library's path in {LIBRARY_VARIABLE}."
    )


def _check_version(library, place):
    """What a struct holds, and what an argument means, goes by the first two numbers."""
    version = library.ddp_version().decode()
    if version.split(".")[:2] != __version__.split(".")[:2]:
        raise ImportError(
            f"ddprun: {place} is of version {version}, and this package of {__version__}. Install "
            "both from one release."
        )


def _declare():
    library, place = _open()
    for name, (result, *arguments) in _PROTOTYPES.items():
        try:
            function = getattr(library, name)
        except AttributeError:
            raise ImportError(
                f"ddprun: {place} has no {name}(): it is of another version than this package. "
                "Install both from one release."
            ) from None
        function.restype = result
        function.argtypes = arguments
    _check_version(library, place)
    return library


lib = _declare()


def error_text():
    """Why this thread's last call that failed did."""
    return lib.ddp_error_text().decode(errors="replace")
