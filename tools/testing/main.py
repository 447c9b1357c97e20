"""tools/test, behind the shell script of that name."""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import bazel
import plan
import promises
import report
import results
import selection
import session as session_module
import targets as targets_module
from session import say

USAGE = """\
usage: tools/test [--ci | --nightly] [--only=STAGE,STAGE...] [--dry-run]
       tools/test [--asan | --tsan] PATH...

Installs what is needed, builds, and runs the tests of a ring. The last line counts the cases of the plain run, each
once; the sanitizers' runs have lines of their own above it. Exits with 1 when anything failed.
  (none)     ring 0: the product as it ships: style, lint, units, transcripts, whole programs
  --ci       ring 1, before a change lands: all tests but the longest, the sanitizers, and a tenth of ring 2
  --nightly  ring 2: everything, which takes two and a half hours on two cores
  --only     of the ring, what precedes all tests and the stages of these names
  --dry-run  prints the stages and their programs, and runs nothing

With a PATH (a test, the file of the product that it tests, a package's folder, or a Bazel label) it builds and runs
what belongs to it, always anew, and nothing else; with --asan or --tsan under that sanitizer.

What was --quick is tools/test; what was --full is a part of --nightly.
"""
QUERY = "deps(tests({0}))"
REPLACED = {"--quick": "tools/test without an option is what it was", "--full": "it is a part of --nightly"}


def parse(arguments):
    """Options; exits with 2 where they are wrong, with 0 for help."""
    parser = argparse.ArgumentParser(prog="tools/test", usage=USAGE.removeprefix("usage: "), add_help=False, allow_abbrev=False)
    for option in ("--ci", "--nightly", "--dry-run", "--asan", "--tsan"):
        parser.add_argument(option, action="store_true")
    parser.add_argument("--only", metavar="STAGES")
    parser.add_argument("-h", "--help", action="store_true")
    parser.add_argument("paths", nargs="*", metavar="PATH")
    for argument in arguments:
        if argument in REPLACED:
            refuse(f"{argument} is gone: {REPLACED[argument]}")
    try:
        options, unknown = parser.parse_known_args(arguments)
    except SystemExit:
        sys.exit(2)
    if options.help:
        print(USAGE, end="")
        sys.exit(0)
    if unknown:
        refuse(f"unknown option '{unknown[0]}'")
    if options.ci and options.nightly:
        refuse("--ci and --nightly exclude each other")
    if options.asan and options.tsan:
        refuse("--asan and --tsan exclude each other")
    if options.paths and (options.ci or options.nightly or options.dry_run or options.only is not None):
        refuse("a ring has no PATH")
    if not options.paths and (options.asan or options.tsan):
        refuse("--asan and --tsan need a PATH; tools/test --ci runs all of it")
    return options


def refuse(why):
    print(USAGE, end="", file=sys.stderr)
    say(why)
    sys.exit(2)


