"""Which programs can start a thread: those whose link took in an object that asks for one, or a library that may.

Bazel leaves the arguments of each link beside the program. An object between --start-lib and --end-lib, and a member of
an archive, is taken in if something needs it: the program then has one of its symbols. What the program itself asks for
tells less: libstdc++ has the calls that start a thread and those that sleep in one object.
"""

import collections
import glob
import os
import re
import subprocess

import targets as targets_module

_STARTS = re.compile(r"_ZNSt6thread15_M_start_thread\w*|pthread_create|thrd_create")
# Any other library is taken to start threads.
_QUIET = re.compile(r"-l:?(lib)?(absl_\w+|protobuf|stdc\+\+|gcc_s|gcc|c|m|dl|pthread|rt|z|ssl|crypto|xxhash|hwloc)(\.a|\.so)?")
_FILE = re.compile(r"\.(o|lo|a|so(\.\d+)*)$")
# Of `nm -A`: the file, of an archive with the member; the symbol's kind and name.
_SYMBOL = re.compile(r"(.+?):\s*[0-9a-f]*\s+(\w) (\S+)")


def inputs(arguments):
    """(files, files of which the link takes in what it needs, libraries) of a link, of whose arguments each is a line."""
    files, on_demand, libraries = [], [], []
    is_on_demand, before = False, ""
    for line in arguments.splitlines():
        if line in ("-Wl,--start-lib", "-Wl,--end-lib"):
            is_on_demand = line == "-Wl,--start-lib"
        elif line.startswith("-l"):
            libraries.append(line)
        elif _FILE.search(line) and line[0] != "-" and before != "-o":
            (on_demand if is_on_demand or line.endswith(".a") else files).append(line)
        before = line
    return files, on_demand, libraries


def asking(symbols):
    """Of what `nm -A --extern-only` prints: file -> for each of its objects that asks for a thread, the names it defines."""
    defines, asks = collections.defaultdict(set), set()
    for line in symbols.splitlines():
        match = _SYMBOL.fullmatch(line)
        if match is None:
            continue
        source, kind, name = match.groups()
        if kind in "TDBR":  # what is weak, as inline functions are, is in many objects
            defines[source].add(name)
        elif kind == "U" and _STARTS.fullmatch(name.partition("@")[0]):
            asks.add(source)
    found = collections.defaultdict(list)
    for source in asks:
        found[source.partition(":")[0]].append(defines[source])
    return found


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
        self._asks = {}  # file -> as asking() says, or None where nm cannot read it

    def can(self, label):
        program = os.path.join(self._folder, targets_module.path_of(label))
        found = glob.glob(glob.escape(program) + "-*.params")
        if len(found) != 1:
            return True
        with open(found[0], encoding="utf-8") as file:
            files, on_demand, libraries = inputs(file.read())
        for library in libraries:
            if _QUIET.fullmatch(library):
                continue
            if not library.startswith("-l:") or not library.endswith(".a"):
                return True
            on_demand.append(self._run("gcc", "-print-file-name=" + library[len("-l:"):])[0].strip())
        self._read([name for name in [*files, *on_demand] if name not in self._asks])
        asks = [self._asks[name] for name in on_demand]
        if not files or None in asks or any(self._asks[name] != [] for name in files):
            return True
        symbols, is_read = self._run("nm", "--defined-only", program)
        defined = {line.rpartition(" ")[2] for line in symbols.splitlines()}
        # A program without a table of symbols tells nothing.
        return not is_read or not defined or any(not names or names & defined for objects in asks for names in objects)

    def _read(self, files):
        if not files:
            return
        symbols, is_read = self._run("nm", "-A", "--extern-only", *files)
        found = asking(symbols)
        named = {line.partition(":")[0] for line in symbols.splitlines()}
        # Nor does a shared object without one.
        self._asks.update((name, found.get(name, []) if name in named or is_read and ".so" not in name else None)
                          for name in files)

    def _run(self, *command):
        done = subprocess.run(command, cwd=self._root, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        return done.stdout, done.returncode == 0
