"""Which programs can start a thread: those that ask libc for one, or link a library that may."""

import os
import re
import subprocess

import targets as targets_module

# A weak reference ("w") starts nothing by itself.
_STARTS = re.compile(r"^\s+U (pthread_create|thrd_create|clone3?)(@|$)", re.M)
_NEEDED = re.compile(r"\(NEEDED\).*\[(.*)\]")
# Whatever else a program needs is taken to start threads.
_QUIET = re.compile(r"(libc|libm|libgcc_s|libstdc\+\+|libdl|libpthread|librt|libz|libcrypto|libssl|ld-linux-x86-64)\.so\.\d+")


def can_start(symbols, dynamic):
    """Whether a program can, of which `nm -D --undefined-only` and `readelf -d` say this."""
    return bool(_STARTS.search(symbols)) or any(not _QUIET.fullmatch(name) for name in _NEEDED.findall(dynamic))


def file_can_start(path):
    """The same of a file; of one that cannot be read the answer is yes."""
    said = []
    for words in (("nm", "-D", "--undefined-only", path), ("readelf", "-d", "-W", path)):
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            return True
        said.append(done.stdout)
    return can_start(*said)


def choose(labels, targets, can):
    """Of `labels` those of which the program itself, or one that it may start or open, can start a thread.

    `can` says so of a label. A script has no program of its own.
    """
    by_label = {target.label: target for target in targets}
    chosen = []
    for label in labels:
        target = by_label.get(label)
        if target is None or any(can(name) for name in target.programs) or target.kind == "cc_test" and can(label):
            chosen.append(label)
    return tuple(chosen)


class Programs:
    """Answers for the programs below a folder of Bazel's, each asked once."""

    def __init__(self, folder):
        self._folder = folder
        self._answers = {}

    def can(self, label):
        if label not in self._answers:
            self._answers[label] = file_can_start(os.path.join(self._folder, targets_module.path_of(label)))
        return self._answers[label]