def commit():
    """The commit's hash; a copy without git has the one of nothing."""
    done = subprocess.run(("git", "rev-parse", "HEAD"), cwd=bazel.REPOSITORY, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else "0" * 40


def ask_bazel(pattern="//..."):
    """(targets, names of the fuzz targets)."""
    text = bazel.query(QUERY.format(pattern) + (" + //tests/fuzz:all" if pattern == "//..." else ""))
    return targets_module.parse(text), targets_module.fuzz_names(text)


def the_rest(ring, targets, fuzz_names, cores, only):
    """(the stages behind the opening, what the tenth of ring 2 is); exits with 2 where `only` names what is none."""
    flags = session_module.tsan_flags() if ring > 0 else ()
    stages, tenth = plan.main_part(ring, targets, flags), ""
    if ring == 1:
        tenth, more = plan.tenth(commit(), targets, fuzz_names, session_module.fuzz_jobs(cores), flags)
        stages += more
    if only is not None:
        chosen, names = set(only.split(",")), {stage.name for stage in stages}
        if not chosen <= names:
            refuse(f"no stage of this ring is '{min(chosen - names)}'; there are: {', '.join(sorted(names))}")
        stages = [stage for stage in stages if stage.name in chosen]
    return stages, tenth if any(stage.is_of_tenth for stage in stages) else ""


def dry_run(ring, cores, only):
    for line in report.describe(plan.opening(ring), []):
        print(line)
    if shutil.which("bazel") is None:
        say("the rest is known when tools/setup has installed Bazel")
        return 0
    targets, fuzz_names = ask_bazel()
    stages, tenth = the_rest(ring, targets, fuzz_names, cores, only)
    for line in report.describe(stages, targets):
        print(line)
    if tenth:
        print(f"of --nightly, behind these: {tenth}")
    return 0


def find_targets(session):
    """Asks Bazel for the session's targets, and judges their tags and the table of promises; the fuzz targets, or None."""
    began = time.monotonic()
    try:
        bazel.set_environment()
        session.targets, fuzz_names = ask_bazel()
    except subprocess.CalledProcessError:
        session.note("targets", time.monotonic() - began, "FAILED")
        return None
    breaches = [f"promises: {breach}" for breach in promises.ring_breaches(
        promises.read_table(), session.targets, plan.script_rings())]
    breaches += plan.reuse_breaches(session.targets)
    for breach in breaches:
        print(breach)
    session.note("targets", time.monotonic() - began, "FAILED" if breaches else "passed")
    return fuzz_names


def run_ring(ring, scratch, cores, only):
    session = session_module.Session(scratch, cores)
    if ring > 0:
        # Where PyTorch is to be installed, a test that finds none has failed.
        os.environ["DDPRUN_TEST_MUST_HAVE_TORCH"] = "1"
    tenth = ""
    if session.run(plan.opening(ring)):
        fuzz_names = find_targets(session)
        if fuzz_names is not None:
            stages, tenth = the_rest(ring, session.targets, fuzz_names, cores, only)
            session.run(stages)
            bazel.run(bazel.words("trim_cache"))
    for line in report.ending(ring, session.stages, session.runs, session.failed, tenth):
        print(line)
    return 1 if session.failed else 0


def choices_of(paths, called_from, left_out):
    """(what to run by Bazel, tests in Python); raises NothingFound."""
    looks, choices, scripts = [], [], []
    for path in paths:
        inside = selection.in_repository(path, called_from, bazel.REPOSITORY)
        looks.append(selection.look_for(inside, os.path.exists, os.path.isdir))
    packages = sorted({look.package for look in looks if look.package})
    targets = ask_bazel(" + ".join(f"//{package}:all" for package in packages))[0] if packages else []
    for look in looks:
        if look.script:
            scripts.append(look.script)
        elif look.pattern:
            choices.append(selection.Choice(look.pattern))
        else:
            choices += selection.choose(look, targets, left_out)
    return choices, scripts


def run_paths(options, called_from, scratch):
    missing = bazel.answer("eval", 'missing_packages "${packages[@]}"').split()
    if missing:
        say(f"these packages are missing: {' '.join(missing)}; install them by: tools/setup")
        return 1
    try:
        choices, scripts = choices_of(options.paths, called_from, "no-asan" if options.asan else "no-tsan" if options.tsan else "")
    except selection.NothingFound as nothing:
        say(str(nothing))
        return 2
    bazel.set_environment()
    flags = ("--config=asan",) if options.asan else session_module.tsan_flags() if options.tsan else plan.OPT
    status, programs, stages = 0, [], []
    for script in scripts:
        folder, name = os.path.split(script)
        status |= bazel.run(("python3", "-m", "unittest", "discover", "-s", folder, "-p", name))[0]
    for number, (labels, files) in enumerate(selection.merge(choices)):
        say(f"{' '.join(labels)}{': ' + ' '.join(files) if files else ''}")
        events = os.path.join(scratch, f"{number}.json")
        session_module.write(events, ())
        cut = (f"--test_arg=--source-file={','.join('*' + file for file in files)}",) if files else ()
        began = time.monotonic()
        words = bazel.words("bazel_", "test", *flags, "--keep_going", "--nocache_test_results", "--flaky_test_attempts=1",
                            "--test_output=summary", "--test_summary=none", f"--build_event_json_file={events}", *cut, "--", *labels)
        failed = bazel.run(words)[0]
        status |= failed
        stages.append(report.StageResult(" ".join(labels), time.monotonic() - began, "FAILED" if failed else "passed"))
        with open(events, encoding="utf-8") as lines:
            programs += results.read(lines)
    name = "asan" if options.asan else "tsan" if options.tsan else "plain"
    for line in report.ending_of_paths(name, stages, programs):
        print(line)
    return 1 if status or results.count(programs).bad or choices and not programs else 0


def main(arguments):
    options = parse(arguments)
    called_from = os.getcwd()
    os.chdir(bazel.REPOSITORY)
    # So that what this has started ends with it.
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    signal.signal(signal.SIGHUP, lambda number, frame: sys.exit(128 + number))
    cores = os.cpu_count() or 1
    ring = 2 if options.nightly else 1 if options.ci else 0
    if options.dry_run:
        return dry_run(ring, cores, options.only)
    with tempfile.TemporaryDirectory(prefix="ddprun-test.") as scratch:
        if options.paths:
            return run_paths(options, called_from, scratch)
        return run_ring(ring, scratch, cores, options.only)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)
    except subprocess.CalledProcessError as failed:
        say(f"failed with {failed.returncode}: {' '.join(failed.cmd[4:])}")
        sys.exit(1)
