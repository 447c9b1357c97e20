#!/usr/bin/env python3
"""Makes ddprun's man page of what `ddprun --help-all` says. Reads that from stdin; the argument is the
version."""

import re
import sys


def escaped(text):
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return "\\&" + text if text[:1] in ".'" else text


def page(help_text, version):
    lines = help_text.splitlines()
    usage = next(at for at, line in enumerate(lines) if line.startswith("Usage: "))
    out = [
        f'.TH DDPRUN 1 "" "ddprun {version}" "User Commands"',
        ".SH NAME",
        "ddprun \\- start and watch the processes of a distributed training",
        ".SH SYNOPSIS",
        escaped(lines[usage].removeprefix("Usage: ")),
        ".SH EXAMPLES",
        ".nf",
        *(escaped(line.strip()) for line in lines[1:usage] if line.strip()),
        ".fi",
        ".SH DESCRIPTION",
    ]
    for line in lines[usage + 1 :]:
        heading = re.fullmatch(r"([A-Z][\w ,]*):", line)
        entry = re.fullmatch(r"  (\S.*?)(?:\s{2,}(\S.*))?", line)
        if heading:
            out.append(f".SH {escaped(heading[1].upper())}")
        elif entry:
            out += [".TP", f".B {escaped(entry[1])}"] + ([escaped(entry[2])] if entry[2] else [])
        elif not line.strip():
            out.append(".PP")
        else:
            out.append(escaped(line.strip()))
    return "\n".join(out) + "\n"


if __name__ == "__main__":
    sys.stdout.write(page(sys.stdin.read(), sys.argv[1]))
