"""gpu_double(): one build of the test double of CUDA's driver and NCCL."""

def gpu_double(name, version, without = [], cuda = "13.0", defines = []):
    """lib<name>.so: reports `version` (22807 is 2.28.7) and lacks the functions of `without`.

    Its file says that it is built for `cuda`; nothing where that is empty.

    A version script hides what is missing and everything that is not NVIDIA's, so that all builds
    have the same objects, and the double's standard library is not taken for the program's.
    """
    hidden = "".join([" %s;" % symbol for symbol in without])
    native.genrule(
        name = name + "_exports",
        outs = [name + ".lds"],
        cmd = "echo '{ global: cu*; nccl*; ddprun_double_*; local:%s *; };' > $@" % hidden,
        testonly = 1,
    )
    text = "%d.%d.%d" % (version // 10000, version % 10000 // 100, version % 100)
    native.cc_binary(
        name = "lib%s.so" % name,
        srcs = ["nccl_version.cc"],
        linkopts = ["-Wl,--version-script,$(location %s.lds)" % name, "-pthread"],
        linkshared = 1,
        linkstatic = 1,
        local_defines = [
            "DDPRUN_DOUBLE_VERSION=%d" % version,
            "DDPRUN_DOUBLE_VERSION_TEXT='\"%s%s\"'" % (text, "+cuda" + cuda if cuda else ""),
        ] + defines,
        testonly = 1,
        visibility = ["//tests:__subpackages__"],
        deps = [":exports", ":settings", ":gpu_double_parts", name + ".lds"],
    )
