"""What a ring runs, in which order. Decides only: the outputs of queries are its arguments.

Ring 0 proves the product as it ships. Ring 1 (--ci) adds what a landing needs, ring 2 (--nightly) the rest. The tags of a
test say where it belongs: none is ring 0, `ci` ring 1, `nightly` ring 2; a ring runs those below it, too.
"""

import dataclasses

import parts
from targets import ring_of

OPT = ("--config=opt",)  # the flags that ship: tests link the objects of dist/
CANARIES = {"asan": "//tests/canary:asan_canary_test", "tsan": "//tests/canary:tsan_canary_test"}
# A threaded program and one that is not, which the choice of programs for the thread sanitizer must tell apart.
THREADED, SINGLE = "//tests/canary:data_race", "//tests/canary:heap_overflow"
TENTH_S = 480
# What a landing can do without ends by then: with nothing cached, the sanitizers' objects alone take an hour of two cores.
LANDING_S = 4200
NEWER_TORCH = "2.15.0"
_RECORDED = ("//tests/conformance:whole_tests", "//tests/conformance:torch_tests")
SIDE_BY_SIDE = 3  # tests for each core: they wait most of their time (docs/internals/test-runs.md has both times)
TSAN_SIDE_BY_SIDE = 2  # its programs are slow and wait for peers


@dataclasses.dataclass(frozen=True)
class Command:
    name: str
    words: tuple
    needs: tuple = ()  # stages without whose success there is nothing to run
    ends_run: bool = False  # when it fails
    is_of_tenth: bool = False


@dataclasses.dataclass(frozen=True)
class Tests:
    name: str
    labels: tuple
    flags: tuple = OPT
    test_flags: tuple = ()
    build: tuple = ()  # what is built first, in place of `labels`
    side_by_side: int = SIDE_BY_SIDE
    threads_only: bool = False  # of `labels`, those that can start a thread
    may_be_cut: bool = False  # at LANDING_S
    is_of_tenth: bool = False


SET_UP = Command("setup", ("tools/setup",), ends_run=True)
FAST = (
    Command("style", ("tools/lint", "--only=fast"), ends_run=True),
    Command("tools/testing", ("python3", "-m", "unittest", "discover", "-b", "-s", "tests/tools/testing", "-p", "*_test.py")),
)
BUILD = Command("build", ("tools/build",))
_ELECTIONS = "tests/sim/election_test.cc"
_RECORD_CHECK = ("tests/conformance/record", "--check")
_IMAGE = Command("image", ("tools/check_image",), needs=("build",))
_PORTABLE = ("dist/ddprun", "dist/train", "dist/make_digits", "dist/lib/libddp.so", "dist/lib/libddp_stop.so")
# (ring, stage), in the order in which they run, behind the tests.
CHECKS = (
    (0, Command("lint", ("tools/lint", "--only=built"))),
    (0, Command("portable", ("tools/lint_checks/portable.sh", *_PORTABLE), needs=("build",))),
    (0, Command("readme", ("tools/lint_checks/readme.sh",), needs=("build",))),
    (1, Command("libraries", ("tools/lint_checks/libraries.sh", "dist/lib/libddp.so", "dist/lib/libddp.a"), needs=("build",))),
    (1, Command("example", ("tools/lint_checks/example.sh",), needs=("build",))),
    (1, Command("packages", ("tools/check_packages",), needs=("build",))),
    (1, Command("docs", ("tools/docs", "build"))),
    (1, Command("gpu_check", ("tools/gpu_check", "{scratch}/gpu_check"))),
    (1, Command("planted", ("tools/lint", "--only=planted"))),
    (2, _IMAGE),
    (2, Command("seeds", ("tools/sim", "--seeds", "100000"))),
    (2, Command("elected seeds", ("tools/sim", "--elected", "--seeds", "100000"))),
    (2, Command("slurm", ("tools/test_slurm",))),
    (2, Command("torchrun anew", _RECORD_CHECK)),
    (2, Command("fuzz", ("tools/fuzz", "--seconds", "120", "--jobs", "{fuzz_jobs}"))),
    (2, Command("soak", ("tools/soak", "--minutes", "15"))),
    (2, Command("soak with etcd", ("tools/soak", "--minutes", "10", "--etcd"))),
)
ADDS = {
    1: "tools/test --ci adds the tests tagged `ci`, asan and ubsan over all units, tsan over the programs that can start"
       " a thread, packages, planted breaches, and a tenth of --nightly; it sets up Slurm, etcd, PyTorch and others",
    2: "tools/test --nightly adds fuzzing, 100,000 seeds, soak, torchrun recorded anew, the tests tagged `nightly`, every test under"
       " every sanitizer, and the build without the precompiled header",
}


def script_rings():
    """The ring of each check that is a script."""
    return {stage.words[0]: ring for ring, stage in reversed(CHECKS)}


def _is_in(target, ring):
    return ring_of(target) is not None and ring_of(target) <= ring


def plain(targets, ring):
    return tuple(target.label for target in targets if _is_in(target, ring))


def sanitized(name, targets, ring):
    """What runs under the sanitizer: all units in ring 1, everything in ring 2."""
    def fits(target):
        if not _is_in(target, ring) or f"no-{name}" in target.tags:
            return False
        return ring == 2 or "plain" not in target.tags and target.package.split("/")[:2] != ["tests", "e2e"]
    return tuple(target.label for target in targets if fits(target))


def opening(ring):
    """The stages before Bazel can be asked for anything."""
    stages = [SET_UP, *FAST]
    if ring > 0:
        stages += [Command(f"setup of {part.name}", ("tools/setup", f"--with-{part.name}")) for part in parts.PARTS]
    return stages


