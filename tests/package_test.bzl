"""package_test: one test program of many source files."""

load("//tools/bazel:cc.bzl", "cc_test")

def package_test(name, srcs, deps, tags = [], env = {}, file_limit_s = 60, **kwargs):
    """One program that runs each of its source files in a child of its own (tests/support/doctest_main.cc).

    A package has one for each kind of test: `tests` for what Bazel's sandbox isolates, whose results are reused,
    `process_tests` for what needs real processes, sockets or namespaces and always runs, and others where tags or
    flags differ.

    Args:
      name: of the program.
      srcs: the test files.
      deps: what they include.
      tags: "no-sandbox" for real processes; "ci" or "nightly" for what tools/test runs with --ci or --nightly
        alone; "no-asan", "no-tsan" and "plain" for what the sanitizers leave out.
      env: of the tests.
      file_limit_s: what one source file may take; the sanitizers multiply it.
      **kwargs: as of cc_test.
    """
    # The sandbox hides neither a Python nor what is installed in it.
    is_external = "no-sandbox" in tags or "//tests/support:torch_python" in deps
    cc_test(
        name = name,
        srcs = srcs,
        # The limit that counts is that of a file.
        timeout = "eternal",
        env = dict(env, DDPRUN_TEST_FILE_LIMIT_S = str(file_limit_s)),
        tags = tags + (["external"] if is_external else []),
        deps = deps + ["//tests/support:doctest_main"],
        **kwargs
    )
