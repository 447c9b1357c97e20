"""cc_library, cc_binary and cc_test as everywhere, with the precompiled header where a target can have it.

In the optimised build, sources of tests are not optimised, unless the target `is_hot` or has flags of its own.
"""

_PRECOMPILED = "//tools/bazel:precompiled"

# What tests link of the product is optimised; they themselves are read once and run once.
_TEST_PRECOMPILED = "//tools/bazel:test_precompiled"
TEST_COPTS = select({
    "//tools/bazel:optimised": ["-O0", "-U_FORTIFY_SOURCE"],
    "//conditions:default": [],
})

def _include(label):
    # -fpch-deps: else the compiler tells Bazel of no dependency on the header.
    return select({
        "//tools/bazel:no_pch": [],
        "//conditions:default": ["-Winvalid-pch", "-fpch-deps", "-include", label[2:].replace(":", "/") + ".h"],
    })

def _dep(label):
    return select({
        "//tools/bazel:no_pch": [],
        "//conditions:default": [label],
    })

def _is_cxx(srcs):
    # Flags of a target reach all of its sources, and a C compiler takes no header of C++.
    for src in srcs:
        if type(src) != type("") or src.endswith(".c"):
            return False
    return True

def precompiled(kwargs, is_test = False):
    """The attributes of a target, with the precompiled header of its kind.

    Flags that change code generation differ from those of the header: such a target goes without.

    Args:
      kwargs: the attributes.
      is_test: whether its sources are a test's.
    """
    srcs = kwargs.get("srcs", [])
    result = dict(kwargs)
    has_flags = "copts" in kwargs
    if is_test and not has_flags:
        result["copts"] = TEST_COPTS
    if not srcs or type(srcs) != type([]) or not _is_cxx(srcs) or has_flags:
        return result
    label = _TEST_PRECOMPILED if is_test else _PRECOMPILED
    result["copts"] = result.get("copts", []) + _include(label)
    result["deps"] = kwargs.get("deps", []) + _dep(label)
    return result

def _is_test():
    return native.package_name() == "tests" or native.package_name().startswith("tests/")

def _in_tests(kwargs):
    # Below tests/, everything is for tests and for all of them.
    if not _is_test():
        return kwargs
    return dict({"testonly": 1, "visibility": ["//tests:__subpackages__"]}, **kwargs)

def cc_library(is_hot = False, **kwargs):
    native.cc_library(**precompiled(_in_tests(kwargs), is_test = _is_test() and not is_hot))

def cc_binary(is_hot = False, **kwargs):
    native.cc_binary(**precompiled(_in_tests(kwargs), is_test = _is_test() and not is_hot))

def libraries():
    """:libraries, which tests link: all of the package's libraries above but those that are linked whole."""
    native.cc_library(
        name = "libraries",
        testonly = 1,
        visibility = ["//tests:__subpackages__"],
        deps = [
            ":" + name
            for name, rule in native.existing_rules().items()
            if rule["kind"] == "cc_library" and not rule["alwayslink"]
        ],
    )

def cc_test(linkopts = [], is_hot = False, **kwargs):
    # By mold: the linker of binutils takes five times as long.
    native.cc_test(linkstatic = 1, linkopts = linkopts + ["-fuse-ld=mold"], **precompiled(kwargs, is_test = not is_hot))
