"""Fuzz targets: each is one source file with LLVMFuzzerTestOneInput and what it promises."""

load("//tests:package_test.bzl", "cc_binary", "cc_library", "package_test")

def _fuzz_target(name, deps):
    # libFuzzer's program, which only --config=fuzz links (tools/fuzz builds it).
    cc_binary(
        name = name,
        srcs = [name + ".cc", "fed_bytes.cc"],
        linkopts = ["-fsanitize=fuzzer", "-Wl,--wrap=LLVMFuzzerTestOneInput"],
        tags = ["fuzz", "manual"],
        deps = deps + ["//tests/fuzz:promise"],
    )

    # The same source under a name of its own, for the replay of its seeds.
    cc_library(
        name = name + "_fed",
        srcs = [name + ".cc"],
        local_defines = ["LLVMFuzzerTestOneInput=Feed_" + name],
        data = native.glob(["corpus/%s/*" % name]),
        deps = deps + ["//tests/fuzz:promise"],
    )

def fuzz_targets(test, targets):
    """libFuzzer's programs, and one test that feeds each target with its seeds, for every compiler and sanitizer.

    Args:
      test: the name of the test, which says its kind (package_test.bzl).
      targets: what each target's source includes. Its name is that of its source without .cc, and of its folder of seeds.
    """
    for name, deps in targets.items():
        _fuzz_target(name, deps)

    # Each case bears the name of its target's source, and so gets a process of its own.
    cases = "".join([
        "extern \"C\" int Feed_%s(const uint8_t*, size_t);\n#line 1 \"tests/fuzz/%s.cc\"\n" % (target, target) +
        "TEST_CASE(\"fuzz: every seed of %s passes\") { Replay(\"%s\", Feed_%s); }\n" % (target, target, target)
        for target in sorted(targets)
    ])
    native.genrule(
        name = test + "_cases",
        outs = [test + "_cases.cc"],
        cmd = "cat >$@ <<'END'\n#include <doctest/doctest.h>\n#include \"tests/fuzz/replay.h\"\n" +
              "using ddprun::testing::Replay;\n" + cases + "END",
    )
    package_test(
        name = test,
        srcs = [test + "_cases.cc"],
        file_limit_s = 60,
        deps = [":" + target + "_fed" for target in targets] + [":replay"],
    )
