"""package_test: one test program of many source files. With what BUILD files of tests need besides."""

load("//tools/bazel:cc.bzl", _cc_binary = "cc_binary", _cc_library = "cc_library", _cc_test = "cc_test")

cc_binary = _cc_binary
cc_library = _cc_library

_TAGS = {
    "ci_process_tests": ["ci", "no-sandbox"],
    "flag_tests": [],
    "mutants_test": [],
    "process_tests": ["no-sandbox"],
    "tests": [],
    "thread_tests": [],
}

def _other_tests():
    taken = {}
    for rule in native.existing_rules().values():
        for src in rule.get("srcs", None) or []:
            taken[src] = True
    others = [src for src in native.glob(["*_test.cc"]) if ":" + src not in taken]
    if not others:
        fail("no file is left for a package_test without srcs, which stands behind those that list theirs")
    return others

def package_test(name, srcs = None, deps = [], tags = None, env = {}, file_limit_s = 300, **kwargs):
    """One program that runs each of its source files in a child of its own (tests/support/doctest_main.cc).

    A package has one for each kind of test: `tests` for what Bazel's sandbox isolates, whose results are reused,
    `process_tests` for what needs real processes, sockets or namespaces and always runs, `ci_process_tests` for those
    of ring 1, and others where tags or flags differ.

    Args:
      name: of the program.
      srcs: the test files; without it, those of the folder that no target above has.
      deps: what they include, but //tests/support, rendezvous/base and Abseil, which all have.
      tags: "no-sandbox" for real processes; "ci" or "nightly" for what tools/test runs with --ci or --nightly
        alone; "no-asan", "no-tsan" and "plain" for what the sanitizers leave out. The names of _TAGS have theirs.
      env: of the tests.
      file_limit_s: what one source file may take; the sanitizers multiply it.
      **kwargs: as of cc_test.
    """
    if tags == None:
        if name not in _TAGS:
            fail("'%s' is no kind of package_test: give its tags" % name)
        tags = _TAGS[name]

    # The sandbox hides neither a Python nor what is installed in it.
    is_external = "no-sandbox" in tags or "//tests/support:torch_python" in deps
    _cc_test(
        name = name,
        srcs = _other_tests() if srcs == None else srcs,
        # The limit that counts is that of a file.
        timeout = "eternal",
        env = dict(env, DDPRUN_TEST_FILE_LIMIT_S = str(file_limit_s)),
        tags = tags + (["external"] if is_external else []),
        deps = deps + ["//tests/support", "//tests/support:doctest_main"],
        **kwargs
    )
