#!/usr/bin/env python3
"""Checks the pages of a built site: check_pages.py FOLDER

Each link to a file of the site finds it, with the part after # if there is one. No page loads a
script, a style or a picture from elsewhere. Each breach is a line; the exit code is 1 then.
"""

import html.parser
import pathlib
import re
import sys
import urllib.parse

# Attributes of elements that the browser loads without a click.
LOADED = {("link", "href"), ("script", "src"), ("img", "src"), ("iframe", "src"), ("source", "src")}
# Doxygen links to the list of a class's nested classes, also if all are private and so not listed.
UNCHECKED = "nested-classes"
# Relations of <link> by which a browser loads nothing.
NOT_LOADED = {"canonical", "prev", "next", "alternate"}
_LOADED_BY_STYLE = re.compile(r"(?:@import\s+|url\()[\"']?(?:https?:)?//[^)\"']*")


class Page(html.parser.HTMLParser):
    def __init__(self, text):
        super().__init__()
        self.links, self.anchors = [], set()  # (line, element, attribute, target)
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        self.anchors.update(filter(None, (values.get("id"), values.get("name"))))
        for attribute in ("href", "src"):
            if values.get(attribute) and not (tag == "link" and values.get("rel") in NOT_LOADED):
                self.links.append((self.getpos()[0], tag, attribute, values[attribute]))


def breaches(folder):
    folder = folder.resolve()
    pages = {path: Page(path.read_text(encoding="utf-8"))
             for path in sorted(folder.rglob("*.html"))}
    if not pages:
        yield f"{folder}: there is no page"
    for path, page in pages.items():
        for line, tag, attribute, link in page.links:
            why = _breach(folder, pages, path, (tag, attribute), urllib.parse.urlsplit(link))
            if why:
                yield f"{path.relative_to(folder)}:{line}: {link}: {why}"
    for path in sorted(folder.rglob("*.css")):
        for link in _LOADED_BY_STYLE.findall(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(folder)}:1: {link}: it would be loaded from elsewhere"


def _breach(folder, pages, path, where, link):
    if link.scheme or link.netloc:
        is_loaded = where in LOADED and link.scheme in ("", "http", "https")
        return "it would be loaded from elsewhere" if is_loaded else ""
    if not link.path and link.fragment in ("", "__skip"):
        return ""
    target = path if not link.path else (path.parent / urllib.parse.unquote(link.path)).resolve()
    if target.is_dir():
        target /= "index.html"
    if not target.is_relative_to(folder) or not target.is_file():
        return "there is no such file in the site"
    anchor = urllib.parse.unquote(link.fragment)
    if anchor and target in pages and anchor not in pages[target].anchors | {UNCHECKED}:
        return "there is no such heading"
    return ""


def main(arguments):
    if len(arguments) != 1:
        print("usage: check_pages.py FOLDER", file=sys.stderr)
        return 2
    found = list(breaches(pathlib.Path(arguments[0])))
    for breach in found:
        print(breach)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
