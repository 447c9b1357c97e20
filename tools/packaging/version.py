#!/usr/bin/env python3
"""The version of the tree, wherever it stands.

version.py set VERSION [--dry-run]   makes VERSION the tree's, and closes the changelog's section
version.py notes VERSION             prints the changelog's section of VERSION

Both work on the repository in the current folder. What cannot be is one line, exit code 2.
"""

import datetime
import difflib
import pathlib
import posixpath
import re
import sys

HEADER = "rendezvous/base/version.h"
PACKAGE = "python/ddprun/__init__.py"
PROTOCOL = "rendezvous/base/this_release.cc"
VERSIONS_PAGE = "docs/reference/versions.md"
CHANGELOG = "CHANGELOG.md"
UNRELEASED = "## [Unreleased]\n"


class Refused(Exception):
    """Its text says what cannot be."""


def _number(version):
    return tuple(int(part) for part in version.split("."))


def _found(pattern, text, name, what):
    match = re.search(pattern, text, re.M)
    if not match:
        raise Refused(f"{name}: no {what} found; expected a line like {pattern}")
    return match[1]


def _entries(changelog):
    """What is below "Unreleased", up to the next section."""
    if UNRELEASED not in changelog:
        raise Refused(f"{CHANGELOG}: no section '{UNRELEASED.strip()}'; write one with the changes")
    section = re.split(r"^## ", changelog.split(UNRELEASED, 1)[1], maxsplit=1, flags=re.M)[0]
    if not re.search(r"^- ", section, re.M):
        raise Refused(f"{CHANGELOG}: the section '{UNRELEASED.strip()}' has no entry; write one")


def check(version, old, changelog):
    """Whether the tree of version `old` can become `version`. Raises Refused."""
    if not re.fullmatch(r"(0|[1-9]\d*)(\.(0|[1-9]\d*)){2}", version):
        raise Refused(f"VERSION '{version}': expected X.Y.Z, three numbers")
    released = re.findall(r"^## \[(\d+\.\d+\.\d+)\] - \d", changelog, re.M)
    newest = max(released, key=_number, default=None)
    if newest and _number(version) <= _number(newest):
        raise Refused(f"VERSION '{version}': expected one newer than {newest} of {CHANGELOG}")
    if _number(version) < _number(old):
        raise Refused(f"VERSION '{version}': expected {old} or newer, as the tree is {old}")
    _entries(changelog)


def _set_in_output(text, old, version, protocol):
    """In what `ddprun --version` prints."""
    return re.sub(rf"^ddprun {re.escape(old)} \(protocol \d+\)$",
                  f"ddprun {version} (protocol {protocol})", text, flags=re.M)


def _set_in_changelog(text, old, version, protocol, today):
    head, rest = text.split("## [", 1)
    head = _set_in_output(head, old, version, protocol)
    return (head + "## [" + rest).replace(UNRELEASED, f"## [{version}] - {today}\n")


def _set_in_versions_page(text, version, protocol):
    row, rule = f"| {version} | {protocol} |\n", "| version | protocol |\n|---|---|\n"
    if rule not in text:
        raise Refused(f"{VERSIONS_PAGE}: no table of versions and protocols found")
    return text if row in text else text.replace(rule, rule + row)


def _set_in_page(text, old, version, protocol):
    """In names of packages, and in what `ddprun --version` prints."""
    text = re.sub(rf"\bddprun([-_]){re.escape(old)}(?=[-_])", rf"ddprun\g<1>{version}", text)
    return _set_in_output(text, old, version, protocol)


def changes(version, today):
    """(name, old text, new text) of each file that the version changes."""
    texts = {path.as_posix(): path.read_text(encoding="utf-8") for path in map(pathlib.Path, (
        HEADER, PACKAGE, PROTOCOL, VERSIONS_PAGE, CHANGELOG, "README.md"))}
    texts |= {path.as_posix(): path.read_text(encoding="utf-8")
              for path in sorted(pathlib.Path("docs").rglob("*.md"))}
    old = _found(r'kVersion\[\] = "(.*)"', texts[HEADER], HEADER, "version")
    _found(rf'^__version__ = "({re.escape(old)})"$', texts[PACKAGE], PACKAGE, f"version {old}")
    protocol = _found(r"\.protocol = (\d+)", texts[PROTOCOL], PROTOCOL, "protocol")
    check(version, old, texts[CHANGELOG])
    for name, text in texts.items():
        if name in (HEADER, PACKAGE):
            new = text.replace(f'"{old}"', f'"{version}"')
        elif name == CHANGELOG:
            new = _set_in_changelog(text, old, version, protocol, today)
        else:
            new = _set_in_page(text, old, version, protocol) if name != PROTOCOL else text
            if name == VERSIONS_PAGE:
                new = _set_in_versions_page(new, version, protocol)
        if new != text:
            yield name, text, new


def notes(version, changelog, url):
    """The section of `version`. A relative link leads to that version's file in the project, or is
    plain text if the project has no page."""
    heading = rf"^## \[{re.escape(version)}\] - [^\n]*\n"
    section = re.search(heading + r"(.*?)(?=^## |\Z)", changelog, re.M | re.S)
    if not section:
        raise Refused(f"{CHANGELOG}: no section of {version}")

    def link(match):
        text, target = match.groups()
        if re.match(r"[a-z]+:", target):
            return match[0]
        return f"[{text}]({url}/blob/v{version}/{posixpath.normpath(target)})" if url else text

    body = re.sub(r"\[([^\]]*)\]\(([^)\s]+)\)", link, section[1])
    return f"# ddprun {version}\n\n{body.strip()}\n"


def main(arguments):
    command, version, *options = arguments if len(arguments) > 1 else ("", "")
    if command == "notes" and not options:
        url = pathlib.Path("PROJECT_URL").read_text(encoding="utf-8").strip().rstrip("/")
        text = pathlib.Path(CHANGELOG).read_text(encoding="utf-8")
        sys.stdout.write(notes(version, text, url))
    elif command == "set" and options in ([], ["--dry-run"]):
        today = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
        for name, old, new in list(changes(version, today)):
            print(name)
            for line in difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=0):
                if not line.startswith(("---", "+++", "@@")):
                    print(f"  {line}")
            if not options:
                pathlib.Path(name).write_text(new, encoding="utf-8")
    else:
        raise Refused("usage: version.py set VERSION [--dry-run] | version.py notes VERSION")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except Refused as refused:
        print(f"tools/release: {refused}", file=sys.stderr)
        sys.exit(2)
