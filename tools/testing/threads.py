"""Which programs can start a thread, by what their link takes in: objects that ask for one, or a library that may.

Bazel leaves the arguments of each link beside the program. What is linked in the end tells less: libstdc++ has the calls
that start a thread and those that sleep in one object.
"""

import glob
import os
import re
import subprocess

import targets as targets_module

_STARTS = re.compile(r" U (_ZNSt6thread15_M_start_thread\w*|pthread_create|thrd_create)(@|$)")
# Any other library is taken to start threads.
_QUIET = re.compile(r"-l:?(lib)?(absl_\w+|protobuf|stdc\+\+|gcc_s|gcc|c|m|dl|pthread|rt|z|ssl|crypto|xxhash|hwloc)(\.a|\.so)?")
_FILE = re.compile(r"\.(o|lo|a|so)$")


def inputs(arguments):
    """(files, libraries) of a link, of whose arguments each is a line."""
    lines = arguments.splitlines()
    files = [line for line, before in zip(lines, ["", *lines]) if _FILE.search(line) and line[0] != "-" and before != "-o"]
    return files, [line for line in lines if line.startswith("-l")]


def asking(symbols):
    """Of what `nm -A --undefined-only` prints the files that ask for a thread."""
    return {line.partition(":")[0] for line in symbols.splitlines() if _STARTS.search(line)}


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
    """Answers for the programs below a folder of Bazel's. Of one whose link is not known the answer is yes."""

    def __init__(self, folder):
        self._folder = folder
        self._root = folder.partition("/bazel-out/")[0]
        self._asks = {}  # file -> whether it asks for a thread

    def can(self, label):
        found = glob.glob(glob.escape(os.path.join(self._folder, targets_module.path_of(label))) + "-*.params")
        if len(found) != 1:
            return True
        with open(found[0], encoding="utf-8") as file:
            files, libraries = inputs(file.read())
        if not files or any(not _QUIET.fullmatch(name) for name in libraries):
            return True
        self._read([name for name in files if name not in self._asks])
        return any(self._asks[name] for name in files)

    def _read(self, files):
        if not files:
            return
        done = subprocess.run(("nm", "-A", "--undefined-only", *files), cwd=self._root, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, check=False)
        found = asking(done.stdout)
        # What nm cannot read is taken to ask.
        self._asks.update((name, name in found or done.returncode != 0) for name in files)
