"""Libraries of the distribution, as cc_library targets.

By default they are linked as shared libraries. With --define=portable=1 they are linked as archives,
libstdc++ included, so that the program asks only for libc, libm and libgcc_s.
"""

# Parts of glibc, and libatomic, are never linked statically.
_GLIBC = ["-ldl", "-lpthread", "-lrt", "-lm", "-lc", "-latomic"]

def _libraries(ctx, flags):
    out = ctx.execute(["pkg-config"] + flags + ["--libs"] + ctx.attr.packages)
    if out.return_code != 0:
        fail("pkg-config %s: %s; run tools/setup" % (" ".join(ctx.attr.packages), out.stderr))
    names = []
    for flag in out.stdout.strip().split(" "):
        if flag.startswith("-l") and flag not in _GLIBC and flag not in names:
            names.append(flag)
    return names

# The archive of a library, as the linker finds it: Ubuntu 24.04 calls that of c-ares libcares_static.a.
def _archive(ctx, name):
    for file in ["lib%s.a" % name, "lib%s_static.a" % name]:
        out = ctx.execute(["gcc", "-print-file-name=" + file])
        if out.return_code == 0 and out.stdout.strip() != file:
            return "-l:" + file
    return "-l:lib%s.a" % name  # the linker says what is missing, and only who links archives hears it

def _impl(ctx):
    # A group, because the archives need each other; as-needed, so that the libstdc++.so which Bazel
    # appends to every link is dropped once the archive has answered.
    static = ["-Wl,--as-needed", "-Wl,--start-group"] + \
             [_archive(ctx, name[2:]) for name in _libraries(ctx, ["--static"])] + \
             ["-l:libstdc++.a", "-Wl,--end-group", "-ldl", "-lpthread", "-lrt", "-Wl,--gc-sections"]
    ctx.file("BUILD", """
cc_library(
    name = "{name}",
    linkopts = select({{
        "@ddprun//tools/bazel:portable": {static},
        "//conditions:default": {shared},
    }}),
    deps = select({{
        "@ddprun//tools/bazel:portable": ["@ddprun//tools/bazel:glibc_compat"],
        "//conditions:default": [],
    }}),
    visibility = ["//visibility:public"],
)
""".format(name = ctx.name, static = repr(static if ctx.attr.has_archive else _libraries(ctx, [])), shared = repr(_libraries(ctx, []))))

pkg_config_library = repository_rule(
    implementation = _impl,
    attrs = {
        "packages": attr.string_list(mandatory = True),
        # Whether it and all that it needs can be linked statically.
        "has_archive": attr.bool(default = True),
    },
    local = True,
)
