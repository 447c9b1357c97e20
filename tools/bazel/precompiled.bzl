"""A precompiled header: what most sources include, parsed once for each set of flags.

`precompiled_header` compiles a header with the flags that every C++ source of ours gets, plus `copts`. Who
depends on it and includes `<name>.h` by -include finds `<name>.h.gch` beside it.
"""

load("@bazel_tools//tools/build_defs/cc:action_names.bzl", "CPP_COMPILE_ACTION_NAME")
load("@bazel_tools//tools/cpp:toolchain_utils.bzl", "find_cpp_toolchain")

def _impl(ctx):
    header = ctx.actions.declare_file(ctx.label.name + ".h")
    ctx.actions.symlink(output = header, target_file = ctx.file.src)
    compiled = ctx.actions.declare_file(ctx.label.name + ".h.gch")
    toolchain = find_cpp_toolchain(ctx)
    features = cc_common.configure_features(
        ctx = ctx,
        cc_toolchain = toolchain,
        requested_features = ctx.features,
        unsupported_features = ctx.disabled_features,
    )
    flags = cc_common.get_memory_inefficient_command_line(
        feature_configuration = features,
        action_name = CPP_COMPILE_ACTION_NAME,
        variables = cc_common.create_compile_variables(
            feature_configuration = features,
            cc_toolchain = toolchain,
            use_pic = True,
            user_compile_flags = ctx.fragments.cpp.copts + ctx.fragments.cpp.cxxopts + ctx.attr.copts,
        ),
    )
    ctx.actions.run(
        executable = cc_common.get_tool_for_action(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
        ),
        arguments = flags + ["-x", "c++-header", ctx.file.src.path, "-o", compiled.path],
        inputs = depset([ctx.file.src], transitive = [toolchain.all_files]),
        outputs = [compiled],
        env = cc_common.get_environment_variables(
            feature_configuration = features,
            action_name = CPP_COMPILE_ACTION_NAME,
            variables = cc_common.empty_variables(),
        ),
        mnemonic = "PrecompiledHeader",
        use_default_shell_env = True,
    )
    return [CcInfo(compilation_context = cc_common.create_compilation_context(
        headers = depset([ctx.file.src, header, compiled]),
    ))]

precompiled_header = rule(
    implementation = _impl,
    attrs = {
        "src": attr.label(allow_single_file = [".h"], mandatory = True),
        "copts": attr.string_list(),
        "_cc_toolchain": attr.label(default = "@bazel_tools//tools/cpp:current_cc_toolchain"),
    },
    fragments = ["cpp"],
    toolchains = ["@bazel_tools//tools/cpp:toolchain_type"],
)
