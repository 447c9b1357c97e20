#!/usr/bin/env python3
"""promises.py [TABLE]: what the documents promise has a test, which tests/promises.txt names.

The table has a part for each page, below a line "[page]". Its rows are "fragment | test file | case | ring". The
fragment stands in the page, and the case in the file. The ring is empty for ring 0, "ci" if only ring 1 shows it,
and "hand" if no ring does. A script has no case. tools/test says if a row has the wrong ring.

Of README.md each promise has a row: each command that it shows, and each paragraph, list or table below a heading
that is not one of NOT_PROMISED.
"""

import dataclasses
import os
import re
import sys

from targets import ring_of

README, TABLE = "README.md", "tests/promises.txt"
NOT_PROMISED = ("For whom", "Requirements and limits", "More")  # lists of links, and what is not promised
_COMMAND = re.compile(r"^    (?:\$ )?((?:\./tools|dist|tools)/\S+|ddprun|srun|pip)( .*)?$", re.M)
_CASE = re.compile(r'\b(?:TEST_CASE|TEST_CASE_FIXTURE|SCENARIO)\(\s*(?:\w+,\s*)?((?:"(?:\\.|[^"\\])*"\s*)+)')
_RINGS = {"": 0, "ci": 1, "hand": None}


@dataclasses.dataclass(frozen=True)
class Row:
    place: str  # "tests/promises.txt:7"
    page: str  # "docs/guides/slurm.md"
    fragment: str
    file: str
    case: str
    ring: str


def one_line(text):
    return " ".join(text.split())


def promises(readme):
    """The promises of a README, as (line, text in one line)."""
    found = [(readme.count("\n", 0, match.start()) + 1, one_line(match[0])) for match in _COMMAND.finditer(readme)]
    is_promised, line = False, 1
    for block in re.split(r"(\n(?:[ \t]*\n)+)", readme):
        heading = re.match(r"#+ (.*)", block)
        if heading:
            is_promised = block.startswith("## ") and heading[1] not in NOT_PROMISED
        elif is_promised and block.strip() and not block.startswith(("    ", "![")):
            found.append((line, one_line(block)))
        line += block.count("\n")
    return sorted(found)


def cases(source):
    """The names of the doctest cases of a C++ file."""
    return {"".join(re.findall(r'"((?:\\.|[^"\\])*)"', words)).replace('\\"', '"') for words in _CASE.findall(source)}


def read_table(path=TABLE):
    with open(path, encoding="utf-8") as file:
        return parse_table(path, file.read())


def parse_table(path, text):
    rows, page = [], ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("["):
            page = line.strip("[]")
        elif line and not line.startswith("#"):
            fields = [field.strip() for field in line.split("|")]
            fields += [""] * (4 - len(fields))
            rows.append(Row(f"{path}:{number}", page, one_line(fields[0]), *fields[1:4]))
    return rows


def text_breaches(rows, read):
    """What is wrong with the rows; `read` gives a file's text, or None where there is no such file."""
    pages = {page: one_line(read(page) or "") for page in {row.page for row in rows}}
    for row in rows:
        if not row.fragment or row.fragment not in pages[row.page]:
            yield f"{row.place}: {row.page} promises no such thing: {row.fragment}"
        if row.ring not in _RINGS:
            yield f"{row.place}: the ring '{row.ring}' is neither empty nor ci nor hand"
        source = read(row.file)
        if source is None:
            yield f"{row.place}: there is no test {row.file}"
        elif row.file.endswith(".cc") and row.case not in cases(source):
            yield f"{row.place}: {row.file} has no case '{row.case}'"
    of_readme = [row.fragment for row in rows if row.page == README and row.fragment]
    promised = promises(read(README) or "")
    if not promised:
        yield f"{README}: no promise was found"
    for line, text in promised:
        if not any(fragment in text for fragment in of_readme):
            yield f"{README}:{line}: no row of {TABLE} names a test of this promise: {text[:100]}"


def ring_breaches(rows, targets, scripts):
    """Rows whose test is in another ring than they say: by the targets that hold their files, and the rings of scripts."""
    for row in rows:
        rings = [ring_of(target) for target in targets if row.file in target.sources]
        lowest = min((ring for ring in rings if ring is not None), default=scripts.get(row.file))
        if lowest != _RINGS.get(row.ring):
            found = "no ring runs it" if lowest is None else f"it is in ring {lowest}"
            yield f"{row.place}: {row.file}: {found}, but the row says '{row.ring}'"


def _read(path):
    if not os.path.isfile(path):
        return None
    with open(path, encoding="utf-8") as file:
        return file.read()


def main(arguments):
    table = (arguments or [TABLE])[0]
    breaches = list(text_breaches(read_table(table), _read))
    for breach in breaches:
        print(f"promises: {breach}")
    return 1 if breaches else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
