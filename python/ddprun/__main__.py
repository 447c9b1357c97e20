"""`python -m ddprun ...` is `ddprun ...`, the one of this Python's environment first: in scripts it
says which environment is meant."""

import os
import shutil
import sys
import sysconfig


def find_ddprun(python=sys.executable):
    """The path of ddprun: beside `python`, where the wheel has put it, else the first of PATH; None
    if there is none."""
    folders = [sysconfig.get_path("scripts"), os.path.dirname(python)]
    for folder in folders:
        path = os.path.join(folder, "ddprun")
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return shutil.which("ddprun")


def main():
    path = find_ddprun()
    if path is None:
        print(
            "ddprun: error: python -m ddprun: no ddprun beside "
            f"{sys.executable} and none in PATH: pip install its wheel into this environment",
            file=sys.stderr,
        )
        return 127
    # Scripts run by the Python that was asked for, unless the user says otherwise.
    if not os.environ.get("PYTHON_EXEC"):
        os.environ["PYTHON_EXEC"] = sys.executable
    try:
        os.execv(path, ["ddprun", *sys.argv[1:]])
    except OSError as error:
        print(f"ddprun: error: python -m ddprun: run {path}: {error.strerror}", file=sys.stderr)
        return 126


if __name__ == "__main__":
    sys.exit(main())
