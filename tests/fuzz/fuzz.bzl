"""A fuzz target: one source file with LLVMFuzzerTestOneInput and what it promises."""

def fuzz_target(name, deps, data = [], tags = []):
    """Two programs of one source.

    `<name>`: libFuzzer's, which only --config=fuzz links (tools/fuzz builds it).
    `<name>_test`: replays the seeds of corpus/<name>, with every compiler and sanitizer.

    Args:
      name: of the target, of its source without .cc and of its folder of seeds.
      deps: what the source includes.
      data: what it reads while it runs.
      tags: of the test.
    """
    native.cc_binary(
        name = name,
        testonly = 1,
        srcs = [name + ".cc", "fed_bytes.cc"],
        linkopts = ["-fsanitize=fuzzer", "-Wl,--wrap=LLVMFuzzerTestOneInput"],
        tags = ["fuzz", "manual"],
        data = data,
        deps = deps + ["//tests/fuzz:promise"],
    )
    native.cc_test(
        name = name + "_test",
        size = "small",
        srcs = [name + ".cc", "replay_test.cc"],
        local_defines = ["FUZZ_CORPUS=\\\"tests/fuzz/corpus/%s\\\"" % name],
        data = data + native.glob(["corpus/%s/*" % name]),
        tags = tags,
        deps = deps + ["//tests/fuzz:promise", "//tests/support:doctest_main"],
    )
