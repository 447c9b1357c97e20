#!/usr/bin/env python3
"""Judges the sentences of Markdown files, of the comments of C++ headers and of the messages in C++
sources: prose.py [--table] FILE...

A sentence has at most 30 words (docs/internals/style.md asks for 25), and no word for which there
is a plainer one. A line of a page has at most 100 columns; code, tables and what cannot be wrapped
do not count. A page of docs/ has at most 200 lines. --table prints a line for each file: its words,
the words of a sentence on average, and how many sentences are longer than 30 words.
"""

import re
import sys
from dataclasses import dataclass

MOST_WORDS, MOST_COLUMNS, MOST_LINES = 30, 100, 200

# A pattern, and what to write.
BANNED = (
    (r"\banew\b", "again"),
    (r"\bmended\b", "fixed"),
    (r"\blikewise\b", "also"),
    (r"\bin place of\b", "instead of"),
    (r"\ball the same\b", "anyway"),
    (r"\bis none\b", "say what it is"),
    (r"\b(is|are|was|were) told\b", "say what happens"),
    (r"\btells? of\b", "reports, names"),
    (r"\bwho has\b", "name the subject"),
    (r"\bunlike (rounds|ones)\b", "different"),
    (r"(^|[.:;,(] )[Ww]here (there|a|an|the|it|one|no|its|nobody|that|this)\b", "if, when"),
)

_FENCE = re.compile(r"^\s*(```|~~~)")
_ITEM = re.compile(r"^\s*([-*+]|\d+[.)])\s+")
_PIECE = re.compile(r"!?\[[^\]]*\]\([^)]*\)|\S+")
_COMMENT = re.compile(r'^((?:[^"]|"[^"]*")*?)(//|/\*)(?=\s|$)(.*)$')
# A literal of C++, or what must not be taken for one: a raw literal, a character, a comment, an include.
_TOKEN = re.compile(r'''R"(?P<mark>\w*)\(.*?\)(?P=mark)"|"((?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)\'|//[^\n]*|/\*.*?\*/|#include[^\n]*''', re.S)
FEWEST_SPACES = 3  # of a message: what has less is a word or a name
_END = re.compile(r"(?<![ (]e\.g\.)(?<![ (]i\.e\.)(?<=[.!?])[\"')*_]*\s+(?=[\"'(\[*_]*[A-Z0-9`])")


@dataclass
class Sentence:
    line: int
    text: str

    def words(self):
        return len(re.findall(r"[\w`$][^\s]*", self.text))


def _plain(text):
    """Without marks: a link is its text, a piece of code is one word."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"`[^`]*`", "`code`", text)
    return re.sub(r"<[^>]*>|\*\*|__", "", text)


def _blocks(lines):
    """Paragraphs, items, headings and cells of tables, each with its first line's number. Code is
    left out."""
    block, begin = [], 0
    in_fence = is_after_blank = False
    in_list = False
    for number, line in enumerate([*lines, ""], 1):
        text = line.strip()
        is_new = not text or text.startswith(("#", "|", "!!!", "<")) or _ITEM.match(line)
        is_code = is_after_blank and line.startswith("    ") and not in_list
        if (is_new or is_code or _FENCE.match(line)) and block:
            yield begin, " ".join(block)
            block = []
        if _FENCE.match(line):
            in_fence = not in_fence
        elif in_fence or is_code or (text and not block and is_after_blank and is_code):
            continue
        elif text.startswith("|"):
            for cell in re.split(r"(?<!\\)\|", text.strip("|")):
                if cell.strip(" -:"):
                    yield number, cell.strip()
        elif text:
            if _ITEM.match(line):
                in_list = True
            elif not line.startswith(" "):
                in_list = in_list and bool(block)
            if not block:
                begin = number
            block.append(_ITEM.sub("", line).strip().lstrip("#").strip())
            if text.startswith("#"):
                yield begin, block.pop()
        is_after_blank = not text or (is_after_blank and is_code)


def _comments(lines):
    """Paragraphs and items of the comments of a C++ file, with their first lines' numbers. As in
    tools/site/doxygen_filter.py, what is indented after an empty line is code, and is left out."""
    block, begin, column = [], 0, None
    is_open = is_code = is_after_blank = False
    for number, line in enumerate([*lines, ""], 1):
        found = None if is_open else _COMMENT.match(line)
        if is_open:
            text, is_new = re.sub(r"^\s*\*(?!/)", "", line), False
        elif found:
            code, mark, text = found.groups()
            is_new = bool(code.strip()) or mark == "/*" or len(code) != column
            is_open, column = mark == "/*", len(code)
        else:
            text, is_new, column = "", True, None
        is_open = is_open and "*/" not in text
        text = text.replace("*/", "").rstrip()
        is_code = text.startswith("   ") and (is_after_blank or is_code)
        is_after_blank = not text
        if (is_new or not text or is_code or _ITEM.match(text)) and block:
            yield begin, " ".join(block)
            block = []
        if text and not is_code:
            begin = begin if block else number
            block.append(_ITEM.sub("", text).strip())


def _messages(lines):
    """The texts that a C++ source prints: literals of several words, joined where they stand side by
    side, with their first lines' numbers."""
    source, end, text, begin = "\n".join(lines), 0, "", 0
    for token in _TOKEN.finditer(source):
        if token.group(2) is None:
            continue
        if text and not re.sub(_TOKEN, "", source[end:token.start()]).strip():
            text += token.group(2)
        else:
            yield begin, text
            text, begin = token.group(2), source.count("\n", 0, token.start()) + 1
        end = token.end()
    yield begin, text


