"""Libraries for tests of the loaders, built from one source with different defines."""

def fake_library(name, src, deps, defines = [], soname = None):
    native.cc_binary(
        name = name,
        testonly = 1,
        srcs = [src],
        linkopts = ["-Wl,-soname," + soname] if soname else [],
        linkshared = 1,
        local_defines = defines,
        deps = deps,
    )

def fake_nccl(name, version, defines = [], soname = None):
    fake_library(
        name,
        "fake_nccl.cc",
        ["//worker_runtime/gpu:nccl_functions"],
        ["FAKE_VERSION=%d" % version] + defines,
        soname,
    )

def fake_cuda(name, defines = []):
    fake_library(name, "fake_cuda.cc", ["//worker_runtime/gpu:cuda_functions"], defines)
