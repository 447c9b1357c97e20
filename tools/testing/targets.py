"""The test programs of the repository, as `bazel query --output=xml` tells of them."""

import dataclasses
import xml.etree.ElementTree as ElementTree


PYTHON = "//tests/support:torch_python"


@dataclasses.dataclass(frozen=True)
class Target:
    label: str
    kind: str  # "cc_test", "sh_test"
    tags: frozenset = frozenset()
    sources: tuple = ()  # paths in the repository, of its own package alone
    programs: tuple = ()  # labels of what it may start or open: the cc_binary targets that it reaches
    finds_python: bool = False  # a Python of this machine, and what is installed in it

    @property
    def package(self):
        return package_of(self.label)


def package_of(label):
    """//a/b:c -> a/b"""
    return label.removeprefix("//").partition(":")[0]


def path_of(label):
    """//a/b:c/d.h -> a/b/c/d.h; a label without a name is that of the folder's own name."""
    package, colon, name = label.removeprefix("//").partition(":")
    name = name if colon else package.rpartition("/")[2]
    return f"{package}/{name}" if package else name


def ring_of(target):
    """The lowest ring that runs `target`; None where none does."""
    if "manual" in target.tags:
        return None
    return 2 if "nightly" in target.tags else 1 if "ci" in target.tags else 0


def _labels(rule, name):
    found = rule.find(f"list[@name='{name}']")
    return [] if found is None else [item.get("value") for item in found]


def _reached(label, inputs):
    """Every rule that `label` depends on, step by step, itself among them."""
    seen = {label}
    queue = [label]
    while queue:
        for name in inputs.get(queue.pop(), ()):
            if name in inputs and name not in seen:
                seen.add(name)
                queue.append(name)
    return seen


def parse(text):
    """Targets of the tests in `text`, which also holds what they depend on, sorted by label."""
    rules = {rule.get("name"): rule for rule in ElementTree.fromstring(text).iter("rule")}
    inputs = {label: [item.get("name") for item in rule.findall("rule-input")] for label, rule in rules.items()}
    targets = []
    for label, rule in rules.items():
        kind = rule.get("class")
        if not kind.endswith("_test"):
            continue
        reached = _reached(label, inputs)
        programs = tuple(sorted(name for name in reached - {label} if rules[name].get("class") == "cc_binary"))
        # A script stands for the program that it starts.
        own = sorted(name for name in (reached - set(programs) if kind == "cc_test" else reached)
                     if package_of(name) == package_of(label))
        sources = tuple(path_of(name) for rule_name in own for name in _labels(rules[rule_name], "srcs"))
        targets.append(Target(label, kind, frozenset(_labels(rule, "tags")), sources, programs, PYTHON in reached))
    return sorted(targets, key=lambda target: target.label)


def fuzz_names(text):
    """The names of the fuzz targets in `text`."""
    rules = ElementTree.fromstring(text).iter("rule")
    return sorted(rule.get("name").partition(":")[2] for rule in rules
                  if rule.get("class") == "cc_binary" and "fuzz" in _labels(rule, "tags"))