def _reuse(ring):
    """Bazel's own rule takes what its sandbox isolates from the cache, if it passed and nothing that it reads has changed."""
    return ("--nocache_test_results",) if ring == 2 else ("--cache_test_results=auto",)


def reuse_breaches(targets):
    """Tests that no sandbox isolates and that Bazel might take from its cache all the same."""
    return [f"{target.label}: it needs the tag external, or its result is reused" for target in targets
            if (target.finds_python or target.tags & {"no-sandbox", "exclusive", "local"}) and "external" not in target.tags
            and ring_of(target) is not None]


def _sanitizer_runs(targets, ring, tsan_flags):
    labels = {name: sanitized(name, targets, ring) + (CANARIES[name],) for name in ("asan", "tsan")}
    asan = Tests("asan", labels["asan"], ("--config=asan",), _reuse(ring), may_be_cut=ring == 1)
    return [asan, dataclasses.replace(asan, name="tsan", labels=labels["tsan"], flags=tsan_flags,
                                      side_by_side=TSAN_SIDE_BY_SIDE, threads_only=ring == 1)]


def _elections(targets):
    return Tests("elections", tuple(target.label for target in targets if _ELECTIONS in target.sources), test_flags=(
        "--nocache_test_results", f"--test_arg=--source-file=*{_ELECTIONS}", "--test_env=DDPRUN_TEST_SEEDS=100000",
        "--test_env=DDPRUN_TEST_TIME_FACTOR=100"))


def _newer_torchrun(targets):
    """What was recorded of the newer PyTorch; of the older one each ring's plain tests compare."""
    labels = tuple(target.label for target in targets if target.label in _RECORDED)
    return Tests("newer torchrun", labels, test_flags=("--nocache_test_results", f"--test_env=DDPRUN_TEST_TORCH_VERSION={NEWER_TORCH}"))


def main_part(ring, targets, tsan_flags=("--config=tsan",)):
    """What follows the opening, without the tenth."""
    everything = ("//...",) if ring > 0 else ()
    stages = [BUILD, Tests("plain", plain(targets, ring), build=everything, test_flags=_reuse(ring))]
    stages += [stage for at, stage in CHECKS if at <= ring]
    if ring > 0:
        stages += _sanitizer_runs(targets, ring, tsan_flags)
    if ring == 2:
        stages += [
            _elections(targets),
            _newer_torchrun(targets),
            Command("no_pch", ("{bazel}", "build", "--config=opt", "--config=no_pch", "//...")),
        ]
    return stages


def _slice(items, number, of):
    return tuple(items[number % of::of])


def tenth(commit, targets, fuzz_names, fuzz_jobs, tsan_flags=("--config=tsan",)):
    """(what, stages): the tenth of ring 2 that belongs to the commit, `TENTH_S` at most.

    A lot holds one kind of work, as each kind has a build of its own. What is too much for a lot is cut in slices, of
    which the commit's hash chooses one. No lot has `slurm`, whose clusters take longer than TENTH_S.
    """
    number = int(commit, 16)
    lot, number = number % 10, number // 10
    if lot in (0, 1):
        names = _slice(fuzz_names, lot, 2)
        seconds = max(10, TENTH_S // 2 * fuzz_jobs // max(1, len(names)))
        words = ("tools/fuzz", "--seconds", str(seconds), "--jobs", str(fuzz_jobs), *names)
        return f"half of the fuzz targets, {seconds} s each", [Command("fuzz", words, is_of_tenth=True)]
    first = number % 10**8 + 1
    if lot == 2:
        return f"seeds from {first} on", [
            Command("seeds", ("tools/sim", "--seeds", "100000", "--seed", str(first)), is_of_tenth=True),
            Command("elected seeds", ("tools/sim", "--elected", "--seeds", "100000", "--seed", str(first)), is_of_tenth=True),
            dataclasses.replace(_elections(targets), is_of_tenth=True)]
    if lot == 3:
        return "torchrun anew and a newer one, and the image for Kubernetes", [
            Command("torchrun anew", _RECORD_CHECK, is_of_tenth=True), dataclasses.replace(_IMAGE, is_of_tenth=True),
            dataclasses.replace(_newer_torchrun(targets), is_of_tenth=True)]
    if lot == 4:
        name, etcd = (("soak", ()), ("soak with etcd", ("--etcd",)))[number % 2]
        words = ("tools/soak", "--minutes", "5", "--seed", str(first), *etcd)
        return f"5 minutes of {name}, seed {first}", [Command(name, words, is_of_tenth=True)]
    if lot == 5:
        package = _slice(("launcher", "rendezvous", "worker_runtime", "tests/launcher"), number, 4)[0]
        words = ("{bazel}", "build", "--config=opt", "--config=no_pch", f"//{package}/...")
        return f"the build of {package} without the precompiled header", [Command("no_pch", words, is_of_tenth=True)]
    if lot in (6, 7):
        labels = _slice([target.label for target in targets if ring_of(target) == 2], lot, 2)
        what = f"half of the tests tagged `nightly` ({len(labels)})"
        return what, [Tests("nightly tests", labels, is_of_tenth=True)] if labels else []
    name = "asan" if lot == 8 else "tsan"
    rest = sorted(set(sanitized(name, targets, 2)) - set(sanitized(name, targets, 1)))
    flags = ("--config=asan",) if name == "asan" else tsan_flags
    labels = _slice(rest, number, 4)
    what = f"a quarter of the whole programs under {name} ({len(labels)})"
    return what, [Tests(f"whole programs under {name}", labels, flags, is_of_tenth=True)] if labels else []
