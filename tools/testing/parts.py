"""What tools/setup can add for some tests, and which tests were skipped for want of it."""

import collections
import dataclasses
import re


@dataclasses.dataclass(frozen=True)
class Part:
    name: str  # of tools/setup's option, --with-NAME
    title: str


# In the order in which tools/test --ci sets them up: Python's package index, which is slow, comes last.
PARTS = (
    Part("slurm", "Slurm"),
    Part("kubernetes", "Kubernetes' models"),
    Part("browser", "a browser"),
    Part("prometheus", "Prometheus"),
    Part("etcd", "etcd"),
    Part("fuzz", "clang"),
    Part("packages", "cmake and lintian"),
    Part("debuggers", "gdb and py-spy"),
    Part("docs", "mkdocs and Doxygen"),
    Part("nccl", "NCCL and CUDA's headers"),
    Part("torch", "PyTorch"),
)

# Where a test's words do not name tools/setup's option themselves.
_BY_WORDS = (
    (r"\bno (nccl|cuda)\.h\b|\bno cublas_v2\.h\b", "NCCL and CUDA's headers", "tools/setup --with-nccl"),
    (r"^no newer etcd\b", "a newer etcd", "tools/setup --with-etcd"),
    (r"tools/test_slurm installs it", "a user-mode Linux", "tools/setup --with-guest"),
    (r"\bno (gdb|py-spy)\b", "gdb and py-spy", "tools/setup --with-debuggers"),
    (r"\bno eu-stack\b|\bneither eu-stack nor gdb\b", "eu-stack", "the package elfutils"),
    (r"\bno nvml\.h\b|CUDA toolkit", "a CUDA toolkit", "CUDA_HOME"),
    (r"\bonly root\b|\bneeds root\b|\bno rights?\b|\bnot (permitted|allowed)\b|\bpermits no\b|\bmay be (made|mounted)\b"
     r"|\bno (network|pid|mount) namespaces?\b|\bno (hosts|file system) of our own\b|\bno mounts\b|\bfanotify\b"
     r"|\bseccomp\b|\bcgroups?\b|\bfreezer\b|\bptrace_scope\b|\bnot available here\b|\bOperation not permitted\b",
     "rights or a kernel's feature", "a run as root, on a machine that permits namespaces"),
)


@dataclasses.dataclass(frozen=True)
class Lack:
    """What a skipped case lacked."""
    title: str
    remedy: str  # "" where there is none


def lack_of(why):
    """The lack that a test's reason `why` tells of; an unknown reason stands for itself."""
    for pattern, title, remedy in _BY_WORDS:
        if re.search(pattern, why):
            return Lack(title, remedy)
    named = re.search(r"tools/setup --with-([a-z]+)", why)
    if named:
        titles = [part.title for part in PARTS if part.name == named[1]]
        return Lack(titles[0] if titles else named[1], f"tools/setup --with-{named[1]}")
    return Lack(why, "")


def lines(cases, scripts=()):
    """One line for each lack that skipped cases and scripts, given by their reasons, tell of; those with a remedy first."""
    counts = [collections.Counter(lack_of(why) for why in reasons) for reasons in (cases, scripts)]
    lacks = sorted(counts[0] + counts[1], key=lambda lack: (not lack.remedy, -counts[0][lack], -counts[1][lack], lack.title))
    for lack in lacks:
        numbers = [f"{count[lack]} {word}{'s' if count[lack] != 1 else ''}" for count, word in zip(counts, ("case", "script"))
                   if count[lack]]
        if lack.remedy:
            yield f"skipped for want of {lack.title}: {' and '.join(numbers)} ({lack.remedy})"
        else:
            yield f"skipped: {' and '.join(numbers)}: {lack.title}"
