"""A fuzz target: one source file with LLVMFuzzerTestOneInput and what it promises."""

load("//tests:package_test.bzl", "package_test")
load("//tools/bazel:cc.bzl", "cc_binary", "cc_library")

_FED = "_fed"

def fuzz_target(name, deps, data = [], tags = []):
    """libFuzzer's program of one source, which only --config=fuzz links (tools/fuzz builds it).

    The same source under a name of its own is for replay_tests().

    Args:
      name: of the target, of its source without .cc and of its folder of seeds.
      deps: what the source includes.
      data: what it reads while it runs.
      tags: of the test.
    """
    cc_binary(
        name = name,
        testonly = 1,
        srcs = [name + ".cc", "fed_bytes.cc"],
        linkopts = ["-fsanitize=fuzzer", "-Wl,--wrap=LLVMFuzzerTestOneInput"],
        tags = ["fuzz", "manual"],
        data = data,
        deps = deps + ["//tests/fuzz:promise"],
    )
    cc_library(
        name = name + _FED,
        srcs = [name + ".cc"],
        local_defines = ["LLVMFuzzerTestOneInput=Feed_" + name],
        tags = tags,
        data = data + native.glob(["corpus/%s/*" % name]),
        deps = deps + ["//tests/fuzz:promise"],
    )

def _replay_test(name, targets, tags):
    # Each case bears the name of its target's source, and so gets a process of its own.
    cases = "".join([
        "extern \"C\" int Feed_%s(const uint8_t*, size_t);\n#line 1 \"tests/fuzz/%s.cc\"\n" % (target, target) +
        "TEST_CASE(\"fuzz: every seed of %s passes\") { Replay(\"%s\", Feed_%s); }\n" % (target, target, target)
        for target in targets
    ])
    native.genrule(
        name = name + "_cases",
        outs = [name + "_cases.cc"],
        cmd = "cat >$@ <<'END'\n#include <doctest/doctest.h>\n#include \"tests/fuzz/replay.h\"\n" +
              "using ddprun::testing::Replay;\n" + cases + "END",
    )
    package_test(
        name = name,
        srcs = [name + "_cases.cc"],
        file_limit_s = 60,
        tags = tags,
        deps = [":" + target + _FED for target in targets] + [":replay"],
    )

def replay_tests():
    """Feeds every target above with its seeds, with every compiler and sanitizer."""
    isolated = []
    others = []
    for name, rule in native.existing_rules().items():
        if rule["kind"] == "cc_library" and name.endswith(_FED):
            (others if "no-sandbox" in rule["tags"] else isolated).append(name[:-len(_FED)])
    _replay_test("tests", sorted(isolated), [])
    _replay_test("process_tests", sorted(others), ["no-sandbox"])
