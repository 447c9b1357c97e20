"""A page as an agent makes it, and programs that get it."""

import fcntl
import os
import struct
import subprocess
import sys

BYTES = 8192
MAGIC = 0x3153544E43504444
VERSION = 1
NAMES = (
    "magic",
    "version",
    "writer",
    "phase",
    "phase_since",
    "steps",
    "step",
    "step_at",
    "samples",
    "first_step_at",
    "longest_step",
    "step_time",
    "waited",
    "exposed",
    "evaluation_time",
    "checkpoint_time",
)


class Page:
    def __init__(self, size=BYTES, magic=MAGIC, version=VERSION, seals=fcntl.F_SEAL_SHRINK):
        self.fd = os.memfd_create("counters", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        os.ftruncate(self.fd, size)
        os.pwrite(self.fd, struct.pack("QQ", magic, version), 0)
        if seals:
            fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, seals)

    def __getattr__(self, name):
        return struct.unpack_from("q", os.pread(self.fd, 8, 8 * NAMES.index(name)))[0]

    def __setattr__(self, name, value):
        if name == "fd":
            return super().__setattr__(name, value)
        os.pwrite(self.fd, struct.pack("q", value), 8 * NAMES.index(name))

    def bytes(self):
        return os.pread(self.fd, BYTES, 0)

    def is_untouched(self):
        return not any(self.bytes()[16:])


def start(program, fd, text=None, **options):
    """Python with the program's text, which finds the descriptor as a worker does."""
    environment = {**os.environ, "DDPRUN_COUNTERS_FD": str(fd) if text is None else text}
    return subprocess.Popen(
        [sys.executable, "-W", "error", "-c", program],
        env=environment,
        pass_fds=() if fd is None else (fd,),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def run(program, fd, text=None):
    """What the program says; one that fails fails the test."""
    process = start(program, fd, text)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0, (process.returncode, out, err)
    return out, err
