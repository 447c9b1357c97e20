#!/usr/bin/env python3
"""graph.py pure-files|pure-labels GRAPH: what of the build's graph the checks of pure code look at.

GRAPH is the XML that build_graph (tools/lib.sh) asks of Bazel. pure-files: the sources and headers of the pure
targets (pure_targets.txt). pure-labels: those of them that have an archive.
"""

import collections
import pathlib
import sys
import xml.etree.ElementTree

PURE_TARGETS = pathlib.Path(__file__).with_name("pure_targets.txt")


class Graph:
    """The rules of the build by label: class, sources, headers, and the labels that they depend on."""

    def __init__(self, path):
        self.classes, self.needs = {}, {}
        self._lists = {}
        for rule in xml.etree.ElementTree.parse(path).getroot().iter("rule"):
            label = rule.get("name")
            self.classes[label] = rule.get("class")
            self.needs[label] = [need.get("name") for need in rule.iter("rule-input")]
            self._lists[label] = {part.get("name"): [item.get("value") for item in part.iter("label")]
                                  for part in rule.iter("list")}

    def matching(self, *patterns, classes=None):
        """The labels that the patterns name: //a:b, //a/..., @repository//...."""
        found = set()
        for pattern in patterns:
            folder = pattern[:-len("/...")] if pattern.endswith("/...") else None
            named = {label for label in self.classes
                     if label == pattern or folder is not None and label.startswith((folder + "/", folder + ":"))}
            if not named:
                raise LookupError(f"{pattern} names no target")
            found |= named
        return {label for label in found if classes is None or self.classes[label] in classes}

    def pure(self):
        lines = PURE_TARGETS.read_text(encoding="utf-8").splitlines()
        patterns = [line for line in lines if line and not line.startswith("#")]
        return self.matching(*patterns, classes={"cc_library"})

    def files(self, label, *attributes):
        """Paths of sources below the repository's root."""
        labels = [value for attribute in attributes for value in self._lists[label].get(attribute, [])]
        return [value[2:].replace(":", "/").lstrip("/") for value in labels]

    def path(self, sources, targets):
        """The labels of a shortest way from one of the sources to one of the targets; empty when there is none."""
        came_from = dict.fromkeys(sorted(sources))
        waiting = collections.deque(came_from)
        while waiting:
            label = waiting.popleft()
            if label in targets:
                way = [label]
                while came_from[way[-1]] is not None:
                    way.append(came_from[way[-1]])
                return way[::-1]
            for need in self.needs.get(label, []):
                if need not in came_from:
                    came_from[need] = label
                    waiting.append(need)
        return []


def main(what, path):
    graph = Graph(path)
    pure = sorted(graph.pure())
    if what == "pure-files":
        files = {name for label in pure for name in graph.files(label, "srcs", "hdrs")}
        print("\n".join(sorted(name for name in files if name.endswith((".h", ".cc")))))
    elif what == "pure-labels":
        print("\n".join(label for label in pure if any(name.endswith((".cc", ".c")) for name in graph.files(label, "srcs"))))
    else:
        sys.exit(__doc__.splitlines()[0])


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__.splitlines()[0])
    try:
        main(*sys.argv[1:])
    except LookupError as error:
        sys.exit(f"graph: {error.args[0]}")