def _blocks_of(name, lines):
    if name.endswith(".md"):
        return _blocks(lines)
    if name.endswith(".h"):
        return _comments(lines)
    return ((line, part) for line, text in _messages(lines) for part in text.split("\\n") if part.count(" ") >= FEWEST_SPACES)


def sentences(name, lines):
    blocks = _blocks_of(name, lines)
    return [
        Sentence(line, piece)
        for line, block in blocks
        for piece in _END.split(_plain(block))
        if piece.strip()
    ]


def _long_lines(lines):
    """The lines of prose, with their numbers, that can be wrapped and are not."""
    in_fence = is_code = False
    before = ""
    for number, line in enumerate(lines, 1):
        if _FENCE.match(line):
            in_fence = not in_fence
        is_code = line.startswith("    ") and (is_code or not before.strip())
        before = line
        if in_fence or is_code or line.lstrip().startswith("|") or len(line) <= MOST_COLUMNS:
            continue
        if max(map(len, _PIECE.findall(line))) <= MOST_COLUMNS:
            yield number, line


def breaches(name, lines):
    if len(lines) > MOST_LINES and "docs/" in name and name.endswith(".md"):
        yield f"{name}: {len(lines)} lines, at most {MOST_LINES}: divide it by subject"
    for number, line in _long_lines(lines) if name.endswith(".md") else ():
        yield f"{name}:{number}: {len(line)} columns, at most {MOST_COLUMNS}: {line[:90]}..."
    for each in sentences(name, lines):
        count = each.words()
        shown = each.text if len(each.text) < 90 else each.text[:90] + "..."
        if count > MOST_WORDS:
            yield f"{name}:{each.line}: {count} words, at most {MOST_WORDS}: {shown}"
        for pattern, better in BANNED:
            # "where" is an if at the begin of a part of a sentence alone.
            flags = 0 if "here" in pattern else re.IGNORECASE
            found = re.search(pattern, each.text, flags)
            if found:
                yield f"{name}:{each.line}: '{found.group().strip()}' ({better}): {shown}"


def table(name, lines):
    counts = [each.words() for each in sentences(name, lines)]
    total, long_ones = sum(counts), sum(each > MOST_WORDS for each in counts)
    return f"{name}: {total} words, {total / max(1, len(counts)):.1f} a sentence, {long_ones} long"


def main(arguments):
    shows_table = arguments[:1] == ["--table"]
    failed = False
    for name in arguments[shows_table:]:
        with open(name, encoding="utf-8") as file:
            lines = file.read().splitlines()
        if shows_table:
            print(table(name, lines))
            continue
        for breach in breaches(name, lines):
            print(breach)
            failed = True
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
