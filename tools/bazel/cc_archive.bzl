"""One archive of a library and of everything of ours below it, for programs built without Bazel."""

def _impl(ctx):
    archives = []
    for dep in ctx.attr.deps:
        for linker_input in dep[CcInfo].linking_context.linker_inputs.to_list():
            if linker_input.owner.package == "tools/bazel":
                continue  # glibc_compat: for our own portable programs only.
            for library in linker_input.libraries:
                # Position-independent: the program may be a shared library. Only the optimised
                # build has both kinds.
                archive = library.pic_static_library or library.static_library
                if archive and archive not in archives:
                    archives.append(archive)
    out = ctx.actions.declare_file(ctx.label.name + ".a")

    # An MRI script, because plain ar would drop all but one of several members of the same name.
    ctx.actions.run_shell(
        inputs = archives,
        outputs = [out],
        mnemonic = "CcArchive",
        command = """set -eu
            out=$1; shift; rm -f "$out"
            { echo "create $out"; for a in "$@"; do echo "addlib $a"; done; echo save; echo end; } | ar -M
            ranlib -D "$out\"""",
        arguments = [out.path] + [archive.path for archive in archives],
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([out]), runfiles = ctx.runfiles([out]))]

cc_archive = rule(
    implementation = _impl,
    attrs = {"deps": attr.label_list(mandatory = True, providers = [CcInfo])},
)
