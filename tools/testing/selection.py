"""From what somebody names (a test, the product file it tests, a folder, a label) to programs and what they run."""

import dataclasses
import os
import posixpath

from targets import ring_of


class NothingFound(Exception):
    """Its text says what was looked for."""


@dataclasses.dataclass(frozen=True)
class Look:
    """Where to look for a name's programs."""
    package: str = ""  # the programs of this one
    pattern: str = ""  # or these labels, as they are
    file: str = ""  # of the package's programs those that hold this file, and of these its cases alone
    script: str = ""  # or this test in Python


def _package_of(path, exists):
    """The nearest folder at or above `path` that is a package."""
    while path and not exists(posixpath.join(path, "BUILD")):
        path = posixpath.dirname(path)
    return path


def _test_of(path):
    """The test of a file of the product: a/b.cc -> tests/a/b_test.cc."""
    folder, name = posixpath.split(path.replace("worker_runtime/include/ddp/", "worker_runtime/"))
    stem, ending = posixpath.splitext(name)
    return posixpath.join("tests", folder, stem + ("_test.py" if ending == ".py" else "_test.cc"))


def _in_folder(folder, exists, is_folder):
    if exists(posixpath.join(folder, "BUILD")):
        return Look(package=folder)
    return Look(pattern=f"//{folder}/...") if is_folder(folder) else None


def look_for(path, exists, is_folder):
    """Where the programs of `path`, a path in the repository or a label, are to be looked for."""
    if path.startswith("//"):
        return Look(pattern=path)
    path = path.rstrip("/")
    is_test = path == "tests" or path.startswith("tests/")
    if is_folder(path):
        folder = path if is_test else posixpath.join("tests", path)
        look = _in_folder(folder, exists, is_folder)
        if look is None:
            raise NothingFound(f"{path}: there is no folder {folder}")
        return look
    if not exists(path):
        raise NothingFound(f"{path}: there is no such file or folder")
    if is_test and path.endswith("_test.py"):
        return Look(script=path)
    if is_test:
        package = _package_of(posixpath.dirname(path), exists)
        # A helper's tests are those of its package.
        return Look(package=package, file=path if path.endswith(("_test.cc", "_test.sh")) else "")
    test, folder = _test_of(path), posixpath.join("tests", posixpath.dirname(path))
    if exists(test):
        return Look(script=test) if test.endswith(".py") else Look(package=_package_of(posixpath.dirname(test), exists), file=test)
    if posixpath.dirname(path) and exists(posixpath.join(folder, "BUILD")):
        return Look(package=folder)
    raise NothingFound(f"{path}: there is neither {test} nor a package {folder}")


@dataclasses.dataclass(frozen=True)
class Choice:
    label: str
    files: tuple = ()  # all of it where empty


def choose(look, targets, left_out=""):
    """The programs of `look` among `targets`, those of its package, without those that bear the tag `left_out`."""
    chosen = _choose(look, [target for target in targets if target.package == look.package])
    tagged = {target.label for target in targets if left_out in target.tags}
    found = [choice for choice in chosen if choice.label not in tagged]
    if not found:
        raise NothingFound(f"{look.file or look.package}: {', '.join(sorted(tagged))} has the tag {left_out}")
    return found


def _choose(look, own):
    if look.file:
        found = [target for target in own if look.file in target.sources]
        if not found:
            names = ", ".join(target.label for target in own) or "which has no tests"
            raise NothingFound(f"{look.file}: no test of //{look.package} has it among its sources ({names})")
        # A script is one program.
        return [Choice(target.label, (look.file,) if target.kind == "cc_test" else ()) for target in found]
    found = [target for target in own if "manual" not in target.tags]
    # What takes long is run by its own name, or where there is nothing else.
    found = [target for target in found if ring_of(target) != 2] or found
    if not found:
        raise NothingFound(f"//{look.package}: it has no tests")
    return [Choice(target.label) for target in found]


def merge(choices):
    """The runs for all choices, as (labels, files): one with all that is cut to files, one with the rest."""
    whole = sorted({choice.label for choice in choices if not choice.files})
    cut = [choice for choice in choices if choice.files and choice.label not in whole]
    runs = []
    if cut:
        runs.append((sorted({choice.label for choice in cut}), sorted({file for choice in cut for file in choice.files})))
    if whole:
        runs.append((whole, []))
    return runs


def in_repository(path, called_from, repository):
    """`path` as somebody in the folder `called_from` means it."""
    if path.startswith("//"):
        return path
    full = os.path.normpath(os.path.join(called_from, path))
    inside = os.path.relpath(full, repository)
    if inside.startswith(".."):
        raise NothingFound(f"{path}: it is not in {repository}")
    return inside
